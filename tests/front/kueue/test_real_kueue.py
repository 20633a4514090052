"""On a real Kueue and MultiKueue: nothing is let in before money is held, every Workload ends within its hold, and a
kind that is no batch Job is governed all the same, with Penstock alive or dead.
"""

from collections.abc import Iterator

import pytest

from penstock.core.units import HOUR, SECOND, ceil_div, money
from penstock.devcluster import ClusterGroup, kueue, programs
from penstock.front.kueue import workload as w
from penstock.kube.kueue_api import MAX_SECONDS
from tests.conftest import Part
from tests.front.kueue.setting import AWAY, HOME, PLANS, KueueSetting, batch_job, pytorch_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.found(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not kueue.found(), reason=Part.KUEUE),
]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueSetting]:
    folder = tmp_path_factory.mktemp("kueue")
    with ClusterGroup(folder / "bed", PLANS) as bed:
        made = KueueSetting(bed, folder)
        try:
            made.up()
            yield made
        finally:
            made.end()


def test_a_job_of_a_queue_with_our_check_runs_once_money_is_held_and_its_end_returns_the_rest(
    setting: KueueSetting,
) -> None:
    setting.apply(batch_job("alone", HOME, 2))
    setting.until(lambda: setting.check("alone").get("state") == "Ready", "our check is Ready")
    (held,) = setting.attempts("alone")
    bound_ms = setting.bound_ms("alone")
    assert held.deadline_at is not None
    assert bound_ms < held.deadline_at - held.promised_at
    assert held.held > ceil_div(money("8") * bound_ms, HOUR)
    row, attempts = setting.ends("alone", "done")
    assert row.team == setting.namespace
    assert [(attempt.offer, attempt.outcome, attempt.held) for attempt in attempts] == [("here/a100", "done", 0)]
    assert 0 < attempts[0].spent < held.held


def test_nothing_is_dispatched_before_money_is_held_and_then_the_engines_choice_of_worker(
    setting: KueueSetting,
) -> None:
    setting.says("budget", "--set", "org=0")
    setting.apply(pytorch_job("poor", AWAY, 3))
    setting.until(lambda: "org" in setting.check("poor").get("message", ""), "the check says which cap binds")
    assert (setting.check("poor")["state"], setting.attempts("poor")) == ("Pending", [])
    assert [setting.workload("poor", worker) for worker in setting.workers.values()] == [{}, {}]
    assert "nominatedClusterNames" not in setting.workload("poor")["status"]

    setting.says("budget", "--set", "org=1000")
    there = setting.until(lambda: setting.workload("poor", setting.workers["east"]), "the cheaper one gets it")
    assert w.most_seconds(there) == w.most_seconds(setting.workload("poor"))
    row, attempts = setting.ends("poor", "done")
    assert [(attempt.offer, attempt.outcome, attempt.held) for attempt in attempts] == [("far-east/a100", "done", 0)]
    assert setting.workload("poor", setting.workers["west"]) == {}
    why = setting.says("why", row.id)
    assert "Budget reached: org may spend €0.00" in why
    assert "Bursts to far-east/a100 with 8 GPUs." in why
    assert "far-west/a100 costs €" in why
    shown = setting.lab.get("pytorchjobs.kubeflow.org/poor", "-n", setting.namespace)
    assert [row["type"] for row in shown["status"]["conditions"]] == ["Succeeded"]


def test_with_penstock_dead_kueue_ends_a_pytorchjob_within_its_hold_and_it_goes_on_with_another_hold(
    setting: KueueSetting,
) -> None:
    setting.apply(pytorch_job("long", AWAY, 3600, lease_max="30s"))
    setting.until(lambda: w.is_admitted(setting.workload("long")), "it is admitted")
    setting.until(
        lambda: (known := setting.job("long")) and known[1] and known[1][-1].started_at, "its start is on record"
    )
    setting.kill()
    east = setting.workers["east"]
    (attempt,) = setting.attempts("long")
    bound_ms = setting.bound_ms("long")
    assert attempt.deadline_at is not None
    assert bound_ms < attempt.deadline_at - attempt.promised_at
    owner = setting.lab.get("pytorchjobs.kubeflow.org/long", "-n", setting.namespace)
    assert int(owner["metadata"]["labels"][MAX_SECONDS]) * SECOND == bound_ms

    setting.until(lambda: w.lease_is_up(setting.workload("long")), "Kueue ends it")
    setting.until(lambda: not east.get("pods", "-n", setting.namespace)["items"], "its pods are gone")

    setting.up()
    first, _ = setting.until(lambda: len(rows := setting.attempts("long")) == 2 and rows, "it gets another hold")
    assert (first.outcome, first.held) == ("stopped", 0)
    assert first.spent <= attempt.held
    setting.until(lambda: w.is_admitted(setting.workload("long")), "it is admitted again")
    setting.lab.kubectl("-n", setting.namespace, "delete", "pytorchjob", "long", "--wait=false")
    _, attempts = setting.ends("long", "cancelled")
    assert {attempt.held for attempt in attempts} == {0}
