"""A small real training for a pod with nothing but Python and `penstock.sdk`: it learns the weights of a linear model.

    python pod.py --steps 600 --seed 3

Only sums and products, so that every machine gets the same numbers to the last bit: a run that was lost and resumed and
moved must end with the very result of one that was left alone. Put into a ConfigMap, as people do with small scripts.
"""

import argparse
import hashlib
import json
import random
import time

from penstock import sdk

WIDTH = 16
RATE = 0.02
STEP_S = 0.05


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=float, default=2.0, help="seconds")
    parser.add_argument("--pace", type=float, default=STEP_S, help="seconds that a step takes at least")
    asked = parser.parse_args()
    checkpoint = sdk.latest()
    first, weights = (checkpoint.step, json.loads(checkpoint.read())) if checkpoint else (0, [0.0] * WIDTH)
    print(f"begins at step {first} of {asked.steps} as {sdk.attempt()}", flush=True)
    for step in range(first + 1, asked.steps + 1):
        began = time.monotonic()
        loss = train(weights, asked.seed, step)
        time.sleep(max(0.0, began + asked.pace - time.monotonic()))
        print(f"step {step} of {asked.steps} loss {loss:.6f} at {time.time():.3f}", flush=True)
        sdk.progress(step, of=asked.steps)
        if sdk.due(every_s=asked.save_every) and step < asked.steps:
            sdk.save(step, json.dumps(weights).encode())
            if sdk.stopping():
                return
    print(f"result {digest(weights)}", flush=True)


def train(weights: list[float], seed: int, step: int) -> float:
    """One step of gradient descent on the squared error; the error before it."""
    chance, loss = random.Random(f"{seed}/{step}"), 0.0
    for _ in range(32):
        point = [chance.random() - 0.5 for _ in weights]
        wrong = 0.0
        for k, x in enumerate(point):  # one by one: `sum` rounds otherwise from Python 3.12 on
            wrong += (weights[k] - (k - WIDTH / 2)) * x
        loss += wrong * wrong / 32
        for k, x in enumerate(point):
            weights[k] -= RATE * wrong * x
    return loss


def digest(weights: list[float]) -> str:
    return hashlib.sha256(json.dumps(weights).encode()).hexdigest()


if __name__ == "__main__":
    main()
