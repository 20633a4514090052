"""Our AdmissionCheck, which all sites of a Kueue claim when they open, and Kueue itself writes to."""

from typing import Any

import httpx2

from penstock.front.kueue.admission_check import claim
from penstock.kube import annotations
from penstock.kube.client import Cluster
from penstock.kube.kueue_api import CONTROLLER
from tests.awaiting import story
from tests.kube.told import Told


@story
async def test_a_check_that_somebody_wrote_meanwhile_is_read_again_and_no_site_is_out_of_reach_for_it() -> None:
    """Two sites opened at once: doctor said "BAD site east does not answer: ... the object has been modified"."""
    asked: list[str] = []
    check: dict[str, Any] = {
        "metadata": {"name": "penstock", "resourceVersion": "1"},
        "spec": {"controllerName": CONTROLLER},
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if request.method == "GET":
            return httpx2.Response(200, json=check)
        check["metadata"] |= {"resourceVersion": "2", "annotations": {annotations.INSTALLATION: "home"}}
        return httpx2.Response(409, json={"message": "the object has been modified", "reason": "Conflict"})

    cluster = Cluster(Told(answer), "c", "n")
    assert await claim(cluster, "penstock", "home") == ""
    assert "obeys another installation" in await claim(cluster, "penstock", "elsewhere")
    assert asked == ["GET", "PATCH", "GET", "GET"]
    await cluster.close()
