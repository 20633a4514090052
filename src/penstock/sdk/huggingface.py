"""Checkpoints and progress from the Trainer of Hugging Face, by one callback.

from penstock.sdk import huggingface

trainer = Trainer(model, args, callbacks=[huggingface.callback(every_s=300)], ...)
trainer.train(resume_from_checkpoint=huggingface.resume(args.output_dir))
"""

from pathlib import Path
from typing import Any

from penstock import sdk


def callback(every_s: float = 300) -> Any:
    """Reports each step; asks for a save when it is due, and when told to stop; whatever is saved is kept for us."""
    from transformers import TrainerCallback

    class Reports(TrainerCallback):  # type: ignore[misc]  # transformers is not there when types are checked
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - as they call it
            if state.is_world_process_zero:
                sdk.progress(state.global_step, of=state.max_steps)
            if sdk.due(every_s):
                control.should_save = True
            if sdk.stopping():
                control.should_training_stop = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - as they call it
            if state.is_world_process_zero:
                sdk.save(state.global_step, Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Reports()


def resume(output_dir: str) -> str | None:
    """For `resume_from_checkpoint`: the newest checkpoint in the output folder, or None to start from the beginning."""
    checkpoint = sdk.latest()
    return None if checkpoint is None else str(checkpoint.to(Path(output_dir) / f"checkpoint-{checkpoint.step}"))
