"""Jobs and offers to try a condition on: every value that it could tell apart, of everything that it reads. `check`
asks whether it ever holds, and whether it ever does not.

What is tried: declared classes and teams and one more team, the numbers that stand in the condition with their
neighbours, its literals where the name is free, and the offers of the sites file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import gcd, prod
from typing import Any, Final, TypeAlias

from penstock.config import SitesFile
from penstock.core.decide.rules import Candidate
from penstock.core.model.governance import Governance
from penstock.core.model.types import JOB_CLASSES, JobSpec, Policy
from penstock.policy.expressions import Expression
from penstock.policy.fields import OFFER, SITE, Read
from penstock.policy.judge import offers_of

MOST: Final = 20_000  #: combinations that are tried
OTHER_TEAM: Final = "another-team"
WIDTHS: Final = (1, 2, 4, 8, 16, 64, 512)

#: Values of several fields that belong together, like those of one offer.
Sample: TypeAlias = dict[str, Read]


class Samples:
    """What there is in a policy and its sites to try conditions on."""

    def __init__(self, governance: Governance, sites: SitesFile | None) -> None:
        self.governance, self.sites = governance, sites

    def of(self, *conditions: tuple[str, Expression]) -> Iterator[Sample]:
        """Combinations of all that these conditions, with their texts, read; bounded."""
        reads = {name for _, condition in conditions for name in condition.reads}
        texts = list(dict.fromkeys(text for _, condition in conditions for text in condition.texts))
        numbers = [float(n) for text, _ in conditions for n in re.findall(r"(?<![\w.])\d{1,12}(?:\.\d{1,6})?", text)]
        dimensions = [kept for dimension in self._dimensions(texts, numbers) if (kept := _only(dimension, reads))]
        yield from _combined(dimensions)

    def _dimensions(self, texts: Sequence[str], numbers: Sequence[float]) -> Iterator[list[Sample]]:
        classes = [rule.name for rule in self.governance.classes] or [*JOB_CLASSES, *texts]
        teams = [rule.team for rule in self.governance.teams] or list(texts)
        sets = list(self.sites.data) if self.sites else []
        models = [offer.gpu_model for _, offer in offers_of(self.sites.sites)] if self.sites else []
        profiles = [offer.mig_profile for _, offer in offers_of(self.sites.sites)] if self.sites else []
        homes = [site.id for site in self.sites.sites] if self.sites else list(texts)
        around = [number + step for number in numbers for step in (-1, -0.01, 0, 0.01, 1)]
        whole = sorted({int(number) for number in around})
        amounts = sorted({0.0, 1.0, 1e6, *around})
        yield _each("job.class", classes)
        yield [
            {"job.team": team, "team.name": team, "team.declared": team in [r.team for r in self.governance.teams]}
            for team in dict.fromkeys([*teams, OTHER_TEAM])
        ]
        yield _each("job.project", ["", *texts])
        yield _each("job.user", ["somebody", *texts])
        yield _each("job.gpus", [*WIDTHS, *(number for number in whole if number > 0)])
        yield _each("job.gpu_models", [[], *([name] for name in (*models, *texts))])
        yield _each("job.mig_profile", ["", *profiles, *texts])
        yield _each("job.priority", [-1000, 0, 1000, *(number for number in whole if abs(number) <= 1000)])
        for name in ("job.interruptible", "job.writes_checkpoints", "job.has_deadline"):
            yield _each(name, [True, False])
        yield _each("job.data", [[], *([item.id] for item in sets), *([text] for text in texts)])
        yield _each("job.data_classes", [[], *([item.data_class] for item in sets), *([text] for text in texts)])
        yield _each("job.output_gb", amounts)
        yield _each("job.home", ["", *homes])
        yield [{"job.has_cap": cap > 0, "job.cap": cap} for cap in amounts]
        yield from self._offers(texts, whole, amounts)
        for name in ("quote.cost", "quote.per_hour", "quote.hours", "quote.gpu_hours", "quote.start_minutes"):
            yield _each(name, amounts)

    def _offers(self, texts: Sequence[str], whole: Sequence[int], amounts: Sequence[float]) -> Iterator[list[Sample]]:
        """Those of the sites file; without one, whatever the condition could tell apart."""
        fields = (*OFFER, *SITE)
        if self.sites is not None:
            policy = Policy("samples", governance=self.governance)
            asked = [Candidate(JobSpec(1), site, offer, (), policy) for site, offer in offers_of(self.sites.sites)]
            yield [{field.name: field.read(asking) for field in fields} for asking in asked]
            return
        kinds: dict[str, Sequence[Any]] = {
            "text": ["another", *texts],
            "whole": [1, 8, *(number for number in whole if number >= 0)],
            "amount": amounts,
            "truth": [True, False],
        }
        for field in fields:
            yield _each(field.name, kinds[field.kind])


def _combined(dimensions: Sequence[Sequence[Sample]]) -> Iterator[Sample]:
    """All combinations, or so many of them, spread over all: neighbours are alike."""
    total = prod(len(dimension) for dimension in dimensions)
    step = max(1, total // MOST)
    while gcd(step, total) > 1 and step > 1:
        step += 1
    for number in range(min(total, MOST)):
        rest = number * step % total
        sample: Sample = {}
        for dimension in dimensions:
            rest, k = divmod(rest, len(dimension))
            sample |= dimension[k]
        yield sample


def _each(name: str, values: Iterable[Any]) -> list[Sample]:
    seen: dict[object, Read] = {tuple(v) if isinstance(v, list) else (type(v), v): v for v in values}
    return [{name: read} for read in seen.values()]


def _only(dimension: list[Sample], reads: set[str]) -> list[Sample]:
    """What is read of it, each difference once; empty if nothing is."""
    kept: dict[object, Sample] = {}
    for sample in dimension:
        part = {name: read for name, read in sample.items() if name in reads}
        if part:
            kept.setdefault(repr(part), part)
    return list(kept.values())
