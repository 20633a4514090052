"""`penstock portability -f`: Jobs and what makes Jobs, from a file."""

import json
from pathlib import Path

import pytest
import yaml

from penstock.cli.main import main
from tests.front.kit import home_job

SITES = """
currency: EUR
sites:
  - {name: lab, driver: kubernetes, front_door: true, offers: [{name: a, term: owned, gpu: A100, gpus_per_node: 8}]}
  - name: east
    driver: kubernetes
    maps: {namespaces: {vision: v}}
    offers:
      - {name: t4, term: on_demand, sold_by: attempt, billing_step: 1s, kill: 1m, gpu: T4, gpus_per_node: 8,
         price: {per: gpu_hour, list: 1}}
"""


def test_templates_are_judged_as_the_jobs_that_they_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = home_job("x", 1)["spec"]
    wants_a100 = home_job("x", 1, pod={"nodeSelector": {"node.kubernetes.io/instance-type": "p4d.24xlarge"}})["spec"]
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "vision"}}
    workers = [{"name": "driver", "template": {"spec": spec}}, {"name": "worker", "template": {"spec": wants_a100}}]
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": cron["metadata"]}
    documents = [
        {**cron, "spec": {"schedule": "@daily", "jobTemplate": {"spec": spec}}},
        {**job_set, "spec": {"replicatedJobs": workers}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}},
    ]
    (tmp_path / "sites.yaml").write_text(SITES)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    assert (
        main(["portability", "--sites", str(tmp_path / "sites.yaml"), "-f", str(tmp_path / "all.yaml"), "--json"]) == 0
    )
    judged = json.loads(capsys.readouterr().out)
    assert [(row["job"], row["verdict"]) for row in judged] == [
        ("vision/nightly", "could burst to east"),
        ("vision/nightly-driver", "could burst to east"),
        ("vision/nightly-worker", "needs a map"),
    ]
    assert judged[2]["sites"][0]["lines"] == ["maps: {gpus: {A100: T4}}"]
