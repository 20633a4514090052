"""Replaces names by short keyed hashes, so that a report can be mailed. `penstock assess --redact` calls it.

Equal names get equal hashes within one report. The key is random and kept nowhere, so nobody can find a name by trying.
"""

import re
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from penstock.assess.history import Coverage, JobRecord, MonthHistory

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

    def coverage(self, cover: Coverage) -> Coverage:
        """What a server said may hold names of hosts and accounts: it is left out of the sentence."""
        return replace(
            cover,
            source=self.source(cover.source),
            missing=tuple(re.sub(r":\s.*", ": (redacted).", words, flags=re.DOTALL) for words in cover.missing),
        )
