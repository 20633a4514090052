"""A small real training, as the demo's jobs run it: a network of two layers learns which of two moons a point is on.

    python -m penstock.demo.train --steps 300 --seed 3

It keeps checkpoints and reports through `penstock.sdk`, as any job would. A step is a real one, but sleeps for the rest
of its 50 ms, so that ten of these fit on two cores and each takes as long as its number of steps says.
"""

import argparse
import io
import signal
import time
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock import sdk

STEP_S: Final = 0.05
BATCH: Final = 64
WIDTH: Final = 32
RATE: Final = 0.3

Array: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = dict[str, Array]


def main() -> None:
    asked = _asked()
    if asked.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    checkpoint = sdk.latest()
    weights = _load(checkpoint.read()) if checkpoint else _new(asked.seed)
    first = checkpoint.step if checkpoint else 0
    print(f"begins at step {first} of {asked.steps} as {sdk.attempt()}", flush=True)
    saved = time.monotonic()
    for step in range(first + 1, asked.steps + 1):
        began = time.monotonic()
        loss = train(weights, *moons(asked.seed, step))
        time.sleep(max(0.0, began + STEP_S - time.monotonic()))
        # The machine's steady clock: with it the demo sees whether two attempts ever worked at once.
        print(f"step {step} of {asked.steps} loss {loss:.4f} at {time.monotonic():.3f}", flush=True)
        sdk.progress(step, of=asked.steps)
        stopping = not asked.deaf and sdk.stopping()
        if stopping or time.monotonic() - saved >= asked.save_every:
            sdk.save(step, _dump(weights))
            saved = time.monotonic()
        if stopping and step < asked.steps:
            return


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=float, default=2.0, help="seconds")
    parser.add_argument("--deaf", action="store_true", help="take no warning: work until killed")
    return parser.parse_args()


def moons(seed: int, step: int) -> tuple[Array, Array]:
    """A batch of points on two half circles, with noise; of one step always the same."""
    chance = np.random.default_rng((seed, step))
    angle, which = chance.uniform(0, np.pi, BATCH), chance.integers(0, 2, BATCH)
    sign = 1 - 2 * which
    points = np.stack([np.cos(angle) * sign + which, np.sin(angle) * sign + which * 0.5], axis=1)
    return points + chance.normal(0, 0.15, points.shape), which.astype(np.float64)


def train(weights: Weights, points: Array, labels: Array) -> float:
    """One step of gradient descent on the cross-entropy; the loss before it."""
    hidden = np.tanh(points @ weights["in"] + weights["bias"])
    predicted = 1 / (1 + np.exp(-(hidden @ weights["out"])))
    wrong = (predicted - labels) / len(labels)
    back = np.outer(wrong, weights["out"]) * (1 - hidden**2)
    weights["out"] -= RATE * (hidden.T @ wrong)
    weights["in"] -= RATE * (points.T @ back)
    weights["bias"] -= RATE * back.sum(axis=0)
    sure = np.clip(np.where(labels == 1, predicted, 1 - predicted), 1e-9, 1)
    return float(-np.log(sure).mean())


def _new(seed: int) -> Weights:
    chance = np.random.default_rng(seed)
    return {"in": chance.normal(0, 1, (2, WIDTH)), "bias": np.zeros(WIDTH), "out": chance.normal(0, 0.1, WIDTH)}


def _dump(weights: Weights) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **weights)
    return file.getvalue()


def _load(packed: bytes) -> Weights:
    with np.load(io.BytesIO(packed)) as arrays:
        return {name: arrays[name] for name in arrays.files}


if __name__ == "__main__":
    main()
