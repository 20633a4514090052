"""The callbacks for Lightning and Hugging Face, with the real frameworks: opt-in, as they are gigabytes.

    .venv/bin/pip install torch lightning transformers accelerate
    .venv/bin/python -m pytest tests/sdk/test_frameworks.py

Where a framework is not installed its test is not there: a skip would be a failure with PENSTOCK_REQUIRE_ALL=1.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

LIGHTNING = """
import os, signal, sys, torch
from lightning.pytorch import LightningModule, Trainer
from penstock.sdk import lightning

class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        if self.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.DataLoader(torch.randn(20, 1), batch_size=2)
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
trainer = Trainer(max_epochs=2, accelerator="cpu", callbacks=[lightning.callback(every_s=3600)], **quiet)
trainer.fit(Line(), data, ckpt_path=lightning.resume())
print("ended at", trainer.global_step)
"""

HUGGING_FACE = """
import os, signal, sys, torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from penstock.sdk import huggingface

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x=None, labels=None):
        return {"loss": (self.layer(x) - labels).square().mean()}

class Warned(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)

data = [{"x": torch.randn(1), "labels": torch.randn(1)} for _ in range(20)]
args = TrainingArguments("out", max_steps=20, per_device_train_batch_size=2, use_cpu=True, report_to=[],
                         save_strategy="no", disable_tqdm=True)
trainer = Trainer(Line(), args, train_dataset=data, callbacks=[huggingface.callback(every_s=3600), Warned()])
trainer.train(resume_from_checkpoint=huggingface.resume("out"))
print("ended at", trainer.state.global_step)
"""

PROGRAMS = {
    name: program
    for name, program in (("lightning", LIGHTNING), ("transformers", HUGGING_FACE))
    if find_spec(name) is not None and find_spec("torch") is not None
}

if PROGRAMS:

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_a_training_told_to_stop_is_saved_and_goes_on_from_there(name: str, tmp_path: Path) -> None:
        env = {
            **os.environ,
            "PENSTOCK_REPORT": str(tmp_path / "report"),
            "PENSTOCK_CHECKPOINT_URL": (tmp_path / "kept").as_uri(),
        }
        first, second = tmp_path / "first", tmp_path / "second"
        assert "ended at 20\n" not in train(PROGRAMS[name], "7", first, env)  # Lightning then ends the program itself
        assert report(tmp_path)[-2:] == ["penstock: step 8 of 20", "penstock: checkpoint step 8"]
        assert "ended at 20\n" in train(PROGRAMS[name], "-1", second, env)
        resumed = report(tmp_path)[report(tmp_path).index("penstock: checkpoint step 8") + 1 :]
        assert resumed[0] == "penstock: step 9 of 20"
        assert "penstock: step 20 of 20" in resumed


def train(program: str, warned_at: str, folder: Path, env: dict[str, str]) -> str:
    """On another machine, as it were: nothing of the first run's folder is there."""
    folder.mkdir()
    command = [sys.executable, "-c", program, warned_at]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(folder: Path) -> list[str]:
    return (folder / "report").read_text().splitlines()
