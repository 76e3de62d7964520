"""Makes STEPS steps, and goes on from its newest checkpoint if it was stopped in between."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from eva_iterator import EvaIterator, latest_checkpoint, set_total

STEPS = int(os.environ.get("STEPS", "400"))
STEP_S = float(os.environ.get("STEP_S", "0.05"))


def main() -> None:
    """Train: here it only counts and sleeps."""
    newest = latest_checkpoint()
    step = int((newest / "step").read_text()) if newest else 0
    print(f"attempt {os.environ.get('EVA_ATTEMPT', '1')} starts at step {step}", flush=True)
    set_total(STEPS - step)

    def left() -> Iterator[int]:
        yield from range(step + 1, STEPS + 1)

    def save(directory: Path) -> None:
        (directory / "step").write_text(str(step))

    for number in EvaIterator(left(), checkpoint=save):
        time.sleep(STEP_S)
        step = number
    if step == STEPS:
        print(f"done: {step} steps", flush=True)


if __name__ == "__main__":
    main()
