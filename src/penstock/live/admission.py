"""Admission: what a team may ask for, before anything is recorded. The API and the front doors ask it for every job.

    with await admission.admitted(spec, size=len(body)):
        told = await plane.submit(spec, work)

A budget is spent only by those it is meant for: a project by the teams that list it, a team's own by its tokens and its
namespaces. A team's queue and its share of the journal's growth are bounded, so that one team's loop harms that team
alone. A token that may name any team is bounded likewise, whatever teams it names.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable
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
        capped: Callable[[], Collection[str]],
        registered: Callable[[], Container[str]],
        now: Callable[[], float],
        classes: Callable[[], tuple[str, ...]] = lambda: (),
        in_policy: Callable[[], tuple[str, ...]] = lambda: (),
        queued_by: Callable[[str], int] = lambda _token: 0,
    ) -> None:
        """`queued` counts a team's queued jobs in the journal; a thread calls it, and rarely. `capped`: the scopes with
        a cap; `registered`: the data sets. `now`: in seconds, steady. `classes`: those that the policy declares;
        `in_policy`: the teams that it names. `queued_by` counts a token's queued jobs, over all teams.
        """
        self.use(teams)
        self.data_teams, self.capped, self.registered = dict(data_teams), capped, registered
        self.classes, self.in_policy = classes, in_policy
        self.queues, self.growth = Queues(queued, now), Growth(now)
        #: The same by token, of those that may name any team.
        self.token_queues, self.token_growth = (
            Queues(queued_by, now, "Your token", FULL_SECONDS),
            Growth(now, "Your token"),
        )

    def use(self, teams: Iterable[Team]) -> None:
        """What each may use from now on."""
        self.teams = {team.name: team for team in teams}
        self.owners: dict[str, list[str]] = {}  #: project -> teams
        for team in self.teams.values():
            for project in team.projects:
                self.owners.setdefault(project, []).append(team.name)

    async def admitted(self, spec: JobSpec, size: int = 0, *, trusted: bool = False, by: str = "") -> "Entering":
        """Submit the job within this. Raises `NotAdmitted`. `size`: of the request, in bytes; `trusted`: asked by an
        operator, whom rules about teams do not bind. `by`: the token, if it may name any team.
        """
        team, token = self.team(spec.team), Team(by) if by and not trusted else None
        if not trusted:
            self.check(spec, by)
        entering = await self.queues.entered(team, spec.count)
        try:
            if token is not None:
                entering.also = await self.token_queues.entered(token, spec.count)
                self.token_growth.take(token, size + ASK_BYTES * spec.count)
            self.growth.take(team, size + ASK_BYTES * spec.count)
        except NotAdmitted:
            entering.end(recorded=False)
            raise
        return entering

    def team(self, name: str) -> Team:
        return self.teams.get(name) or Team(name)

    def check(self, spec: JobSpec, by: str = "") -> None:
        """Raises `NotAdmitted` if the job asks for more than its team may. `by`: the token, if it may name any team."""
        if by:
            self._check_known(spec.team)
        self._check(spec, self.team(spec.team))

    def _check_known(self, name: str) -> None:
        """Where teams are declared, a name that nobody declared is a typing error, or somebody who wants limits that
        hold for nobody.
        """
        declared = {*self.teams, *self.in_policy()}
        capped = {scope.removeprefix("team:") for scope in self.capped() if scope.startswith("team:")}
        if declared and name not in declared | capped:
            raise NotAdmitted(
                "NoSuchTeam",
                f"There is no team {name}; write one of these as 'team': {', '.join(sorted(declared | capped))}. An "
                "operator adds others to 'teams' in the policy file.",
            )

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

    def grow_by(self, token: str, asks: int = 1) -> None:
        """The same for a token that is for no team."""
        self.token_growth.take(Team(token), ASK_BYTES * asks)

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

    def __init__(self, count: Callable[[str], int], now: Callable[[], float], who: str = "", rest: float = 0) -> None:
        """`who`: in words, if not the team by its name. `rest`: seconds until a full queue is counted again."""
        self.count, self.now, self.who, self.rest = count, now, who, rest
        self.known: dict[str, tuple[int, float]] = {}  #: team -> (jobs, as of)
        self.entering: Counter[str] = Counter()
        self.entered_so_far: dict[str, int] = {}  #: jobs that were recorded, to see what a count may have missed

    async def entered(self, team: Team, jobs: int) -> "Entering":
        """Take room for these jobs. Raises `NotAdmitted` if the team's queue would grow too long."""
        queued, at = self.known.get(team.name, (team.queued_jobs, -FRESH_SECONDS))
        age, is_full = self.now() - at, queued + self.entering[team.name] + jobs > team.queued_jobs
        if age > FRESH_SECONDS or (is_full and age >= self.rest):
            before = self.entered_so_far.get(team.name, 0)
            queued = await asyncio.to_thread(self.count, team.name)
            queued += max(0, self.entered_so_far.get(team.name, 0) - before)  # recorded meanwhile: counted, or not
            _keep(self.known, team.name, (queued, self.now()))
        if queued + self.entering[team.name] + jobs > team.queued_jobs:
            raise NotAdmitted(
                "QueueFull",
                f"{self.who or f'Team {team.name}'} has {queued:,} jobs in the queue, and may have "
                f"{team.queued_jobs:,}; wait for some to start, or cancel some.",
                retry_s=FULL_SECONDS,
            )
        self.entering[team.name] += jobs  # before anything is awaited: nobody else may take the same room
        return Entering(self, team.name, jobs)


class Entering:
    """Room in a team's queue, while its jobs are being recorded. A context manager; written out, since every submission
    passes through it.
    """

    __slots__ = ("also", "jobs", "queues", "team")

    def __init__(self, queues: Queues, team: str, jobs: int) -> None:
        self.queues, self.team, self.jobs = queues, team, jobs
        self.also: Entering | None = None  #: the same jobs in another queue

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
        if self.also is not None:
            self.also.end(recorded=recorded)


class Growth:
    """How much each team may add to the journal: a part of a day's bytes at once, the rest over the day."""

    def __init__(self, now: Callable[[], float], who: str = "") -> None:
        self.now, self.who = now, who
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
                f"{self.who or f'Team {team.name}'} has asked for more today than its share of the journal holds; ask "
                f"for less, or for a larger 'journal_per_day'. Try again in {round(wait):,} s.",
                retry_s=wait,
            )
        _keep(self.left, team.name, (left - size, now))


def _keep(kept: dict[str, T], team: str, value: T) -> None:
    """Keep it as the newest; the least recently used goes when there are too many."""
    kept.pop(team, None)
    kept[team] = value
    if len(kept) > MOST_TEAMS:
        del kept[next(iter(kept))]
