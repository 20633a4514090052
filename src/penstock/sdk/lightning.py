"""Checkpoints and progress from PyTorch Lightning, by one callback.

from penstock.sdk import lightning

trainer = Trainer(callbacks=[lightning.callback(every_s=300)])
trainer.fit(model, ckpt_path=lightning.resume())
"""

import tempfile
from pathlib import Path
from typing import Any

from penstock import sdk


def callback(every_s: float = 300) -> Any:
    """Reports each step; saves when it is due, and when told to stop, then ends the training."""
    from lightning.pytorch import Callback

    class Reports(Callback):  # type: ignore[misc]  # Lightning is not there when types are checked
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.is_global_zero:
                sdk.progress(trainer.global_step, of=int(trainer.estimated_stepping_batches))
            stop = trainer.strategy.reduce_boolean_decision(sdk.stopping(), all=False)  # any rank told, all stop
            if stop or trainer.strategy.broadcast(sdk.due(every_s)):
                _save(trainer)
            if stop:
                trainer.should_stop = True

    return Reports()


def _save(trainer: Any) -> None:
    """Every rank takes part in making it; one of them keeps it."""
    folder = trainer.strategy.broadcast(tempfile.mkdtemp(prefix="penstock-") if trainer.is_global_zero else "")
    trainer.save_checkpoint(Path(folder) / "model.ckpt")
    if trainer.is_global_zero:
        with tempfile.TemporaryDirectory() as done:
            path = Path(folder).rename(Path(done) / "saved")
            sdk.save(trainer.global_step, path)


def resume() -> str | None:
    """For `ckpt_path`: the newest checkpoint as a file here, or None to start from the beginning."""
    checkpoint = sdk.latest()
    if checkpoint is None:
        return None
    return str(checkpoint.to(Path(tempfile.mkdtemp(prefix="penstock-")) / "resume") / "model.ckpt")
