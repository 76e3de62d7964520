"""Pretends to train: sleeps through its steps, and reports a loss that falls; goes on after stops.

Environment: STEPS, STEP_S (seconds of a step), FAIL_AT (exits with 3 at this step).
"""

from __future__ import annotations

import math
import os
import random
import time
from pathlib import Path

from eva_iterator import EvaIterator, latest_checkpoint, report

STEPS = int(os.environ.get("STEPS", "100000"))
STEP_S = float(os.environ.get("STEP_S", "0.25"))
FAIL_AT = int(os.environ.get("FAIL_AT", "0"))


def main() -> None:
    """Train."""
    newest = latest_checkpoint()
    step = int((newest / "step").read_text()) if newest else 0
    noise = random.Random(step)
    print(f"attempt {os.environ['EVA_ATTEMPT']}: step {step} of {STEPS}", flush=True)

    def save(directory: Path) -> None:
        (directory / "step").write_text(str(step))

    steps = range(step + 1, STEPS + 1)
    for number in EvaIterator(steps, checkpoint=save, checkpoint_every_s=2):
        time.sleep(STEP_S)
        step = number
        loss = 0.25 + 2.2 * math.exp(-step / 150) + noise.gauss(0, 0.03)
        report(loss=loss, accuracy=1 - loss / 3)
        if step % 10 == 0:
            print(f"step {step:>6}  loss {loss:.4f}  accuracy {1 - loss / 3:.3f}", flush=True)
        if step == FAIL_AT:
            raise SystemExit(3)
    outputs = Path(os.environ["EVA_STORAGE"]) / "outputs"
    outputs.mkdir(parents=True, exist_ok=True)
    (outputs / "result.txt").write_text(f"trained for {STEPS} steps\n")


if __name__ == "__main__":
    main()
