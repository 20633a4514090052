"""docs/kubernetes.md, its first section: every command as it stands there, in its order, ends in a burst."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, programs
from penstock.devcluster.external import ExternalCluster
from tests.clusters import A100
from tests.conftest import ROOT, Part
from tests.front.kit import DELAY, binding

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
LIMIT_S = 120
PLANS = (
    ClusterPlan("lab", (NodePlan(1, gpus=4, model=A100),)),
    ClusterPlan("east", (NodePlan(2, gpus=4, model=A100),)),
)


def commands() -> list[list[str]]:
    (block,) = re.findall(r"<!-- first burst -->\n```sh\n(.*?)```\n", PAGE, re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


def job() -> dict[str, Any]:
    """The page's; kwok's pods end by an annotation, as no container does it there."""
    (text,) = re.findall(r"<!-- file: train.yaml -->\n```yaml\n(.*?)```\n", PAGE, re.DOTALL)
    made: dict[str, Any] = yaml.safe_load(text)
    made["spec"]["template"]["metadata"] = {"annotations": {DELAY: "300ms"}}
    return made


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ClusterGroup]:
    """Clusters of this test alone: the page takes them for its own."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    with ClusterGroup(tmp_path / "clusters", PLANS) as made:
        yield made


@pytest.fixture
def terminal(bed: ClusterGroup, tmp_path: Path) -> Path:
    """A folder with what the page says one needs."""
    folder = tmp_path / "work"
    (folder / "bin").mkdir(parents=True)
    for name in ("lab", "east"):
        (folder / f"{name}.kubeconfig").write_text(bed.cluster(name).kubeconfig.read_text())
    (folder / "train.yaml").write_text(yaml.safe_dump(job()))
    for name, module in (("penstock", "main"), ("kubectl-penstock", "kubectl")):
        program = folder / "bin" / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom penstock.cli.{module} import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
    return folder


def test_at_most_five_commands_lead_to_the_first_burst(bed: ClusterGroup, terminal: Path) -> None:
    typed = commands()
    assert len(typed) <= 5
    path = [str(terminal / "bin"), str(programs.folder()), sysconfig.get_path("scripts"), os.environ["PATH"]]
    env = os.environ | {
        "PATH": os.pathsep.join(path), "PENSTOCK_HOME": str(terminal / "home"), "PIP_NO_INDEX": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
    }  # fmt: skip
    with contextlib.ExitStack() as servers:
        for words in typed:
            if words[:2] == ["penstock", "up"]:
                servers.enter_context(running(words, terminal, env))
                continue
            done = subprocess.run(
                words, cwd=terminal, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
        lab: ExternalCluster = bed.cluster("lab")
        lab.kubectl("-n", "vision", "wait", "job/train", "--for=condition=Complete", "--timeout=90s")
        train = lab.get("-n", "vision", "job", "train")
        assert binding(train)["site"] == "east", train
        described(lab, "Bursts to east/a100")


def described(lab: ExternalCluster, word: str) -> None:
    """Once the Event is there: it comes after the status."""
    until = time.monotonic() + LIMIT_S
    while word not in (description := lab.kubectl("-n", "vision", "describe", "job", "train")):
        assert time.monotonic() < until, description
        time.sleep(0.1)


@contextlib.contextmanager
def running(words: list[str], folder: Path, env: dict[str, str]) -> Iterator[None]:
    """In a terminal of its own, until the end; returns once it says that it is up."""
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("Penstock is up at"), line
        drain = threading.Thread(target=server.stdout.read, daemon=True)
        drain.start()
        try:
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LIMIT_S)
            drain.join(LIMIT_S)
