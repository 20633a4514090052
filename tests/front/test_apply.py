"""`kubectl penstock apply` against a real API server: every kind, every way to name files, and what the server says."""

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main
from penstock.devcluster.external import ExternalCluster
from penstock.front.applying import Applier
from penstock.front.defaulting import why_not_ours
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from tests.front.kit import Penstock, complete, home_job, running

pytestmark = pytest.mark.slow
Json = dict[str, Any]


class Typist:
    """Somebody who types `kubectl penstock apply` in a folder of manifests."""

    def __init__(
        self, cluster: ExternalCluster, namespace: str, folder: Path, screen: pytest.CaptureFixture[str]
    ) -> None:
        self.cluster, self.namespace, self.folder, self.screen = cluster, namespace, folder, screen

    def writes(self, file: str, *manifests: Json | str) -> None:
        texts = [text if isinstance(text, str) else yaml.safe_dump(text) for text in manifests]
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("---\n".join(texts))

    def applies(self, *words: str, code: int = 0) -> tuple[list[str], str]:
        """Lines of stdout, and stderr."""
        where = ("--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace)
        ended = main(["kubectl", "apply", *where, *words])
        captured = self.screen.readouterr()
        assert ended == code, captured.err
        return captured.out.splitlines(), captured.err

    def has(self, kind: str, name: str) -> Json:
        return self.cluster.get("-n", self.namespace, kind, name)


@pytest.fixture
def typist(
    lab: ExternalCluster,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Typist:
    monkeypatch.chdir(tmp_path)
    return Typist(lab, namespace, tmp_path, capsys)


def plain(name: str, gpus: int = 1, **spec: Any) -> Json:
    """A Job as people write one."""
    job = home_job(name, gpus)
    del job["metadata"]["labels"], job["metadata"]["annotations"]
    job["spec"] = {"template": job["spec"]["template"], **spec}
    return job


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "train"},
    "spec": {"clusterIP": "None", "selector": {"job-name": "train"}},
}
CRON: Json = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly"},
    "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": plain("x")["spec"]}},
}


def test_what_asks_for_gpus_in_a_way_that_is_not_placed_is_the_clusters_own_and_its_author_is_told() -> None:
    """It was said to ask for no GPUs, which its author knew to be untrue."""
    claimed = plain("claimed", 0)
    claimed["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert why_not_ours(claimed) == (
        "It asks for GPUs by a claim (gpu); Penstock does not place these yet, so the cluster itself runs it, and "
        "Penstock does not."
    )
    assert why_not_ours(plain("prep", 0)).startswith("It asks for no GPUs, so the cluster itself")
    assert why_not_ours(plain("train")) == ""


def test_all_that_the_files_hold_is_applied_in_order_and_a_changed_file_changes_what_kubernetes_lets_it(
    typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    typist.writes("all/1.yaml", config_map("settings", lr="0.1"), SERVICE)
    typist.writes("all/2.yaml", {"apiVersion": "v1", "kind": "List", "items": [plain("train"), plain("prep", 0)]})
    typist.writes("cron.yaml", CRON)
    made = ["configmap/settings", "service/train", "job.batch/train", "job.batch/prep", "cronjob.batch/nightly"]
    files = ("-f", "all", "-f", "cron.yaml", "--team", "vision")
    lines, stderr = typist.applies(*files)
    assert lines == [f"{name} created" for name in made]
    assert stderr == "It asks for no GPUs, so the cluster itself runs it, and Penstock does not.\n"
    assert typist.applies(*files)[0] == [f"{name} unchanged" for name in made]

    train = typist.has("job", "train")
    assert (train["spec"]["suspend"], train["spec"]["managedBy"]) == (True, annotations.MANAGER)
    assert train["metadata"]["labels"][annotations.QUEUE] == "vision"
    assert "managedBy" not in typist.has("job", "prep")["spec"]
    template = typist.has("cronjob", "nightly")["spec"]["jobTemplate"]
    assert (template["spec"]["suspend"], template["spec"]["managedBy"]) == (True, annotations.MANAGER)
    assert template["metadata"]["labels"][annotations.QUEUE] == "vision"

    labelled = plain("train", parallelism=2, ttlSecondsAfterFinished=60, activeDeadlineSeconds=90)
    labelled["metadata"]["labels"] = {"run": "7"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(labelled).encode())))
    lines, stderr = typist.applies("-f", "-")  # whose it is, the Job says
    assert lines == ["job.batch/train configured"]
    assert "\n-  parallelism: 1\n" in stderr
    assert "\n+  parallelism: 2\n" in stderr
    typist.writes("again.yaml", plain("train", parallelism=2))
    assert typist.applies("-f", "again.yaml")[0] == ["job.batch/train configured"]
    train = typist.has("job", "train")
    assert "ttlSecondsAfterFinished" not in train["spec"]  # taken out of the file
    assert "run" not in train["metadata"]["labels"]
    typist.writes("again.yaml", plain("train", parallelism=2, suspend=True))
    assert typist.applies("-f", "again.yaml")[0] == ["job.batch/train unchanged"]  # it is suspended, by us

    other = plain("train", parallelism=2)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    typist.writes("again.yaml", other)
    lines, stderr = typist.applies("-f", "again.yaml", code=1)
    assert lines == []
    assert stderr.startswith(
        'Error: again.yaml, document 1: Job.batch "train" is invalid: spec.template: Invalid value'
    )
    assert "field is immutable" in stderr
    assert typist.has("job", "train") == train


def test_what_is_wrong_or_refused_is_said_with_its_place_and_stops_nothing_else(typist: Typist) -> None:
    typist.writes("a.yaml", config_map("a"), {"apiVersion": "x.example/v1", "kind": "Ring", "metadata": {"name": "r"}})
    typist.writes("b.yaml", plain("b"), "kind: [", config_map("never"))
    typist.writes("c.yaml", config_map("c"))
    files = [word for file in "abc" for word in ("-f", f"{file}.yaml")]
    lines, stderr = typist.applies(*files, code=2)
    assert lines == ["configmap/a created", "configmap/c created"]
    assert [line.split(" (")[0] for line in stderr.splitlines()] == [
        'Error: a.yaml, document 2: no matches for kind "Ring" in version "x.example/v1"; install its definition',
        "Error: b.yaml, document 1: Whose job is it? Say --team, or write the label penstock.dev/queue.",
        "Error: b.yaml, document 2: not YAML",
        "3 of 5 documents failed. Nothing that was applied is undone.",
    ]
    rows = json.loads("\n".join(typist.applies(*files, "--team", "vision", "--json", code=2)[0]))
    assert [row.get("outcome") for row in rows] == ["unchanged", None, "created", None, "unchanged"]
    assert rows[2]["name"] == "job.batch/b"

    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create", "patch"]}]
    typist.cluster = ExternalCluster(
        "ada", typist.cluster.token_for(f"ada-{typist.namespace}", rules, typist.namespace)
    )
    typist.writes("d.yaml", config_map("d"), plain("d"))
    lines, stderr = typist.applies("-f", "d.yaml", "--team", "vision", code=1)
    assert lines == ["job.batch/d created"]
    assert stderr.startswith("Error: d.yaml, document 1: the cluster does not let you get configmaps: ")
    typist.writes("e.yaml", {**plain("e"), "metadata": {"name": "e", "namespace": "elsewhere"}})
    stderr = typist.applies("-f", "e.yaml", "--team", "vision", code=2)[1]
    assert f'object "elsewhere" does not match the namespace "{typist.namespace}"' in stderr


def test_the_jobs_that_a_cron_job_makes_are_home_jobs(lab: ExternalCluster, namespace: str, tmp_path: Path) -> None:
    """The real controller makes one at once, because it missed an hour."""

    async def tell() -> None:
        async with Penstock(lab, namespace, tmp_path, runs={"j0": 0.5}) as here:
            cluster = connect(Access(kubeconfig=str(lab.kubeconfig)))
            try:
                made = (await Applier(cluster, "vision", namespace).apply(CRON)).manifest
            finally:
                await cluster.close()
            missed = {"status": {"lastScheduleTime": f"{datetime.now(UTC) - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"}}
            change = ("--subresource=status", "--type=merge", "-p", json.dumps(missed))
            lab.kubectl("-n", namespace, "patch", "cronjob", "nightly", *change)
            child = await here._until(lambda: next(iter(here.jobs), None))
            name = child["metadata"]["name"]
            assert child["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
            await here.shows(name, running)
            await here.shows(name, complete)
            spec = here.reader.spec("j0")
            assert spec is not None
            assert spec.team == "vision"
            ended = "--for=jsonpath={.status.lastSuccessfulTime}"
            lab.kubectl("-n", namespace, "wait", "cronjob/nightly", ended, "--timeout=50s")

    asyncio.run(tell())
