"""Parses the job file: YAML or JSON with human units. docs/jobs.md explains every key.

`read_job` returns the core's values, or raises a `BadFile` with every error by file, line and key. The CLI parses the
YAML, checks it, and sends its keys as JSON, so that a typing error needs no server. The API checks them again, because
clients need not be our CLI.
"""

import json
import math
import re
import types
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec

from penstock.config.convert import Section, converted, keys_of
from penstock.config.document import MOST_DEPTH, UNREAD, Document, plain, read_bytes, shown
from penstock.config.scalars import (
    SCALARS,
    Amount,
    Copies,
    Duration,
    Flag,
    Interval,
    JobGpus,
    Name,
    Priority,
    Profile,
    Size,
    Text,
    Word,
)
from penstock.core.model.types import GpuChoice, JobSpec
from penstock.core.units import MICRO, MOST_COPIES, MOST_GPUS_ASKED, PERMILLE, Millis
from penstock.core.values import value

MOST_PARTS: Final = 1_000  #: words of a command, variables
MOST_NODES: Final = 6_000  #: words, lists and groups of keys: as many as a job with all its parts has
NEEDS: Final = "'command' and 'gpus' (docs/jobs.md shows how)"


class GpuSection(Section, frozen=True):
    model: Text
    speed: Amount | None = None


class WidthSection(Section, frozen=True):
    gpus: JobGpus
    speed: Amount


class JobSection(Section, frozen=True):
    command: tuple[Word, ...]
    gpus: JobGpus
    name: Text | None = None
    team: Name | None = None
    project: Name | None = None
    job_class: Name = msgspec.field(name="class", default=Name("training"))
    priority: Priority = Priority(0)
    gpu: tuple[GpuSection, ...] = ()
    gpu_order: Flag = Flag(False)
    mig: Profile | None = None
    scaling: tuple[WidthSection, ...] = ()
    run_time: Interval | None = None
    checkpoint_every: Interval | None = None
    interruptible: Flag = Flag(True)
    grace: Duration | None = None
    restart: Duration = Duration(0)
    deadline: Interval | None = None
    penalty_per_hour: Amount = Amount(0)
    lease_max: Interval | None = None
    cap: Amount | None = None
    data: tuple[Name, ...] = ()
    data_class: Name | None = None
    output: Size | None = None
    count: Copies = Copies(1)
    env: dict[str, Word] = msgspec.field(default_factory=dict)
    folder: Word | None = None
    image: Text | None = None


@value
class JobFile:
    """A job as requested. User and time of submission are not in the file."""

    spec: JobSpec
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""  # the working directory; empty: its own folder
    image: str = ""  # the container image for clusters
    deadline_ms: Millis | None = None  # from the submission on
    team: str = ""  # empty: the token's team


def parse_job(raw: bytes, name: str) -> JobFile:
    """What the YAML says; `name` stands for the file in errors."""
    page = Document(name)
    return page.whole(lambda: _job(plain(raw, page, "job file", NEEDS, MOST_NODES), page))


def parse_json_job(raw: bytes, name: str) -> JobFile:
    page = Document(name)
    return page.whole(lambda: _job(plain_json(raw, page), page))


def job_body(path: str) -> dict[str, Any]:
    """A job file's keys, checked, for the API; its folder becomes an absolute path."""
    page, raw = Document(path), read_bytes(path)
    return page.whole(lambda: _body(plain(raw, page, "job file", NEEDS, MOST_NODES), page, Path(path).parent))


def check_body(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The same for keys that are not from a file."""
    page = Document(name)
    return page.whole(lambda: _body(body, page, Path()))


def _body(body: object, page: Document, around: Path) -> dict[str, Any]:
    if isinstance(body, dict) and isinstance(body.get("folder"), str):
        body = {**body, "folder": str((around / body["folder"]).absolute())}
    _job(body, page)
    assert isinstance(body, dict)
    return body


def _job(body: object, page: Document) -> JobFile:
    row = converted(_long_form(body), JobSection, page)
    _check(row, page)
    return JobFile(
        spec=_spec(row),
        command=tuple(str(word) for word in row.command),
        env=tuple((key, str(text)) for key, text in row.env.items()),
        folder=str(row.folder or ""),
        image=str(row.image or ""),
        deadline_ms=None if row.deadline is None else int(row.deadline),
        team=str(row.team or ""),
    )


def spec_of(keys: object, page: Document, place: str) -> JobSpec:
    """The request that a job's keys in another file stand for: no command is needed, and one GPU is the default."""
    keys = {"command": ["true"], "gpus": "1", **keys} if isinstance(keys, dict) else keys
    row = converted(_long_form(keys), JobSection, page, place)
    for check in (_check_sizes, _check_models, _check_widths):
        page.attempt(check, row, page)
    deadline_at = None if row.deadline is None else int(row.deadline)
    return replace(_spec(row), team=str(row.team or USUAL.team), deadline_at=deadline_at)


def plain_json(raw: bytes, page: Document) -> object:
    """As `document.plain`, for JSON: scalars stay text until their key gives them a type."""
    try:
        body: object = json.loads(
            raw, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=lambda pairs: _once(pairs, page)
        )
        if len(raw) > MOST_NODES or raw.count(b"[") + raw.count(b"{") > MOST_DEPTH:  # fewer bytes cannot exceed them
            _check_bounds(body, page)
        plain_words = b"true" not in raw and b"false" not in raw and b"\0" not in raw  # zero bytes: UTF-16
        return body if plain_words else _texts(body)
    except UnicodeDecodeError:
        page.fail(None, "not UTF-8 text; send it as UTF-8")
    except json.JSONDecodeError as error:
        page.fail(None, f"not JSON ({error.msg}, line {error.lineno}, column {error.colno})")
    except RecursionError:
        page.fail(None, "nested too deeply for a job file")


def _check_bounds(body: object, page: Document) -> None:
    """As of a YAML file; without recursion, since it may be as deep as Python's parser goes."""
    level, depth, nodes = [body], 0, 1
    while level and nodes <= MOST_NODES and depth <= MOST_DEPTH:
        insides = [
            list(item.values()) if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)
        ]
        nodes += sum(len(inside) for inside in insides)
        level, depth = [item for inside in insides for item in inside] if nodes <= MOST_NODES else [], depth + 1
    if nodes > MOST_NODES:
        page.fail(None, f"more than {MOST_NODES:,} words, lists and keys; this cannot be a job file")
    if level:
        page.fail(None, "nested too deeply for a job file")


def _once(pairs: list[tuple[str, object]], page: Document) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                page.report("", f"the key {shown(key)} is there twice")
    return table


def _texts(content: object) -> object:
    if isinstance(content, dict):
        return {key: _texts(inner) for key, inner in content.items()}
    if isinstance(content, list):
        return [_texts(inner) for inner in content]
    return {True: "true", False: "false"}[content] if isinstance(content, bool) else content


def _long_form(body: object) -> object:
    """Expand short forms: a command as one shell line, one GPU model instead of a list."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    if isinstance(body.get("command"), str):
        body["command"] = ["sh", "-c", body["command"]]
    gpu = body.get("gpu")
    if isinstance(gpu, str | dict):
        gpu = [gpu]
    if isinstance(gpu, list):
        body["gpu"] = [{"model": choice} if isinstance(choice, str) else choice for choice in gpu]
    return body


def _check(row: JobSection, page: Document) -> None:
    """Checks between keys; each by itself, so that all are made."""
    for check in (_check_command, _check_sizes, _check_env, _check_models, _check_folder, _check_widths):
        page.attempt(check, row, page)


def _check_command(row: JobSection, page: Document) -> None:
    if not row.command or not row.command[0]:
        page.report("command", "it is empty; write what to run, like [python, train.py]")


def _check_sizes(row: JobSection, page: Document) -> None:
    parts = (("command", row.command), ("env", row.env))
    sizes = [(place, len(part)) for place, part in parts if part is not UNREAD]
    for place, size in sizes:
        if size > MOST_PARTS:
            page.report(place, f"{size:,} are too many; at most {MOST_PARTS:,}")
    page.attempt(_check_gpus, row, page)


def _check_gpus(row: JobSection, page: Document) -> None:
    asked = row.gpus * row.count
    if asked > MOST_GPUS_ASKED:
        page.report(
            "gpus",
            f"{asked:,} GPUs for {row.count:,} jobs are too many for one submission; at most {MOST_GPUS_ASKED:,}",
        )


def _check_env(row: JobSection, page: Document) -> None:
    for key in row.env:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,199}", key):
            page.report("env", f"{shown(key)} is not a name of a variable: letters, digits and '_', no digit first")
        if key.startswith("PENSTOCK_"):
            page.report(f"env.{key}", "variables that begin with PENSTOCK_ are set by Penstock; choose another name")


def _check_models(row: JobSection, page: Document) -> None:
    for k, choice in enumerate(row.gpu):
        page.attempt(_check_speed, choice, page, f"gpu[{k}].speed")
    if row.gpu_order and len(row.gpu) < 2:
        page.report("gpu_order", "an order of preference needs several models under 'gpu'")


def _check_speed(choice: GpuSection, page: Document, place: str) -> None:
    if choice.speed is not None and not MICRO > choice.speed * PERMILLE >= 1:
        page.report(place, "a speed is against the model the run time is for: 1 as fast, 0.5 half")


def _check_folder(row: JobSection, page: Document) -> None:
    if row.folder is not None and not row.folder.startswith("/"):
        page.report("folder", f"{shown(row.folder)} must begin with /; the site does not know where you are")


def _check_widths(row: JobSection, page: Document) -> None:
    gpus, fastest = int(row.gpus), PERMILLE
    for k, wide in enumerate(row.scaling):
        speed = int(wide.speed * PERMILLE)
        if wide.gpus <= gpus or not fastest <= speed <= 1_000 * PERMILLE:
            page.report(f"scaling[{k}]", "widths rise from 'gpus' on, and so do their speeds, from 1 on")
        gpus, fastest = int(wide.gpus), speed


USUAL: Final = JobSpec(1)


def _spec(row: JobSection) -> JobSpec:
    return JobSpec(
        gpus=int(row.gpus),
        expected_run_ms=None if row.run_time is None else int(row.run_time),
        checkpoint_every_ms=None if row.checkpoint_every is None else int(row.checkpoint_every),
        name=str(row.name or ""),
        project=str(row.project or ""),
        job_class=str(row.job_class),
        priority=int(row.priority),
        gpu_models=tuple(GpuChoice(str(choice.model), _permille(choice.speed)) for choice in row.gpu),
        models_ordered=bool(row.gpu_order),
        mig_profile=str(row.mig or ""),
        scaling=tuple((int(wide.gpus), _permille(wide.speed)) for wide in row.scaling),
        interruptible=bool(row.interruptible),
        penalty_per_hour=math.ceil(row.penalty_per_hour * MICRO) if row.penalty_per_hour else 0,
        data=tuple(str(name) for name in row.data),
        data_class=str(row.data_class or ""),
        output_bytes=int(row.output or 0),
        cap=None if row.cap is None else int(row.cap * MICRO),
        grace_ms=USUAL.grace_ms if row.grace is None else int(row.grace),
        restart_ms=int(row.restart),
        lease_max_ms=USUAL.lease_max_ms if row.lease_max is None else int(row.lease_max),
        count=int(row.count),
    )


def _permille(speed: Amount | None) -> int:
    return PERMILLE if speed is None else int(speed * PERMILLE)


# --- for the API's description ---------------------------------------------------------------------------------------

NUMBER: Final[dict[str, Any]] = {"type": "number", "minimum": 0}
SPAN: Final[dict[str, Any]] = {"type": "string", "pattern": "^[1-9][0-9]{0,3}[smh]$"}
#: How each scalar is best written in JSON. More is understood: `"2"` is 2, and `1h30m` a duration.
IN_JSON: Final[dict[type, dict[str, Any]]] = {
    Amount: NUMBER,
    JobGpus: {"type": "integer", "minimum": 1, "maximum": MOST_GPUS_ASKED},
    Copies: {"type": "integer", "minimum": 1, "maximum": MOST_COPIES},
    Priority: {"type": "integer", "minimum": -1000, "maximum": 1000},
    Flag: {"type": "boolean"},
    Duration: SPAN,
    Interval: SPAN,
    Size: {"type": "string", "pattern": "^[1-9][0-9]{0,3}[MGT]B$"},
    Name: {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"},
    Profile: {"type": "string", "pattern": "^[1-7]g[.][1-9]0gb$"},
}


def json_schema() -> dict[str, Any]:
    """A job file as JSON Schema, whole: nothing in it refers to elsewhere."""
    schema = _object(JobSection)
    keys = schema["properties"]
    keys["command"] = {"anyOf": [keys["command"], {"type": "string", "description": "A line for the shell."}]}
    keys["gpu"] = {"anyOf": [keys["gpu"], {"type": "string", "description": "One model."}]}
    return schema


def _object(row: type[Section]) -> dict[str, Any]:
    keys = keys_of(row)
    return {
        "type": "object",
        "properties": {name: _schema(key.hint) for name, key in keys.items()},
        "required": [name for name, key in keys.items() if key.required],
        "additionalProperties": False,
    }


def _schema(hint: Any) -> dict[str, Any]:
    args = [arg for arg in get_args(hint) if arg not in (type(None), ...)]
    match get_origin(hint):
        case None if issubclass(hint, Section):
            return _object(hint)
        case None:
            return {"type": "string", **IN_JSON.get(hint, {}), "description": SCALARS[hint][0]}
        case types.UnionType:
            return _schema(args[0])
        case origin if origin is tuple:
            return {"type": "array", "items": _schema(args[0])}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": _schema(args[1])}
        case _:
            return {"enum": args}
