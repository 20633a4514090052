"""An attempt's deadline as it stands on its Job. No cluster is needed."""

from datetime import UTC, datetime
from typing import Any

from penstock.core.units import HOUR, NEVER
from penstock.drivers.kubernetes.deadlines import _moved, deadline_of
from penstock.kube import annotations as names

THEN = datetime(2026, 11, 17, 12, tzinfo=UTC)
Json = dict[str, Any]


def execution(**annotations: str) -> Json:
    return {"metadata": {"annotations": annotations}, "spec": {}, "status": {}}


def test_a_deadline_has_an_annotation_of_its_own() -> None:
    assert deadline_of(execution(**{names.EXECUTION_DEADLINE: "1000"})) == 1000
    assert deadline_of(execution()) == NEVER


def test_a_job_of_an_older_version_keeps_its_deadline_and_a_new_one_takes_its_place() -> None:
    """It stood in the annotation by which people say when a home Job should be done."""
    old = execution(**{names.OLD_EXECUTION_DEADLINE: "1000"})
    assert deadline_of(old) == 1000
    noted = {names.EXECUTION_DEADLINE: str(HOUR), names.OLD_EXECUTION_DEADLINE: None}
    assert _moved(old, HOUR, 0, THEN) == {
        "metadata": {"annotations": noted},
        "spec": {"activeDeadlineSeconds": 3600},
    }
    assert deadline_of(execution(**{names.OLD_EXECUTION_DEADLINE: "1000", names.EXECUTION_DEADLINE: "2000"})) == 2000


def test_a_renewal_never_gives_more_than_the_user_does() -> None:
    """A renewal once wrote the lease's end over the user's own deadline, which then never came."""

    def renewed(deadline_at: int, own: str) -> int | None:
        job = execution(**{names.OWN_DEADLINE: own} if own else {})
        job["status"]["startTime"] = "2026-11-17T11:50:00Z"
        seconds: int | None = (_moved(job, deadline_at, 0, THEN) or {})["spec"]["activeDeadlineSeconds"]
        return seconds

    assert renewed(HOUR, "") == 600 + 3600
    assert renewed(HOUR, "700") == 700
    assert renewed(HOUR, "5000") == 600 + 3600
    assert renewed(NEVER, "700") == 700
    assert renewed(NEVER, "") is None
