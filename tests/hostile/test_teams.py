"""A member of one team tries to use what is another team's, against a real control plane."""

from pathlib import Path
from typing import Any

import httpx2

from tests.hostile.control_plane import ControlPlane

SITES = """
sites:
  - name: lab
    driver: local
    offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 2, nodes: 1}]
caps:
  - {scope: "project:scans", per_month: 500}
data:
  - {name: faces, size: 1GB, site: lab, class: personal, teams: [vision]}
teams:
  - {name: vision, projects: [scans]}
  - {name: speech, classes: [experiment, training], highest_priority: 5, queued_jobs: 1000, journal_per_day: 20MB}
"""


def asked(client: httpx2.Client, route: str = "/v1/jobs", **more: Any) -> tuple[int, str]:
    answer = client.post(route, json={"gpus": 1, "command": ["true"], **more})
    return answer.status_code, answer.json().get("detail", "")


def test_a_member_takes_nothing_that_is_another_teams(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        speech = plane.client(plane.token("member", "speech"))
        plane.client().post("/v1/pause").raise_for_status()
        for route in ("/v1/jobs", "/v1/plan"):
            for fields, words in (
                ({"project": "scans"}, "may not spend the budget of project scans"),
                ({"class": "critical"}, "may not submit jobs of class critical"),
                ({"priority": 6}, "may ask for a priority of 5 at most"),
                ({"team": "vision"}, "Your token is for team speech"),
            ):
                status, detail = asked(speech, route, **fields)
                assert (status, words in detail) == (403, True), (route, fields, detail)
            hidden, unknown = asked(speech, route, data=["faces"]), asked(speech, route, data=["feces"])
            assert hidden == (unknown[0], unknown[1].replace("feces", "faces"))
            assert hidden[0] == 422
        vision = plane.client(plane.token("member", "vision"))
        assert asked(vision, project="scans", data=["faces"])[0] == 201


def test_a_storm_of_one_teams_arrays_ends_and_the_others_go_on(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        plane.client().post("/v1/pause").raise_for_status()
        speech, vision = (plane.client(plane.token("member", team)) for team in ("speech", "vision"))
        answers = [speech.post("/v1/jobs", json={"gpus": 1, "command": ["true"], "count": 400}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
        assert "Team speech has 800 jobs in the queue, and may have 1,000" in answers[2].json()["detail"]
        assert int(answers[2].headers["Retry-After"]) > 0
        assert asked(vision)[0] == 201
        job = answers[0].json()["job"]
        assert speech.post(f"/v1/jobs/{job}/cancel").status_code == 200  # what fills the queue can leave it
        assert asked(speech, count=400)[0] == 201


def test_a_teams_share_of_the_journal_bounds_what_it_can_fill(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        plane.client().post("/v1/pause").raise_for_status()
        speech, vision = (plane.client(plane.token("member", team)) for team in ("speech", "vision"))
        large: dict[str, Any] = {"env": {f"V{k}": "x" * 30_000 for k in range(20)}}
        answers = [asked(speech, **large) for _ in range(8)]
        assert {status for status, _ in answers} == {201, 429}
        assert "share of the journal" in answers[-1][1]
        assert asked(vision, **large)[0] == 201
