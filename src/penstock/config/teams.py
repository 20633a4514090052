"""What each team may use: namespaces, projects, classes, priorities, and how much of the queue and the journal.
`live/admission` decides by it.
"""

from collections.abc import Sequence
from typing import Final

from penstock.config.document import Document, unknown
from penstock.config.sections import TeamSection
from penstock.core.units import GB
from penstock.core.values import value

NO_DOOR: Final = "there is no site with 'front_door: true', and no Kueue, named"


@value
class Team:
    """The defaults also hold for a team that the file does not name."""

    name: str
    namespaces: tuple[str, ...] = ()  # NAMESPACE or SITE/NAMESPACE, whose Jobs are booked to it
    projects: tuple[str, ...] = ()  # that its jobs may be booked to, too
    classes: tuple[str, ...] | None = None  # None: all that the policy declares
    highest_priority: int = 1_000
    queued_jobs: int = 10_000  # at most, members of arrays counted
    journal_bytes: int = 2 * GB  # a day, of what its members ask for


def teams_of(rows: Sequence[TeamSection], doors: Sequence[str], page: Document) -> tuple[Team, ...]:
    for k, row in enumerate(rows):
        page.attempt(_check_namespaces, row, f"teams[{k}].namespaces", doors, page)
    return tuple(page.attempt(_team, row) for row in rows)


def _team(row: TeamSection) -> Team:
    return Team(
        name=str(row.name),
        namespaces=tuple(str(path) for path in row.namespaces),
        projects=tuple(str(project) for project in row.projects),
        classes=None if row.classes is None else tuple(str(name) for name in row.classes),
        highest_priority=int(row.highest_priority),
        queued_jobs=int(row.queued_jobs),
        journal_bytes=int(row.journal_per_day),
    )


def _check_namespaces(row: TeamSection, place: str, doors: Sequence[str], page: Document) -> None:
    for i, path in enumerate(row.namespaces):
        site = path.rpartition("/")[0]
        if site and site not in doors:
            page.report(f"{place}[{i}]", unknown(NO_DOOR, site, doors))
