"""Where `penstock assess` and `penstock pilot` read a history from: options, readers, and all of them joined."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.cli.clusters import reaches
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.assess.history import MonthHistory, SourceReading

F = TypeVar("F", bound=Callable[..., Any])
SOURCES: Final = "--csv, --sacct, --journal, --shadow, --kubeconfig or --prometheus"
NAMES: Final = ("tables", "sacct", "journals", "seen", "kubeconfig", "context", "prometheus")
BEFORE: Final = (
    click.option("--csv", "tables", multiple=True, metavar="FILE", help="A table of jobs; repeatable."),
    click.option("--column", "columns", multiple=True, metavar="FIELD=NAME",
                 help="For --csv: which column holds a field."),
    click.option("--sacct", multiple=True, metavar="FILE", help="What sacct --parsable2 printed; repeatable."),
    click.option("--journal", "journals", multiple=True, metavar="FILE", help="A journal of Penstock; repeatable."),
    click.option("--shadow", "seen", multiple=True, metavar="FILE", help="What shadow --keep wrote; repeatable."),
)  # fmt: skip
AFTER: Final = (
    click.option("--prometheus", metavar="URL", help="A Prometheus server with kube-state-metrics and DCGM."),
    click.option("--prometheus-token", metavar="FILE", help="Bearer token.  [default: $PENSTOCK_PROMETHEUS_TOKEN]"),
    click.option("--days", type=click.IntRange(1, 366), default=30, show_default=True,
                 help="How far back the cluster and Prometheus are asked."),
    click.option("--from", "since", metavar="TIME", help="Leave out what lies before, like 2026-10-01T00:00:00Z."),
    click.option("--until", metavar="TIME", help="The same for its end, and where the days end."),
    click.option("--time-zone", default="UTC", show_default=True, metavar="ZONE",
                 help="Of times without a zone, and of days."),
)  # fmt: skip


def reads(command: F) -> F:
    """Adds the options that name sources."""
    for option in reversed(AFTER):
        command = option(command)
    command = reaches(command)
    for option in reversed(BEFORE):
        command = option(command)
    return command


def named(how: dict[str, Any]) -> list[str]:
    """The sources that a person named."""
    return [name for name in NAMES if how[name]]


def joined_history(how: dict[str, Any], others: "Sequence[SourceReading]" = ()) -> "MonthHistory":
    from penstock.assess.join import join

    from_at, to_at = instant_of("--from", how["since"]), instant_of("--until", how["until"])
    if from_at is not None and to_at is not None and from_at >= to_at:
        raise BadInput(f"--from {how['since']} is not before --until {how['until']}.")
    return join([*others, *_readings(how)], from_at, to_at)


def check_currency(name: str) -> None:
    if not (name.isascii() and name.isupper() and len(name) == 3):
        raise BadInput(f"--currency '{name}' is no currency; write it like EUR.")


def _readings(how: dict[str, Any]) -> "Iterator[SourceReading]":
    from penstock.assess.sources.journal import read_journal
    from penstock.assess.sources.reading import zone_named
    from penstock.assess.sources.sacct import read_sacct
    from penstock.assess.sources.tables import read_table

    zone = zone_named(how["time_zone"])
    yield from (read_journal(where) for where in how["journals"])
    if how["kubeconfig"] or how["context"]:
        yield _of_cluster(how)
    if how["seen"]:
        from penstock.assess.sources.kubernetes import read_seen

        yield from (read_seen(path) for path in how["seen"])
    yield from (read_sacct(path, zone, bounded=bool(how["since"])) for path in how["sacct"])
    yield from (read_table(path, zone, _columns(how["columns"])) for path in how["tables"])
    if how["prometheus"]:
        yield _of_prometheus(how)


def _of_cluster(how: dict[str, Any]) -> "SourceReading":
    from penstock.assess.sources.kubernetes import read_cluster
    from penstock.cli.clusters import ask

    return ask(how, lambda cluster: read_cluster(cluster, how["namespace"], how["days"]))


def _of_prometheus(how: dict[str, Any]) -> "SourceReading":
    from time import time

    from penstock.assess.sources.prometheus import QUERIES, read_prometheus
    from penstock.assess.sources.promql import Prometheus, token_of
    from penstock.cli.terminal import progress
    from penstock.core.units import DAY, HOUR, SECOND

    to_at = instant_of("--until", how["until"]) or int(time() * SECOND)
    span = how["days"] * DAY
    server = Prometheus(how["prometheus"], token_of(how["prometheus_token"]))
    try:
        with progress(QUERIES * span // HOUR, "hours of metrics read") as advance:
            return read_prometheus(server, to_at - span, to_at, lambda ms: advance(ms // HOUR))
    finally:
        server.close()


def instant_of(option: str, text: str | None) -> int | None:
    from penstock.assess.sources.reading import from_text

    if not text:
        return None
    try:
        return from_text(text)
    except ValueError:
        raise BadInput(f"{option} '{text}' is no time with a zone; write it like 2026-11-01T00:00:00Z.") from None


def _columns(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise BadInput(f"--column {pair}: write it as FIELD=NAME, like submit=SubmitTime.")
    return {field: column for field, _, column in (pair.partition("=") for pair in pairs)}
