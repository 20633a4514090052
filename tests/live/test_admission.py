"""What a team may ask for: budgets of others, classes, priorities, data, the queue and the journal."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.teams import Team
from penstock.core.model.types import JobSpec
from penstock.core.units import GB
from penstock.live.admission import BURST, FULL_SECONDS, Admission, NotAdmitted

VISION = Team(
    "vision", ("vision", "lab/vision-dev"), projects=("scans",), classes=("training", "experiment"), highest_priority=5
)
SPEECH = Team("speech", ("speech",), queued_jobs=3)


class Door:
    """An admission whose clock, journal and caps the test sets."""

    def __init__(
        self, *teams: Team, caps: tuple[str, ...] = (), data: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        self.now, self.queued, self.counted = 0.0, dict[str, int](), 0
        restricted = [(name, teams) for name, teams in (data or {}).items() if teams]
        self.admission = Admission(
            teams, restricted, self.count, lambda: caps, lambda: data or {}, lambda: self.now, queued_by=self.count
        )

    def count(self, team: str) -> int:
        self.counted += 1
        return self.queued.get(team, 0)

    def answer(self, spec: JobSpec, size: int = 0, trusted: bool = False, by: str = "") -> str:
        """ "" if it is admitted, and then it is in the queue; otherwise the reason."""

        async def ask() -> str:
            try:
                with await self.admission.admitted(spec, size, trusted=trusted, by=by):
                    for queue in (spec.team, by):
                        self.queued[queue] = self.queued.get(queue, 0) + spec.count
            except NotAdmitted as error:
                return error.reason
            return ""

        return asyncio.run(ask())

    def books(self, namespace: str, label: str, site: str = "lab") -> str:
        try:
            self.admission.book(site, namespace, label)
        except NotAdmitted as error:
            return error.reason
        return ""


def test_a_projects_budget_is_spent_by_the_teams_that_list_it_only() -> None:
    door = Door(VISION, SPEECH, caps=("project:scans", "project:orphan", "org"))
    assert door.answer(JobSpec(1, team="vision", project="scans")) == ""
    assert door.answer(JobSpec(1, team="speech", project="scans")) == "ProjectNotAllowed"
    assert door.answer(JobSpec(1, team="nobody", project="scans")) == "ProjectNotAllowed"
    assert door.answer(JobSpec(1, team="vision", project="orphan")) == "ProjectNotAllowed"  # has a budget, and no team
    assert door.answer(JobSpec(1, team="speech", project="a-mere-name")) == ""
    assert door.answer(JobSpec(1, team="speech", project="scans"), trusted=True) == ""  # an operator


def test_class_and_priority_are_those_of_the_team() -> None:
    door = Door(VISION)
    assert door.answer(JobSpec(1, team="vision", job_class="training", priority=5)) == ""
    assert door.answer(JobSpec(1, team="vision", job_class="critical")) == "ClassNotAllowed"
    assert door.answer(JobSpec(1, team="vision", priority=6)) == "PriorityNotAllowed"
    assert door.answer(JobSpec(1, team="other", job_class="critical", priority=1000)) == ""  # nobody said otherwise


def test_a_policy_declares_which_classes_there_are() -> None:
    door = Door(VISION)
    assert door.answer(JobSpec(1, team="other", job_class="nightly")) == "ClassNotAllowed"
    door.admission.classes = lambda: ("nightly", "training")
    assert door.answer(JobSpec(1, team="other", job_class="nightly")) == ""
    assert door.answer(JobSpec(1, team="other", job_class="critical")) == "ClassNotAllowed"
    assert door.answer(JobSpec(1, team="vision", job_class="nightly")) == "ClassNotAllowed"  # not one of its own


def test_a_jobs_label_cannot_book_to_a_team_that_is_not_its_namespaces() -> None:
    shared = Team("audio", ("speech",))
    door = Door(VISION, SPEECH, shared, caps=("team:capped",))
    assert door.books("vision", "vision") == ""
    assert [door.books("speech", label) for label in ("speech", "audio", "vision")] == ["", "", "TeamNotAllowed"]
    assert door.books("vision", "speech") == "TeamNotAllowed"
    assert door.books("vision-dev", "vision") == ""
    assert door.books("vision-dev", "vision", site="other") == "TeamNotAllowed"  # of that name at another front door
    assert door.books("default", "vision") == "TeamNotAllowed"
    assert door.books("default", "capped") == "TeamNotAllowed"  # it has a budget, and this namespace is not its own
    assert door.books("default", "somebody") == ""  # no budget and no entry: there is nothing to take


def test_a_workloads_team_may_be_that_of_its_namespaces_name_if_it_lists_no_namespaces() -> None:
    """docs/kueue.md said so, and a team that the policy file named was refused, in words about the sites file."""
    admission = Door(VISION, Team("robotics"), caps=("team:robotics",)).admission
    assert admission.team_of("lab-kueue", "robotics") == "robotics"
    admission.book("lab-kueue", "robotics", "robotics", by_name=True)
    with pytest.raises(NotAdmitted, match="in the policy file, or in the sites file if that names the teams"):
        admission.book("lab-kueue", "default", "robotics", by_name=True)
    with pytest.raises(NotAdmitted):  # it lists others
        Door(Team("audio", ("speech",))).admission.book("lab-kueue", "audio", "audio", by_name=True)
    with pytest.raises(NotAdmitted):  # a home Job says its team by a label, which is only what its author says
        admission.book("lab", "robotics", "robotics")


def test_another_teams_data_set_is_as_unknown_as_one_that_does_not_exist() -> None:
    door = Door(data={"scans": ("vision",), "common": ()})
    refusals = []
    for name in ("scans", "nothing"):
        with pytest.raises(NotAdmitted) as refused:
            door.admission.check(JobSpec(1, team="speech", data=(name,)))
        refusals.append((refused.value.reason, str(refused.value).replace(name, "NAME")))
    assert refusals[0] == refusals[1]
    assert door.answer(JobSpec(1, team="vision", data=("scans", "common"))) == ""
    assert door.answer(JobSpec(1, team="speech", data=("common",))) == ""


def test_an_array_counts_as_its_members_and_a_full_queue_is_one_teams_trouble() -> None:
    door = Door(SPEECH)
    assert door.answer(JobSpec(1, team="speech", count=4)) == "QueueFull"
    assert door.answer(JobSpec(1, team="speech", count=2)) == ""
    assert door.answer(JobSpec(1, team="speech", count=2)) == "QueueFull"
    assert door.answer(JobSpec(1, team="vision", count=1_000)) == ""
    door.queued["speech"] = 0  # they started
    assert door.answer(JobSpec(1, team="speech", count=3)) == ""
    assert door.answer(JobSpec(1, team="speech", count=3), trusted=True) == "QueueFull"  # the bound is everybody's


def test_a_token_that_may_name_any_team_is_bounded_whatever_teams_it_names() -> None:
    """A member's token of all teams queued 40,000 jobs in five seconds, under 40 teams that it had made up."""
    door = Door()
    answers = [door.answer(JobSpec(1, team=f"made-up-{k}", count=1_000), by="token") for k in range(40)]
    assert answers == [""] * 10 + ["QueueFull"] * 30
    assert door.queued["made-up-3"] == 1_000
    assert not door.admission.queues.entering  # what was refused holds no room in its team's queue
    assert door.answer(JobSpec(1, team="made-up-11"), by="other") == ""
    assert door.answer(JobSpec(1, team="vision")) == ""  # a token of that team
    door.queued["token"] = 0  # they started
    assert door.answer(JobSpec(1, team="made-up-12"), by="token") == "QueueFull"  # counted again in a moment
    door.now += FULL_SECONDS
    assert door.answer(JobSpec(1, team="made-up-12"), by="token") == ""


def test_a_full_queue_of_a_token_is_counted_rarely() -> None:
    """Its count is a walk over all queued jobs, and who is refused asks again at once."""
    door = Door()
    door.queued["token"] = 10_000
    for _ in range(100):
        assert door.answer(JobSpec(1, team="a"), by="token") == "QueueFull"
    assert door.counted < 105  # the team's, each time, and the token's once


def test_its_share_of_the_journal_is_one_whatever_teams_it_names() -> None:
    door = Door()
    most = int(Team("").journal_bytes * BURST)
    assert door.answer(JobSpec(1, team="a"), most // 2, by="token") == ""
    assert door.answer(JobSpec(1, team="b"), most // 2, by="token") == ""
    assert door.answer(JobSpec(1, team="c"), by="token") == "JournalShareUsed"


def test_a_team_that_nobody_declared_is_a_typing_error_where_teams_are_declared() -> None:
    door = Door(VISION, caps=("team:capped", "org"))
    door.admission.in_policy = lambda: ("audio",)
    with pytest.raises(
        NotAdmitted, match="There is no team visoin; write one of these as 'team': audio, capped, vision"
    ):
        door.admission.check(JobSpec(1, team="visoin"), by="token")
    for team in ("vision", "audio", "capped"):
        assert door.answer(JobSpec(1, team=team), by="token") == ""
    assert door.answer(JobSpec(1, team="speech")) == ""  # a token of that team: an admin made it
    assert door.answer(JobSpec(1, team="speech"), trusted=True, by="admin") == ""
    assert Door(caps=("team:capped",)).answer(JobSpec(1, team="speech"), by="token") == ""  # nobody declared any


def test_many_at_once_do_not_slip_past_the_count() -> None:
    door = Door(SPEECH)

    async def storm() -> int:
        async def ask() -> bool:
            try:
                with await door.admission.admitted(JobSpec(1, team="speech")):
                    await asyncio.sleep(0)
                    door.queued["speech"] = door.queued.get("speech", 0) + 1
            except NotAdmitted:
                return False
            return True

        return sum(await asyncio.gather(*(ask() for _ in range(50))))

    assert 1 <= asyncio.run(storm()) <= 3  # one that is just being recorded may count twice, never not at all


def test_the_journal_is_asked_about_the_queue_once_a_minute_while_it_is_not_full() -> None:
    door = Door()
    for _ in range(100):
        assert door.answer(JobSpec(1, team="vision")) == ""
    assert door.counted == 1
    door.now += 61
    assert door.answer(JobSpec(1, team="vision")) == ""
    assert door.counted == 2


def test_a_full_queue_is_counted_again_before_anybody_is_refused() -> None:
    door = Door(SPEECH)
    assert [door.answer(JobSpec(1, team="speech")) for _ in range(3)] == ["", "", ""]
    assert door.answer(JobSpec(1, team="speech")) == "QueueFull"
    door.queued["speech"] = 1  # two have started
    assert [door.answer(JobSpec(1, team="speech")) for _ in range(3)] == ["", "", "QueueFull"]


@given(st.lists(st.tuples(st.integers(0, 3_600), st.integers(1, 1_000_000)), max_size=60))
def test_a_teams_part_of_the_journals_growth_is_bounded_whatever_it_asks(asks: list[tuple[int, int]]) -> None:
    """The burst, the day's rate, and one request that is larger than what was left."""
    door, taken = Door(Team("a", journal_bytes=GB)), 0
    for wait, size in asks:
        door.now += wait
        try:
            door.admission.growth.take(door.admission.team("a"), size)
            taken += size
        except NotAdmitted as error:
            door.now += error.retry_s or 0
            door.admission.growth.take(door.admission.team("a"), 1)  # it said when to ask again
    assert taken <= GB * (BURST + door.now / 86_400) + 1_000_000


def test_a_loop_of_cancels_uses_the_teams_share_too() -> None:
    door = Door(Team("speech", journal_bytes=8_000))
    door.admission.grow("speech", asks=2)
    with pytest.raises(NotAdmitted, match="share of the journal"):
        door.admission.grow("speech")
    door.admission.grow("vision")
