"""Replaces names by short keyed hashes, so that a report can be mailed. `penstock assess --redact` calls it.

Equal names get equal hashes within one report. The key is random and kept nowhere, so nobody can find a name by trying.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from penstock.assess.history import Coverage, JobRecord, MonthHistory
from penstock.core.model.types import Offer, Site, TransientCluster

#: What readers call themselves; everything after it is a name.
KINDS: Final = ("csv", "sacct", "journal", "shadow", "cluster", "Prometheus", "generated")


def redact(history: MonthHistory, key: bytes) -> MonthHistory:
    hashed = _Hashed(key)
    return replace(
        history,
        jobs=tuple(hashed.job(job) for job in history.jobs),
        use=tuple(replace(row, team=hashed.name(row.team)) for row in history.use),
        coverage=tuple(hashed.coverage(cover) for cover in history.coverage),
        disagreements=tuple(
            replace(
                row,
                kept=hashed.source(row.kept),
                other=hashed.source(row.other),
                example=hashed.name(row.example),
            )
            for row in history.disagreements
        ),
        manifests=(),
    )


def redact_sites(sites: Iterable[Site], key: bytes) -> tuple[Site, ...]:
    """What could be rented, without the names of sites, offers, operators, labels, teams and the file. What everybody
    knows stays: clouds, regions, countries, GPUs and prices.
    """
    hashed = _Hashed(key)
    return tuple(hashed.site(site) for site in sites)


class _Hashed:
    def __init__(self, key: bytes) -> None:
        self.key = key

    def name(self, text: str) -> str:
        """Nothing stays nothing: it says that a name is not known."""
        return blake2b(text.encode(), key=self.key, digest_size=4).hexdigest() if text else ""

    def source(self, text: str) -> str:
        """The kind of a source stays, its file, host or context does not."""
        return " + ".join(self._one_source(source) for source in text.split(" + "))

    def _one_source(self, text: str) -> str:
        kind, _, which = text.partition(" ")
        if kind not in KINDS:  # a part of a file's name that has a plus in it
            return self.name(text)
        return f"{kind} {self.name(which)}" if which else kind

    def job(self, job: JobRecord) -> JobRecord:
        return replace(
            job,
            id=self.name(job.id),
            source=self.source(job.source),
            name=self.name(job.name),
            team=self.name(job.team),
            user=self.name(job.user),
            key=self.name(job.key),
            uid=self.name(job.uid),
            volumes=None if job.volumes is None else tuple(map(self.name, job.volumes)),
            data=None if job.data is None else tuple(map(self.name, job.data)),
            priority=None if job.priority is None else self.name(job.priority),
        )

    def site(self, site: Site) -> Site:
        cluster = site.cluster
        return replace(
            site,
            id=self.name(site.id),
            offers=tuple(map(self.offer, site.offers)),
            operator=self.name(site.operator),
            has=tuple(map(self.name, site.has)),
            only=self.name(site.only),
            cluster=None if cluster is None else self.cluster(cluster),
        )

    def offer(self, offer: Offer) -> Offer:
        (site, _, name), warm = offer.id.partition("/"), offer.warm
        return replace(
            offer,
            id=f"{self.name(site)}/{self.name(name)}",
            site=self.name(offer.site),
            has=tuple(map(self.name, offer.has)),
            closed="closed" if offer.closed else "",
            warm=None if warm is None else replace(warm, scopes=_nobodys(warm.scopes), source=""),
        )

    def cluster(self, cluster: TransientCluster) -> TransientCluster:
        site, _, name = cluster.offer.id.partition("/")  # the name is ours, and the same at every site
        offer = replace(self.offer(cluster.offer), id=f"{self.name(site)}/{name}")
        return replace(cluster, offer=offer, scopes=_nobodys(cluster.scopes), source="")

    def coverage(self, cover: Coverage) -> Coverage:
        """What a server said may hold names of hosts and accounts: it is left out of the sentence."""
        return replace(
            cover,
            source=self.source(cover.source),
            missing=tuple(re.sub(r":\s.*", ": (redacted).", words, flags=re.DOTALL) for words in cover.missing),
        )


def _nobodys(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Who pays, without the team's name."""
    return tuple(scope for scope in scopes if scope == "org")
