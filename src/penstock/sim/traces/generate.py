"""Generates a load like a research department's, for demos, tests and benchmarks without a trace.

Each person has a few recipes (a job name, a width, a usual run time) and repeats them, mostly in office hours. So run
times can be learned, load has peaks and quiet nights, and a few long and wide jobs make up most of the GPU-hours, as in
the public traces. Shares and shapes follow Philly, Helios and PAI in spirit.

Equal arguments give equal jobs on every Python: only `Random.random()` is used, seeded with text, and all times are
whole seconds, so that the last bit of a logarithm does not show.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.core.errors import BadInput
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis
from penstock.sim.traces.trace import Trace, TraceJob

#: Share of submissions by width. Gangs beyond one node are few, and a large part of the GPU-hours.
WIDTHS: Final = ((1, 0.66), (2, 0.08), (4, 0.09), (8, 0.11), (16, 0.035), (32, 0.016), (64, 0.009))
#: Share of recipes by class.
CLASSES: Final[tuple[tuple[str, float], ...]] = (
    ("training", 0.58),
    ("experiment", 0.25),
    ("interactive", 0.08),
    ("inference", 0.05),
    ("critical", 0.04),
)
PRIORITY: Final[dict[str, int]] = {"critical": 20, "interactive": 10, "inference": 5}
#: How much is submitted in each hour of a working day: little at night, a dip at noon, runs for the night at six.
RHYTHM: Final = (3, 2, 2, 2, 2, 2, 3, 5, 9, 14, 17, 16, 12, 14, 17, 18, 18, 19, 15, 10, 8, 8, 7, 5)
WEEKEND: Final = 0.45  #: day zero is a Monday
TEAMS: Final = ("vision", "language", "speech", "robotics", "recsys", "biology", "climate", "fraud")
ZONES_H: Final = (0, 0, -6, 1, 8, 0, -8, 3)  #: each team's office hours against the trace's own clock
PEOPLE: Final = ("ada", "ben", "chi", "dee", "eli", "fay")
MODELS: Final = (
    "resnet",
    "vit",
    "unet",
    "bert",
    "llama",
    "diffusion",
    "wav2vec",
    "gnn",
    "detr",
    "ranker",
    "moe",
    "clip",
)
TASKS: Final = ("train", "finetune", "eval", "ablation", "pretrain", "distill")

RECIPES_EACH: Final = 6
USUAL_S: Final = 1_800  #: the median recipe's median run time
LONGEST_S: Final = 7 * 86_400
GPU_HOURS_EACH: Final = 8  #: about what a job takes on average: only to tell how large a cluster the load is for
WITHOUT_CHECKPOINTS: Final = 0.25
CHECKPOINT_EVERY_MS: Final = 15 * MINUTE
OTHER_WIDTH: Final = 0.10  #: share of submissions that try a recipe at another width
TAIL: Final = 0.04  #: share of runs that go on far longer than the recipe usually does
MOST_TRIES: Final = 4

T = TypeVar("T")
Submission: TypeAlias = tuple[int, int, JobSpec]  #: submit and run in seconds, and what was asked for


class Recipe(NamedTuple):
    """What one person runs again and again."""

    spec: JobSpec
    team: int
    weight: float
    median_s: float
    spread: float  # of the logarithm, from run to run
    fails: float  # probability of an early end, after which one tries again
    sweeps: float  # probability that many variants are submitted together
    hurries: float  # probability of a deadline


def generate(
    jobs: int,
    *,
    seed: int = 0,
    teams: int = 3,
    days: float = 30.0,
    widest: int | None = None,
    names: Sequence[str] = (),
) -> Trace:
    """Generates `jobs` jobs over `days` days, none wider than `widest`; its default suits the size of the load.
    `names`: of the teams, instead of so many made-up ones.
    """
    teams = len(names) or teams
    _check(jobs, teams, days, widest)
    widest = widest or _suitable(jobs, days)
    called = [*names] or [_team_name(team) for team in range(teams)]
    recipes = _recipes(Random(f"penstock {seed} people"), called, widest)
    calendars = [_calendar(Random(f"penstock {seed} calendar {team}"), team, days) for team in range(teams)]
    submissions = _submissions(Random(f"penstock {seed} jobs"), jobs, recipes, calendars, widest)
    submissions.sort(key=itemgetter(0))
    return Trace(tuple(_numbered(submissions)), {})


def demand_gpu_hours(trace: Trace) -> float:
    """GPU-hours of all jobs together."""
    return sum(job.spec.gpus * job.run_ms for job in trace.jobs) / HOUR


def nodes_for(trace: Trace, load: float = 1.0, gpus_per_node: int = 8) -> int:
    """So many nodes that the demand is `load` times what they can do between the first and the last submission."""
    if not (0.001 <= load <= 1_000 and gpus_per_node >= 1):
        asked = f"A load of {load:g} on nodes of {gpus_per_node} GPUs"
        raise BadInput(f"{asked} makes no sense; ask for 0.001 to 1,000, on 1 or more.")
    if not trace.jobs:
        return 1
    # One job alone, or one array, has no span of submissions: its own run time stands in.
    span_ms = trace.jobs[-1].submit_at - trace.jobs[0].submit_at or max(job.run_ms for job in trace.jobs)
    return max(1, round(demand_gpu_hours(trace) * HOUR / (load * span_ms * gpus_per_node)))


def _check(jobs: int, teams: int, days: float, widest: int | None) -> None:
    if not 1 <= jobs <= 100_000_000:
        raise BadInput(f"{jobs} jobs cannot be generated; ask for 1 to 100,000,000.")
    if not 1 <= teams <= 1_000:
        raise BadInput(f"{teams} teams cannot be generated; ask for 1 to 1,000.")
    if not 1 / 24 <= days <= 3_650:
        raise BadInput(f"A load over {days:g} days cannot be generated; ask for an hour (0.042) to 3,650 days.")
    if widest is not None and widest < 1:
        raise BadInput(f"No job can be at most {widest} GPUs wide; ask for 1 or more.")


def _suitable(jobs: int, days: float) -> int:
    """Nobody asks for 64 GPUs where 40 stand: a third of what the load keeps busy, but at least a node."""
    busy = jobs * GPU_HOURS_EACH / (days * 24)
    return max([8, *(width for width, _ in WIDTHS if width <= busy / 3)])


def _recipes(random: Random, teams: Sequence[str], widest: int) -> list[Recipe]:
    """Everybody's recipes. Widths, classes and run times are spread evenly, so that no seed gets all the long ones."""
    n = len(teams) * len(PEOPLE) * RECIPES_EACH
    lengths, classes, checkpoints = (_dealt(random, n) for _ in range(3))
    medians = [USUAL_S * (q / (1 - q)) ** 1.2 for q in lengths]
    weights = [_popularity(random, i) * (USUAL_S / medians[i]) ** 0.2 for i in range(n)]
    widths = _widths(_dealt_by_weight(random, weights), widest)
    return [
        _recipe(random, teams, i, widths[i], _share(CLASSES, classes[i]), medians[i], weights[i], checkpoints[i])
        for i in range(n)
    ]


def _dealt(random: Random, n: int) -> list[float]:
    """One number from each of n equal parts of 0..1, in random order; never 0 or 1 itself."""
    order = sorted((random.random(), i) for i in range(n))
    return [(i + 0.01 + 0.98 * random.random()) / n for _, i in order]


def _dealt_by_weight(random: Random, weights: Sequence[float]) -> list[float]:
    """The same for shares of submissions: each recipe gets the middle of a piece of 0..1 as long as its weight."""
    order = [i for _, i in sorted((random.random(), i) for i in range(len(weights)))]
    ends = list(accumulate(weights[i] for i in order))
    middles = [(end - weights[i] / 2) / ends[-1] for i, end in zip(order, ends, strict=True)]
    return [middle for _, middle in sorted(zip(order, middles, strict=True))]


def _widths(quantiles: Sequence[float], widest: int) -> list[int]:
    return [min(_share(WIDTHS, q), widest) for q in quantiles]


def _popularity(random: Random, i: int) -> float:
    """Early teams are larger, and some people submit several times as much as others."""
    team = i // (len(PEOPLE) * RECIPES_EACH)
    return math.exp(0.7 * _normal(random)) / math.sqrt(1 + team)


def _recipe(
    random: Random,
    teams: Sequence[str],
    i: int,
    width: int,
    job_class: str,
    median_s: float,
    weight: float,
    checkpoint: float,
) -> Recipe:
    team, rest = divmod(i, len(PEOPLE) * RECIPES_EACH)
    person, k = divmod(rest, RECIPES_EACH)
    # 5 and 7 share no factor with the lists' lengths, so that a person's recipes all have different names.
    name = f"{MODELS[(5 * k + person + 3 * team) % len(MODELS)]}-{TASKS[(7 * k + person) % len(TASKS)]}"
    interactive = job_class == "interactive"
    spec = JobSpec(
        min(width, 2) if interactive else width,
        team=teams[team],
        name=name,
        user=f"{PEOPLE[person]}-{teams[team]}",
        job_class=job_class,
        priority=PRIORITY.get(job_class, 0),
        checkpoint_every_ms=None if interactive or checkpoint < WITHOUT_CHECKPOINTS else CHECKPOINT_EVERY_MS,
    )
    return Recipe(
        spec=spec,
        team=team,
        weight=weight,
        median_s=min(median_s, 7_200) if interactive else median_s * width**0.25,  # wide jobs are also long ones
        spread=0.25 + 0.6 * random.random(),
        fails=0.05 + 0.25 * random.random(),
        sweeps=0.25 * random.random() if spec.gpus <= 4 and not interactive else 0.0,
        hurries={"critical": 0.5, "training": 0.05}.get(job_class, 0.0),
    )


def _team_name(team: int) -> str:
    return TEAMS[team] if team < len(TEAMS) else f"team{team + 1}"


def _calendar(random: Random, team: int, days: float) -> list[float]:
    """How much a team submits up to the end of each hour: by hour of the day, weekday, and busy or quiet weeks."""
    hours = math.ceil(days * 24)
    zone = ZONES_H[team % len(ZONES_H)]
    weeks = [math.exp(0.3 * _normal(random)) for _ in range(hours // 168 + 1)]
    mood = [math.exp(0.25 * _normal(random)) for _ in range(hours // 24 + 1)]
    return list(accumulate(_usual(hour - zone) * weeks[hour // 168] * mood[hour // 24] for hour in range(hours)))


def _usual(hour: int) -> float:
    return RHYTHM[hour % 24] * (WEEKEND if hour // 24 % 7 >= 5 else 1.0)


def _submissions(
    random: Random, jobs: int, recipes: Sequence[Recipe], calendars: Sequence[Sequence[float]], widest: int
) -> list[Submission]:
    uses = list(accumulate(recipe.weight for recipe in recipes))
    specs: dict[tuple[int, int], JobSpec] = {}  # a million jobs share a few hundred specs
    made: list[Submission] = []
    while len(made) < jobs:
        i = bisect_right(uses, random.random() * uses[-1], hi=len(uses) - 1)
        recipe = recipes[i]
        width = _width(random, recipe.spec, widest)
        spec = specs.get((i, width)) or specs.setdefault((i, width), replace(recipe.spec, gpus=width))
        at_s = _moment(random, calendars[recipe.team])
        submit = _sweep if random.random() < recipe.sweeps else _tries
        made += submit(random, recipe, spec, at_s)
    del made[jobs:]
    return made


def _width(random: Random, spec: JobSpec, widest: int) -> int:
    """The recipe's width, sometimes doubled or halved."""
    if spec.job_class == "interactive" or random.random() >= OTHER_WIDTH:
        return spec.gpus
    return min(spec.gpus * 2, widest) if random.random() < 0.5 else max(spec.gpus // 2, 1)


def _moment(random: Random, calendar: Sequence[float]) -> int:
    hour = bisect_right(calendar, random.random() * calendar[-1], hi=len(calendar) - 1)
    return hour * 3_600 + int(random.random() * 3_600)


def _sweep(random: Random, recipe: Recipe, spec: JobSpec, at_s: int) -> Iterator[Submission]:
    """Variants submitted together: mostly a handful, now and then dozens."""
    size = min(48, int(4 * math.exp(-0.6 * math.log(1 - random.random()))))
    return ((at_s, _run_s(random, recipe), spec) for _ in range(size))


def _tries(random: Random, recipe: Recipe, spec: JobSpec, at_s: int) -> Iterator[Submission]:
    """One run; if it fails early, its user fixes it in some minutes and submits it again."""
    for _ in range(MOST_TRIES - 1):
        if random.random() >= recipe.fails:
            break
        died_s = _lognormal(random, 45, 1.0)
        yield at_s, died_s, spec
        at_s += died_s + _lognormal(random, 400, 0.8)
    run_s = _run_s(random, recipe)
    if random.random() < recipe.hurries:
        spec = replace(spec, deadline_at=_deadline(random, at_s, run_s))
    yield at_s, run_s, spec


def _run_s(random: Random, recipe: Recipe) -> int:
    if random.random() < TAIL:
        return min(LONGEST_S, max(1, round(2 * recipe.median_s * math.exp(-0.8 * math.log(1 - random.random())))))
    return _lognormal(random, recipe.median_s, recipe.spread)


def _lognormal(random: Random, median_s: float, spread: float) -> int:
    return min(LONGEST_S, max(1, round(median_s * math.exp(spread * _normal(random)))))


def _deadline(random: Random, at_s: int, run_s: int) -> Instant:
    """On a full hour, twice to five times the run time ahead, and some hours: possible for a job that waits little."""
    ahead_ms: Millis = round((2 + 3 * random.random()) * run_s + 4 * 3_600) * SECOND
    return -(-(at_s * SECOND + ahead_ms) // HOUR) * HOUR


def _numbered(submissions: Sequence[Submission]) -> Iterator[TraceJob]:
    counts: dict[str, int] = {}
    for at_s, run_s, spec in submissions:
        counts[spec.team] = number = counts.get(spec.team, 0) + 1
        yield TraceJob(f"{spec.team}-{number:06d}", at_s * SECOND, run_s * SECOND, spec)


def _share(shares: Sequence[tuple[T, float]], q: float) -> T:
    """The entry at q, from 0 to 1, of entries laid side by side."""
    for entry, share in shares:
        q -= share
        if q < 0:
            return entry
    return shares[-1][0]


def _normal(random: Random) -> float:
    """A normal number by Box and Muller: Random's own may differ between Python versions."""
    return math.sqrt(-2 * math.log(1 - random.random())) * math.cos(2 * math.pi * random.random())
