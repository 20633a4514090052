"""Parses one body after another in a process of its own; `parsing` starts it and asks it.

A body that takes too long or too much memory ends this process, and nobody else's. It reads a question from stdin, a
JSON header and the body, each after its length, and writes a JSON answer to stdout, after its length. It ends when
stdin does.
"""

import contextlib
import os
import resource
import signal
import struct
import sys
import traceback
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from penstock.config import SitesFile
from penstock.config.jobs import JobFile, parse_job, parse_json_job
from penstock.core.errors import BadFile, BadInput
from penstock.core.model.types import Site
from penstock.front.home_job_file import home_job_file

if TYPE_CHECKING:
    from penstock.policy.file import PolicyFile

MOST_CPU_SECONDS: Final = 2.0  #: for one body; the worst that is within all other limits takes a tenth of a second
MOST_MEMORY: Final = 1 << 30  #: bytes
POLITE: Final = 10  #: below the control plane: a parse never takes the processor from it
LENGTH: Final = struct.Struct("!I")


def main() -> None:
    os.nice(POLITE)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the control plane, which ends us
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while (header := read(asked)) is not None:
        raw = read(asked)
        if raw is None:
            return
        about = msgspec.json.decode(header)
        _prepare(about)
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS)
        answer = msgspec.json.encode(_answer(about, raw))
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(answers, answer)


def read(stream: IO[bytes]) -> bytes | None:
    """The next part; None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    part = stream.read(length)
    return part if len(part) == length else None


def write(stream: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        stream.write(LENGTH.pack(len(part)) + part)
    stream.flush()


def _prepare(header: dict[str, Any]) -> None:
    """Load what the parse needs before its time begins."""
    if "policy" in header:
        import penstock.policy.file
        import penstock.web.schemas  # noqa: F401 - `_policy` uses both


def _answer(header: dict[str, Any], raw: bytes) -> dict[str, Any]:
    try:
        return _policy(header, raw) if "policy" in header else {"file": _parsed(header, raw)}
    except BadFile as bad:
        return {"errors": bad.errors, "more": bad.more}
    except BadInput as bad:
        return {"says": str(bad)}
    except MemoryError:
        return {"says": "This needs too much memory to be read; leave out what is not part of it."}
    except Exception:  # noqa: BLE001 - whatever it is, the control plane logs it
        return {"bug": traceback.format_exc()}


def _parsed(header: dict[str, Any], raw: bytes) -> JobFile:
    if "home" in header:
        home_job = home_job_file(raw, header["home"], header["at"], header["known"])
        if home_job is not None:
            return home_job
    return (parse_json_job if header["json"] else parse_job)(raw, "The job")


def _policy(header: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """The body of `POST /v1/policy`: what it asks for, and the policy file in it; or what is wrong with the body."""
    from pydantic import ValidationError

    from penstock.policy.file import parse_policy
    from penstock.web.schemas import PolicyText

    try:
        asked = PolicyText.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return {"invalid": {"loc": ("body", *first["loc"]), "msg": first["msg"]}}
    sites = msgspec.convert(header["policy"], type=SitesOfPolicy)
    known = SitesFile(sites.currency, sites.sites, moved=sites.moved)
    return {"asked": asked.model_dump(), "policy": _short(parse_policy(asked.text.encode(), asked.name, known))}


class SitesOfPolicy(msgspec.Struct):
    """What of a sites file a policy file is checked against."""

    currency: str
    sites: tuple[Site, ...]
    moved: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, file: SitesFile) -> "SitesOfPolicy":
        return cls(file.currency, file.sites, file.moved)


def _short(policy: "PolicyFile") -> "PolicyFile":
    """Without its text, which the asker has, and with the lines of its first keys alone: `governed` needs no more."""
    return replace(policy, text="", lines=tuple(line for line in policy.lines if line[0].isidentifier()))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main()
