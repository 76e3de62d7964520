"""Trains for so many steps, at the pace of the GPU that it pretends to have.

The program checkpoints when it is told to stop, and goes on from there on whatever node is next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from eva_iterator import EvaIterator, latest_checkpoint

STEPS = int(os.environ.get("STEPS", "800"))
SPEEDS = os.environ.get("SPEEDS", "v100=20 k80=5")
"""Steps per second by family, as `throughput` in the job file states them."""


def pace() -> float:
    """Seconds per step on this node."""
    speeds = dict(word.split("=") for word in SPEEDS.split())
    return 1 / float(speeds[os.environ.get("GPU", "v100")])


class Training:
    """A stand-in for weights: the number of steps made."""

    def __init__(self, step: int) -> None:
        self.step = step

    def steps_left(self) -> Iterator[int]:
        """The steps that are still to be made."""
        yield from range(self.step, STEPS)

    def save(self, directory: Path) -> None:
        """Write down how far it has come."""
        (directory / "step").write_text(str(self.step))


def main() -> None:
    """Train, from the newest checkpoint on."""
    newest = latest_checkpoint()
    training = Training(int((newest / "step").read_text()) if newest else 0)
    if newest:
        print(f"resumed at step {training.step}", flush=True)
    step_s, first = pace(), training.step
    for number in EvaIterator(
        training.steps_left(), total=STEPS - first, checkpoint=training.save, checkpoint_every_s=2
    ):
        time.sleep(step_s)
        training.step = number + 1
        if training.step % 20 == 0:
            print(f"step {training.step}", flush=True)
    if training.step == STEPS:
        print(f"done: {training.step} steps", flush=True)


if __name__ == "__main__":
    main()
