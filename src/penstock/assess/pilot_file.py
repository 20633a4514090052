"""The file of a pilot: which job, since when, and its baseline. `penstock pilot start` writes it, `report` reads it."""

from pathlib import Path

import msgspec

from penstock.assess.pilot_follow import PilotStart
from penstock.core.errors import BadInput


def write_pilot(path: str, start: PilotStart) -> None:
    """A pilot that was begun is not begun again: its baseline would be lost."""
    text = msgspec.json.format(msgspec.json.encode(start), indent=2) + b"\n"
    try:
        with open(path, "xb") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} already holds a pilot; remove it to begin anew, or name another --file.") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"Cannot write {path}: {getattr(error, 'strerror', None) or error}.") from None


def read_pilot(path: str) -> PilotStart:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=PilotStart)
    except FileNotFoundError:
        raise BadInput(f"There is no pilot in {path}; begin one with penstock pilot start.") from None
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise BadInput(f"{path} is no pilot that can be read: {getattr(error, 'strerror', None) or error}.") from None
