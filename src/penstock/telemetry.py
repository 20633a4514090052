"""Numbers for Prometheus, from the picture of the last step and the journal's counts. Served by `web` at /metrics.

Nothing is counted twice: what the journal knows is read when it is asked for; only requests are counted here.
docs/operations.md lists the names; a test compares.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.core.units import MICRO, SECOND
from penstock.journal import states
from penstock.journal.rows import JobCount
from penstock.live.view import SiteView, View

#: Seconds; answers are meant to take a few milliseconds, and a durable submit a few more.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

#: The alarm's kind, the metric and its help: of files that were not applied, and of what is in force instead of them.
OF_FILES: Final = (
    ("policy", "penstock_policy_rejected", "1 if the policy file or ConfigMap cannot be used as it is."),
    ("drift", "penstock_policy_drift", "1 if another policy is in force than the policy file or ConfigMap says."),
    ("sites", "penstock_sites_rejected", "1 if the sites file cannot be applied as it is."),
    ("sites drift", "penstock_sites_drift", "1 if other sites are in force than the sites file says."),
)


class Metrics:
    def __init__(
        self, view: Callable[[], View], ready: Callable[[], bool], counts: Callable[[], list[JobCount]]
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(SnapshotCollector(view, ready, counts))
        labels = ("route", "method", "status")
        self.requests = Counter("penstock_http_requests", "Answers given.", labels, registry=self.registry)
        self.seconds = Histogram(
            "penstock_http_seconds", "Time to answer.", ("route",), registry=self.registry, buckets=BUCKETS
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in ("GET", "POST", "PUT", "DELETE") else "other"  # a client may invent any
        known = (route, method, status)
        if known not in self._series:  # to look one up by its labels takes longer than to count
            self._series[known] = (self.requests.labels(route, method, str(status)), self.seconds.labels(route))
        requests, times = self._series[known]
        requests.inc()
        times.observe(seconds)

    def text(self) -> tuple[bytes, str]:
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class SnapshotCollector(Collector):
    """What there is now, in families of one name each."""

    def __init__(
        self, view: Callable[[], View], ready: Callable[[], bool], counts: Callable[[], list[JobCount]]
    ) -> None:
        self.view, self.ready, self.counts = view, ready, counts

    def describe(self) -> list[Metric]:
        return []  # the registry need not ask before there is anything to see

    def collect(self) -> Iterator[Metric]:
        view = self.view()
        yield _one("penstock_ready", "1 if submissions are taken.", self.ready())
        yield _one("penstock_paused", "1 if nothing new is started.", view.paused)
        yield _one("penstock_queued_jobs", "Jobs in the queue.", view.waiting)
        yield _one("penstock_running_attempts", "Attempts that are running.", view.running)
        yield _one("penstock_exposure", "Most that would be spent if Penstock died now.", view.exposure / MICRO)
        yield _one("penstock_alarms", "Things that a person should look at.", len(view.alarms))
        kinds = [alarm.kind for alarm in view.alarms]
        for kind, name, words in OF_FILES:
            yield _one(name, words, kind in kinds)
        yield _one("penstock_policy_revision", "The policy in force.", view.revision)
        yield _one("penstock_approvals_pending", "Jobs and caps that wait for a person.", _pending(view))
        asked = [request.request.at for request in view.approvals] + [wish.at for wish in view.raises]
        age = (view.at - min(asked)) / SECOND if asked else 0.0
        yield _one("penstock_approvals_oldest_seconds", "Age of the oldest unanswered request.", age)
        steps = CounterMetricFamily("penstock_steps", "Rows of the journal.")
        steps.add_metric([], view.number)
        yield steps
        yield from self._jobs(view)
        yield from _sites(view.sites)
        yield from _money(view)

    def _jobs(self, view: View) -> Iterator[Metric]:
        ended = CounterMetricFamily("penstock_jobs_ended", "Jobs that ended, by state.", labels=["state"])
        for phase, count in view.ended:
            ended.add_metric([states.job_state(phase)], count)
        yield ended
        jobs = GaugeMetricFamily("penstock_jobs", "Jobs by state and team.", labels=["state", "team"])
        for row in self.counts():
            jobs.add_metric([row.state, row.team], row.jobs)
        yield jobs


def _pending(view: View) -> int:
    return len(view.approvals) + len(view.raises)


def _one(name: str, text: str, number: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(number))


def _sites(sites: tuple[SiteView, ...]) -> Iterator[Metric]:
    reachable = GaugeMetricFamily("penstock_site_reachable", "1 if the site answers.", labels=["site"])
    gpus = GaugeMetricFamily("penstock_gpus", "GPUs by what they do.", labels=["site", "offer", "term", "state"])
    for site in sites:
        reachable.add_metric([site.id], site.reachable)
        for offer in site.offers:
            for state in ("busy", "starting", "idle", "lost"):
                gpus.add_metric([site.id, offer.offer.id, offer.offer.term, state], getattr(offer, state))
    yield reachable
    yield gpus


def _money(view: View) -> Iterator[Metric]:
    """This budget period's spend, holds and caps, in units of the currency."""
    labels = ["scope", "period"]
    spent = GaugeMetricFamily("penstock_budget_spent", "Charged so far.", labels=labels)
    held = GaugeMetricFamily("penstock_budget_held", "Promised and not yet charged.", labels=labels)
    cap = GaugeMetricFamily("penstock_budget_cap", "The most that may be spent.", labels=labels)
    for budget in view.budgets:
        if budget.period != view.period:
            continue
        spent.add_metric([budget.scope, budget.period], budget.spent / MICRO)
        held.add_metric([budget.scope, budget.period], budget.held / MICRO)
        if budget.cap is not None:
            cap.add_metric([budget.scope, budget.period], budget.cap / MICRO)
    yield from (spent, held, cap)
