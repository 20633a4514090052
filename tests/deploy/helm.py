"""Helm, as tests use it: `make kube` builds it. Nothing of the person's own settings is read."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.devcluster import programs
from tests.conftest import ROOT, Part

CHART = ROOT / "deploy" / "chart"
LIMIT_S = 300
Json = dict[str, Any]


def helm(*words: str, values: Json | None = None, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    program = programs.helm()
    if program is None:
        pytest.skip(Part.HELM)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "HELM_CACHE_HOME": folder, "HELM_CONFIG_HOME": folder}
        given = []
        if values is not None:
            Path(folder, "values.yaml").write_text(yaml.safe_dump(values))
            given = ["-f", f"{folder}/values.yaml"]
        to = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        return subprocess.run(
            [program, *words, *given, *to], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )


def rendered(values: Json, *words: str, release: str = "penstock", namespace: str = "penstock") -> list[Json]:
    done = helm("template", release, str(CHART), "-n", namespace, *words, values=values)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def refused(values: Json) -> str:
    done = helm("template", "penstock", str(CHART), values=values)
    assert done.returncode != 0, done.stdout
    return done.stderr
