"""Gives generated jobs the teams, classes and data that policy files and a sites file have, so that a rehearsal tries
their own rules. `cli/scenario_options` calls it.

    firm = firm_of(file, [policy])
    jobs = suited(generate(2_000, names=firm.teams).jobs, firm, seed=0)

A generated class that the files have stays. The others are dealt to the classes that the files have, first to those
that no generated job has. A part of the recipes reads one of the sites file's data sets that its team may use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Final

from penstock.core.model.types import JobSpec
from penstock.core.values import value
from penstock.sim.engine.chance import uniform
from penstock.sim.traces.generate import CLASSES
from penstock.sim.traces.trace import TraceJob

if TYPE_CHECKING:
    from penstock.config import SitesFile

READS_DATA: Final = 0.4  #: share of recipes that read a data set, where there are any


@value
class Firm:
    """Whose jobs they are. An empty part: as they are generated."""

    teams: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    team_classes: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of teams that may not use all
    data: tuple[str, ...] = ()
    data_teams: tuple[tuple[str, tuple[str, ...]], ...] = ()  # data sets that only these teams may use


def firm_of(files: Iterable["SitesFile"]) -> Firm:
    """All that any of these files names, in their order."""
    teams: dict[str, None] = {}
    classes: dict[str, None] = {}
    team_classes: dict[str, tuple[str, ...]] = {}
    data: dict[str, None] = {}
    data_teams: dict[str, tuple[str, ...]] = {}
    for file in files:
        teams |= dict.fromkeys(team.name for team in file.teams)
        teams |= dict.fromkeys(scope.removeprefix("team:") for scope, *_ in file.caps if scope.startswith("team:"))
        classes |= dict.fromkeys(rule.name for rule in file.governance.classes)
        team_classes |= {team.name: team.classes for team in file.teams if team.classes is not None}
        data |= dict.fromkeys(item.id for item in file.data)
        data_teams |= dict(file.data_teams)
    return Firm(tuple(teams), tuple(classes), tuple(team_classes.items()), tuple(data), tuple(data_teams.items()))


def suited(jobs: Iterable[TraceJob], firm: Firm, seed: int) -> list[TraceJob]:
    known: dict[JobSpec, JobSpec] = {}  # a million jobs share a few hundred specs
    by_team = {team: _classes_of(firm, team) for team in dict.fromkeys(job.spec.team for job in jobs)}
    told = []
    for job in jobs:
        spec = known.get(job.spec)
        if spec is None:
            spec = known[job.spec] = _suited(job.spec, by_team[job.spec.team], firm, seed)
        told.append(replace(job, spec=spec))
    return told


def _suited(spec: JobSpec, classes: Mapping[str, str], firm: Firm, seed: int) -> JobSpec:
    return replace(spec, job_class=classes.get(spec.job_class, spec.job_class), data=_data(spec, firm, seed))


def _classes_of(firm: Firm, team: str) -> dict[str, str]:
    """By generated class: the one that the files have for it."""
    may = dict(firm.team_classes).get(team)
    ours = [name for name in firm.classes if may is None or name in may]
    made = [name for name, _ in CLASSES]
    if not ours:
        return {}
    unused = cycle([name for name in ours if name not in made] or ours)
    return {name: name if name in ours else next(unused) for name in made}


def _data(spec: JobSpec, firm: Firm, seed: int) -> tuple[str, ...]:
    only = dict(firm.data_teams)
    names: Sequence[str] = [name for name in firm.data if spec.team in only.get(name, (spec.team,))]
    draw = uniform(seed, "reads", f"{spec.user} {spec.name}")
    if not names or draw >= READS_DATA:
        return spec.data
    return (names[int(draw / READS_DATA * len(names))],)
