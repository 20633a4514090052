"""The demo's ten jobs, as job files. `script` submits them in three waves, each after the one before has had its
effect.
"""

import sys
from typing import Any, Final

from penstock.core.values import value
from penstock.demo.train import STEP_S


@value
class Training:
    name: str
    team: str
    steps: int
    seed: int
    project: str = ""
    slack_s: int | None = None  # its deadline leaves this much beside its run
    deaf: bool = False  # takes no warning before a loss

    @property
    def run_s(self) -> int:
        """Expected run time: its steps, and a second to import and load."""
        return round(self.steps * STEP_S) + 1


#: These two fill what is owned; the third waits as long as waiting is cheaper, and then goes to spot.
FIRST: Final = (
    Training("resnet", "vision", 320, 1),
    Training("phonemes", "speech", 400, 2),
    Training("segments", "vision", 400, 3, deaf=True),
)
#: Short ones burst soon, as that costs little; the longer one waits for owned GPUs; the tryout has hardly any money.
SECOND: Final = (
    Training("digits", "speech", 160, 4),
    Training("tryout", "vision", 200, 5, project="tryouts"),
    Training("accents", "speech", 520, 6),
    Training("depth", "vision", 260, 7),
)
#: The last one must leave at once to be done in time; it is the longest, so it is still away when there is room again.
THIRD: Final = (
    Training("tones", "speech", 240, 8),
    Training("speakers", "speech", 240, 9),
    Training("transcripts", "speech", 720, 10, slack_s=3),
)


def job_file(training: Training) -> dict[str, Any]:
    """The job file, as a person would write it."""
    command = [
        sys.executable,
        "-m",
        "penstock.demo.train",
        "--steps",
        str(training.steps),
        "--seed",
        str(training.seed),
    ]
    job: dict[str, Any] = {
        "name": training.name,
        "team": training.team,
        "command": [*command, *(["--deaf", "--save-every", "4"] if training.deaf else [])],
        "gpus": 1,
        "run_time": f"{training.run_s}s",
        "checkpoint_every": "4s" if training.deaf else "2s",
        "restart": "500ms",
        "grace": "5s",
        "lease_max": "2m",
        # Ten small programs on a few cores: one thread each.
        "env": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    }
    if training.project:
        job["project"] = training.project
    if training.slack_s is not None:
        job["deadline"] = f"{training.run_s + training.slack_s}s"
    return job
