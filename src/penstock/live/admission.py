"""Admission: what a team may ask for, before anything is recorded. The API and the front doors ask it for every job.

    with await admission.admitted(spec, size=len(body)):
        told = await plane.submit(spec, work)

A budget is spent only by those it is meant for: a project by the teams that list it, a team's own by its tokens and its
namespaces. A team's queue and its share of the journal's growth are bounded, so that one team's loop harms that team
alone.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar

from penstock.config.teams import Team
from penstock.core.model.types import JOB_CLASSES, JobSpec
from penstock.core.units import DAY, SECOND

#: What a request without a body adds to the journal, about: a row with its promises.
ASK_BYTES: Final = 600
#: This part of a day's growth may come at once.
BURST: Final = 1 / 8
#: How long we admit by a count of queued jobs. What entered since is added, so it is too high if anything; nobody is
#: refused by it.
FRESH_SECONDS: Final = 60.0
FULL_SECONDS: Final = 10.0  #: after which a full queue may be asked again
MOST_TEAMS: Final = 10_000  #: kept in memory
#: Where teams are written: not both files may name them.
ITS_FILE: Final = "the policy file, or in the sites file if that names the teams"

T = TypeVar("T")


class NotAdmitted(Exception):
    """The team may not ask for this. `reason` is for machines, the message says what to change."""

    def __init__(self, reason: str, words: str, retry_s: float | None = None) -> None:
        super().__init__(words)
        self.reason, self.retry_s = reason, retry_s  #: not None: it may be asked again after so many seconds


class Admission:
    def __init__(
        self,
        teams: Iterable[Team],
        data_teams: Iterable[tuple[str, tuple[str, ...]]],
        queued: Callable[[str], int],
        capped: Callable[[], Container[str]],
        registered: Callable[[], Container[str]],
        now: Callable[[], float],
        classes: Callable[[], tuple[str, ...]] = lambda: (),
    ) -> None:
        """`queued` counts a team's queued jobs in the journal; a thread calls it, and rarely. `capped`: the scopes with
        a cap; `registered`: the data sets. `now`: in seconds, steady. `classes`: those that the policy declares.
        """
        self.use(teams)
        self.data_teams, self.capped, self.registered = dict(data_teams), capped, registered
        self.classes = classes
        self.queues = Queues(queued, now)
        self.growth = Growth(now)

    def use(self, teams: Iterable[Team]) -> None:
        """What each may use from now on."""
        self.teams = {team.name: team for team in teams}
        self.owners: dict[str, list[str]] = {}  #: project -> teams
        for team in self.teams.values():
            for project in team.projects:
                self.owners.setdefault(project, []).append(team.name)

    async def admitted(self, spec: JobSpec, size: int = 0, *, trusted: bool = False) -> "Entering":
        """Submit the job within this. Raises `NotAdmitted`. `size`: of the request, in bytes; `trusted`: asked by an
        operator, whom rules about teams do not bind.
        """
        team = self.team(spec.team)
        if not trusted:
            self._check(spec, team)
        entering = await self.queues.entered(team, spec.count)
        try:
            self.growth.take(team, size + ASK_BYTES * spec.count)
        except NotAdmitted:
            entering.end(recorded=False)
            raise
        return entering

    def team(self, name: str) -> Team:
        return self.teams.get(name) or Team(name)

    def check(self, spec: JobSpec) -> None:
        """Raises `NotAdmitted` if the job asks for more than its team may."""
        self._check(spec, self.team(spec.team))

    def _check(self, spec: JobSpec, team: Team) -> None:
        if spec.project and not self._may_book(team, spec.project):
            raise NotAdmitted(
                "ProjectNotAllowed",
                f"Team {team.name} may not spend the budget of project {spec.project}; leave 'project' out, or ask for "
                f"it to be added to the team's 'projects' in {ITS_FILE}.",
            )
        classes = (self.classes() or JOB_CLASSES) if team.classes is None else team.classes
        if spec.job_class not in classes:
            raise NotAdmitted(
                "ClassNotAllowed",
                f"Team {team.name} may not submit jobs of class {spec.job_class}; its classes: "
                f"{', '.join(classes) or 'none'}.",
            )
        if spec.priority > team.highest_priority:
            raise NotAdmitted(
                "PriorityNotAllowed",
                f"Team {team.name} may ask for a priority of {team.highest_priority} at most, and this job asks for "
                f"{spec.priority}.",
            )
        for name in spec.data:  # one answer for both: which data sets others have is theirs to know
            if name not in self.registered() or team.name not in self.data_teams.get(name, (team.name,)):
                raise NotAdmitted(
                    "NoSuchData",
                    f"There is no data set {name} that team {team.name} may use; check the name, or ask whoever "
                    "registers data sets in the sites file.",
                )

    def grow(self, name: str, asks: int = 1) -> None:
        """Raises `NotAdmitted` if the team may add no more to the journal today. For requests about jobs it has."""
        self.growth.take(self.team(name), ASK_BYTES * asks)

    def _may_book(self, team: Team, project: str) -> bool:
        """A project that no team lists is a mere name, unless it has a budget."""
        if project in self.owners:
            return team.name in self.owners[project]
        return f"project:{project}" not in self.capped()

    def book(self, site: str, namespace: str, label: str, *, by_name: bool = False) -> None:
        """Raises `NotAdmitted` if Jobs of this namespace may not be booked to the team that their label names. A team
        with a budget or an entry of its own is booked to by its own namespaces only. `by_name`: the namespace of its
        name is its own if it lists none, as `team_of` says.
        """
        owners = self._owners(site, namespace)
        if label in owners or (by_name and label == namespace and not owners and not self.team(label).namespaces):
            return
        if owners:
            raise NotAdmitted(
                "TeamNotAllowed",
                f"Jobs of namespace {namespace} are booked to team {' or '.join(owners)}; write that as the label.",
            )
        if label in self.teams or f"team:{label}" in self.capped():
            raise NotAdmitted(
                "TeamNotAllowed",
                f"Jobs of namespace {namespace} may not be booked to team {label}; ask for the namespace to be added "
                f"to the team's 'namespaces' in {ITS_FILE}.",
            )

    def team_of(self, site: str, namespace: str) -> str:
        """Who pays for what names no team: the first that lists the namespace, or a team of the namespace's name."""
        return next(iter(self._owners(site, namespace)), namespace)

    def _owners(self, site: str, namespace: str) -> list[str]:
        """The teams that list the namespace; several of them trust each other there."""
        paths = (f"{site}/{namespace}", namespace)
        return [team.name for team in self.teams.values() if any(path in paths for path in team.namespaces)]


class Queues:
    """How many jobs each team has queued: the journal's count, and those that are being submitted now."""

    def __init__(self, count: Callable[[str], int], now: Callable[[], float]) -> None:
        self.count, self.now = count, now
        self.known: dict[str, tuple[int, float]] = {}  #: team -> (jobs, as of)
        self.entering: Counter[str] = Counter()
        self.entered_so_far: dict[str, int] = {}  #: jobs that were recorded, to see what a count may have missed

    async def entered(self, team: Team, jobs: int) -> "Entering":
        """Take room for these jobs. Raises `NotAdmitted` if the team's queue would grow too long."""
        queued, at = self.known.get(team.name, (team.queued_jobs, 0.0))
        if queued + self.entering[team.name] + jobs > team.queued_jobs or self.now() - at > FRESH_SECONDS:
            before = self.entered_so_far.get(team.name, 0)
            queued = await asyncio.to_thread(self.count, team.name)
            queued += max(0, self.entered_so_far.get(team.name, 0) - before)  # recorded meanwhile: counted, or not
            _keep(self.known, team.name, (queued, self.now()))
        if queued + self.entering[team.name] + jobs > team.queued_jobs:
            raise NotAdmitted(
                "QueueFull",
                f"Team {team.name} has {queued:,} jobs in the queue, and may have {team.queued_jobs:,}; wait for some "
                "to start, or cancel some.",
                retry_s=FULL_SECONDS,
            )
        self.entering[team.name] += jobs  # before anything is awaited: nobody else may take the same room
        return Entering(self, team.name, jobs)


class Entering:
    """Room in a team's queue, while its jobs are being recorded. A context manager; written out, since every submission
    passes through it.
    """

    __slots__ = ("jobs", "queues", "team")

    def __init__(self, queues: Queues, team: str, jobs: int) -> None:
        self.queues, self.team, self.jobs = queues, team, jobs

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(recorded=kind is None)

    def end(self, *, recorded: bool) -> None:
        queues, team, jobs = self.queues, self.team, self.jobs
        if recorded:
            queued, at = queues.known.get(team, (0, 0.0))
            _keep(queues.known, team, (queued + jobs, at))
            _keep(queues.entered_so_far, team, queues.entered_so_far.get(team, 0) + jobs)
        queues.entering[team] -= jobs
        if not queues.entering[team]:
            del queues.entering[team]


class Growth:
    """How much each team may add to the journal: a part of a day's bytes at once, the rest over the day."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.left: dict[str, tuple[float, float]] = {}  #: team -> (bytes left, as of)

    def take(self, team: Team, size: int) -> None:
        """Raises `NotAdmitted`. A larger piece than there is left is admitted while anything is left, and owed."""
        now, most = self.now(), team.journal_bytes * BURST
        per_second = team.journal_bytes / (DAY / SECOND)
        left, at = self.left.get(team.name, (most, now))
        left = min(most, left + (now - at) * per_second)
        if left <= 0:
            wait = 1 + (-left) / per_second
            raise NotAdmitted(
                "JournalShareUsed",
                f"Team {team.name} has asked for more today than its share of the journal holds; submit fewer or "
                f"smaller jobs, or ask for a larger 'journal_per_day'. Try again in {round(wait):,} s.",
                retry_s=wait,
            )
        _keep(self.left, team.name, (left - size, now))


def _keep(kept: dict[str, T], team: str, value: T) -> None:
    """Keep it as the newest; the least recently used goes when there are too many."""
    kept.pop(team, None)
    kept[team] = value
    if len(kept) > MOST_TEAMS:
        del kept[next(iter(kept))]
