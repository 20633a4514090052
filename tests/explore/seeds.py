"""One seed of the explorer: its month is driven, and made smaller if it breaks a rule."""

import tempfile
from pathlib import Path

from tests.explore import living
from tests.explore.drive import run
from tests.explore.months import Month, dumped, month
from tests.explore.shrink import shrunk
from tests.explore.unequal import uneven

FOLDER = Path(__file__).resolve().parents[2] / "build" / "explore"
#: Of so many months one is also driven without anybody who wakes the engine: the decisions must be the same.
COMPARED = 8


def tried(seed: int) -> tuple[int, str, str]:
    """The digest of what was decided, and how the month breaks a rule, with the file that shows it."""
    try:
        return seed, lived(uneven(month(seed))), ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return seed, "broken", kept(seed, error)


def tried_live(seed: int) -> tuple[int, str, str]:
    """The same through the live loop, with kills. A month is not made smaller there: each try takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return seed, str(living.lived(month(seed), Path(folder))), ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            return seed, "broken", f"{type(error).__name__}: {str(error)[:300]}"


def lived(one: Month) -> str:
    digest = run(one)
    if one.wakes_permille and one.seed % COMPARED == 0 and run(one, woken=False) != digest:
        raise AssertionError("who wakes the engine changes what it decides")
    return digest


def kept(seed: int, error: Exception) -> str:
    name = named(error)
    small = shrunk(uneven(month(seed)), breaks)
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{seed}.json"
    file.write_text(dumped(small, f"{type(error).__name__}: {error}"), "utf-8")
    return f"{name}: {str(error)[:200]}; made smaller, {len(small.jobs)} jobs: {file}"


def breaks(one: Month) -> str:
    try:
        lived(one)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return named(error)
    return ""


def named(error: Exception) -> str:
    """The rule, without what it is about."""
    words = str(error).split(":")[0]
    return f"{type(error).__name__} {''.join(' ' if sign.isdigit() else sign for sign in words)[:60].split(' s ')[0]}"
