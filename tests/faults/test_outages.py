"""API servers that stand still, are cut off, or do not know us any more, under a real `penstock up`: what people are
told meanwhile, and that everything goes on afterwards, once."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.pair import Brain, Ground, folded, home_job, rows, until
from penstock.core.model import events as e
from penstock.devcluster import ClusterGroup
from penstock.devcluster.cluster import DevCluster
from penstock.journal.redecide import redecide
from penstock.kube import annotations
from penstock.kube.manifests import ACTING, EVERYWHERE, SHOWING
from tests.faults.pipe import Pipe
from tests.front.kit import complete

pytestmark = pytest.mark.slow
BIG = 4  #: GPUs that only the rented cluster has
#: How long a start may take before it is tried again elsewhere: more than a busy machine needs for a pod, and less than
#: the 100 s after which a watch that hears nothing gives up by itself. So a deaf watch still shows as a second attempt.
BEGINS_WITHIN = "60s"


class One:
    """One control plane, its clusters, and what its commands say."""

    def __init__(self, bed: ClusterGroup, folder: Path) -> None:
        self.ground = Ground(bed, folder, f"-{secrets.token_hex(3)}")
        self.where = str(folder / "journal.db")
        self.brain = Brain(folder / "home", self.where, self.ground.sites)

    def comes_up(self, lab: Path | None = None, east: Path | None = None) -> None:
        self.ground.write_sites(lab or self.ground.lab.kubeconfig, east or self.ground.east.kubeconfig, BEGINS_WITHIN)
        self.brain.start()
        until((self.brain.home / "address").exists, "it is up")

    def runs(self, name: str) -> None:
        until(lambda: (self.ground.home(name).get("status") or {}).get("ready"), f"{name} runs")

    def completes(self, *jobs: str) -> None:
        for name in jobs:
            until(lambda name=name: complete(self.ground.home(name)), f"{name} is complete")  # type: ignore[misc]

    def says(self, command: str, *words: str) -> str:
        """Wait until the command says all of these."""

        output = ""

        def says_all() -> bool:
            nonlocal output
            output = self.brain.asked(*command.split())
            return all(word in output for word in words)

        try:
            until(says_all, command)
        except AssertionError:
            raise AssertionError(f"{command} never says {words}, but: {output}") from None
        return output

    def is_well(self) -> None:
        until(lambda: "BAD" not in self.brain.asked("doctor"), "doctor finds nothing bad")

    def ran_once(self, *attempts: str) -> None:
        """Each in one Job with one pod; nothing was lost, nothing is held, all of it was decided from the record."""
        made = [execution["metadata"]["annotations"] for execution in self.ground.executions()]
        words = {about[annotations.ATTEMPT]: about.get(annotations.WORDS, "") for about in made}
        assert sorted(words) == sorted(attempts), words
        assert len(made) == len(attempts), words
        assert [pod["status"]["phase"] for pod in self.ground.pods()] == ["Succeeded"] * len(attempts)
        events = [event for row in rows(self.where) for event in (*row.inputs, *row.outputs)]
        assert sorted(event.attempt for event in events if isinstance(event, e.StartPromised)) == sorted(attempts)
        assert [event for event in events if isinstance(event, e.AttemptLost)] == []
        until(lambda: not folded(self.where).state.ledger.leases, "nothing is held any more")
        assert redecide(rows(self.where), 1).different == 0


@pytest.fixture
def plane(two_clusters: ClusterGroup, tmp_path: Path) -> Iterator[One]:
    made = One(two_clusters, tmp_path)
    yield made
    made.brain.end()
    two_clusters.mend()


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Callable[[DevCluster], Pipe]]:
    with ExitStack() as stack:
        yield lambda cluster: stack.enter_context(Pipe(cluster, tmp_path))


def test_an_api_server_that_stands_still_is_named_and_all_goes_on_when_it_is_back(plane: One) -> None:
    plane.comes_up()
    plane.ground.apply(home_job("first", BIG, runs="5s"))
    plane.runs("first")
    plane.ground.east.pause_api()
    plane.says("sites", "does not answer")
    plane.says("doctor", "BAD  site", "east does not answer: east is out of reach")
    plane.says("why j0", "east is out of reach", "nothing is started twice")
    plane.ground.apply(home_job("second", BIG), home_job("small"))
    plane.completes("small")  # at home, as if nothing were
    plane.ground.east.resume_api()
    plane.completes("first", "second")
    plane.is_well()
    plane.ran_once("j0.1", "j1.1", "j2.1")


def test_an_api_server_that_is_killed_while_a_job_is_being_started_starts_it_once(plane: One) -> None:
    plane.comes_up()
    plane.ground.east.kill_api()
    plane.ground.apply(home_job("first", BIG))
    plane.says("doctor", "BAD  alarm", "east")
    plane.ground.east.start_api()
    plane.completes("first")
    plane.is_well()
    plane.ran_once("j0.1")


def test_the_home_cluster_stands_still_and_its_jobs_are_taken_and_shown_when_it_is_back(plane: One) -> None:
    plane.comes_up()
    plane.ground.apply(home_job("first", BIG, runs="3s"))
    plane.runs("first")
    plane.ground.lab.pause_api()
    plane.says("doctor", "lab does not answer", "The home cluster lab cannot be followed")
    until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in _pods(plane)), "it ends, and nobody can be told")
    plane.ground.lab.resume_api()
    plane.completes("first")
    plane.ground.apply(home_job("second"))
    plane.completes("second")
    plane.is_well()
    plane.ran_once("j0.1", "j1.1")


def _pods(plane: One) -> list[dict[str, Any]]:
    return list(plane.ground.east.get("pods", "-n", plane.ground.ours)["items"])


@pytest.mark.parametrize("away", ["east", "lab"])
def test_a_network_that_is_cut_so_that_connections_hang_loses_and_doubles_nothing(
    plane: One, piped: Callable[[DevCluster], Pipe], away: str
) -> None:
    """The old connections stay dead when it is mended. Once, what a watch did not say was not missed for 100 s."""
    pipe = piped(plane.ground.east if away == "east" else plane.ground.lab)
    plane.comes_up(**{away: pipe.kubeconfig})
    plane.ground.apply(home_job("first", BIG, runs="6s"))
    plane.runs("first")
    pipe.cut()
    plane.says("doctor", f"{away} does not answer")
    plane.ground.apply(home_job("second", BIG))
    until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in _pods(plane)), "the first ends meanwhile")
    pipe.mend()
    plane.completes("first", "second")
    plane.is_well()
    plane.ran_once("j0.1", "j1.1")


# --- who we are, and what we may -------------------------------------------------------------------------------------


def account(plane: One, cluster: DevCluster, *without: str) -> Path:
    """A kubeconfig with the rights that `penstock manifests rbac --role home` prints, except these, `VERB RESOURCE`;
    its token is in a file beside it. Called again it changes the rights, and the token."""
    rules = _less([*EVERYWHERE, *ACTING, *SHOWING], without)
    path = cluster.token_for(f"penstock-{plane.ground.ours}", rules)
    config = json.loads(path.read_text())
    token = path.with_suffix(".token")
    token.write_text(config["users"][0]["user"].pop("token"))
    config["users"][0]["user"]["tokenFile"] = str(token)
    path.write_text(json.dumps(config))
    return path


def _less(rules: list[dict[str, Any]], without: tuple[str, ...]) -> list[dict[str, Any]]:
    taken = [tuple(words.split()) for words in without]
    rights = [(verb, resource, rule) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]
    kept = [(verb, resource, rule) for verb, resource, rule in rights if (verb, resource) not in taken]
    return [{"apiGroups": rule["apiGroups"], "resources": [to], "verbs": [verb]} for verb, to, rule in kept]


def test_a_token_that_has_expired_is_named_and_a_new_one_in_its_file_is_taken_at_once(plane: One) -> None:
    east = plane.ground.east
    plane.comes_up(east=account(plane, east))
    plane.ground.apply(home_job("first", BIG, runs="3s"))
    plane.runs("first")
    east.revoke(f"penstock-{plane.ground.ours}")
    plane.says("doctor", "east does not answer", "the token is wrong or has expired")
    plane.ground.apply(home_job("second", BIG))
    account(plane, east)
    plane.completes("first", "second")
    plane.is_well()
    plane.ran_once("j0.1", "j1.1")


def test_a_right_that_is_missing_abroad_is_named_nothing_is_half_done_and_it_goes_on_once_granted(plane: One) -> None:
    east = plane.ground.east
    plane.comes_up(east=account(plane, east, "create jobs"))
    plane.ground.apply(home_job("first", BIG))
    plane.says("doctor", "BAD  alarm", "our account there may not create jobs.batch; grant it")
    assert plane.ground.executions() == []
    assert len(folded(plane.where).state.ledger.leases) == 1
    account(plane, east)
    plane.completes("first")
    plane.is_well()
    plane.ran_once("j0.1")


def test_a_right_that_is_missing_at_home_is_named_and_what_runs_is_shown_once_granted(plane: One) -> None:
    lab = plane.ground.lab
    plane.comes_up(lab=account(plane, lab, "patch jobs/status"))
    plane.ground.apply(home_job("first", BIG))
    plane.says("doctor", "BAD  alarm", "our account may not patch jobs.batch/status")
    plane.says("why j0", "Succeeded.")  # it runs all the same
    assert not (plane.ground.home("first").get("status") or {}).get("succeeded")
    account(plane, lab)
    plane.completes("first")
    plane.is_well()
    plane.ran_once("j0.1")
