"""A job of `bench.kill` that bears witness: to when it ran, to what it printed, and to whoever ran beside it.

    python -I -S witness.py FOLDER KEY STEPS STEP_MS

The standard library only, and as little of it as will do. For each run it appends to FOLDER/KEY a line of JSON when it
begins, at each printed line, and when it ends; the file's lock tells whether another run of the same job lives.
"""

import fcntl
import json
import os
import signal
import sys
import time

stopping = False


def main(folder: str, key: str, steps: int, step_ms: int) -> int:
    signal.signal(signal.SIGTERM, _told)
    file = os.open(f"{folder}/{key}", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    tell(file, "began", alone=alone(file), job=os.environ["PENSTOCK_JOB"])
    done = _checkpoint()
    for number, step in enumerate(range(done, steps), 1):
        time.sleep(step_ms / 1000)
        print(f"line {number}", flush=True)
        tell(file, "line", number=number)
        if (step + 1) % 5 == 0 or stopping or step + 1 == steps:
            _save(step + 1)
        print(f"penstock: step {step + 1} of {steps}", flush=True)
        if stopping and step + 1 < steps:
            tell(file, "stopped", step=step + 1)
            return 1
    tell(file, "finished", step=steps)
    return 0


def alone(file: int) -> bool:
    """The lock goes with the process, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def tell(file: int, what: str, **more: object) -> None:
    entry = {"what": what, "at": int(time.time() * 1000), "attempt": os.environ["PENSTOCK_ATTEMPT"], **more}
    os.write(file, (json.dumps(entry) + "\n").encode())


def _told(*_: object) -> None:
    global stopping  # noqa: PLW0603 - all that a signal can do
    stopping = True


def _shelf() -> str:
    return os.environ["PENSTOCK_CHECKPOINT_URL"].removeprefix("file://") + "/step"


def _checkpoint() -> int:
    try:
        with open(_shelf(), encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def _save(step: int) -> None:
    with open(_shelf() + ".new", "w", encoding="ascii") as file:
        file.write(str(step))
    os.replace(_shelf() + ".new", _shelf())
    print(f"penstock: checkpoint step {step}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
