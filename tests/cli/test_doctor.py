"""`penstock doctor` shows jobs that a site cannot start, in the site's words, and blames the installation for none."""

from typing import Any, cast

from penstock.cli.client import Client
from penstock.cli.doctor import Check, _hindered

STUCK = {"kind": "NotStarting", "says": "Not started yet at lab/a100: 0/3 nodes are available."}


class Jobs:
    def get(self, path: str, state: str, limit: int) -> Any:
        assert path == "/v1/jobs"
        assert limit <= 200
        jobs: list[dict[str, Any]] = [{"id": "j1", "because": STUCK}, {"id": "j2", "because": None}]
        return {"jobs": [*jobs, {"id": "j3", "because": {"kind": "OwnedFree"}}] if state == "starting" else []}


def test_a_job_that_its_site_cannot_start_is_shown_and_is_no_fault_of_the_installation() -> None:
    (check,) = _hindered(cast("Client", Jobs()))
    assert check == Check("job", True, "j1 is starting: Not started yet at lab/a100: 0/3 nodes are available.")
    assert check.mark == "!! "
    assert (Check("disk", True, "").mark, Check("disk", False, "").mark) == ("ok ", "BAD")
