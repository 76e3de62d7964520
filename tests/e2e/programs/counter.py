"""Counts steps from its newest checkpoint on until it is told to end; see `record`."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from eva_iterator import EvaIterator, latest_checkpoint
from record import Record

STEP_S = float(os.environ.get("STEP_S", "0.05"))
CHECKPOINT_S = float(os.environ.get("CHECKPOINT_S", "0.4"))
READ_BYTES = int(os.environ.get("READ_BYTES", "0"))


def work() -> None:
    """Do one step."""
    if READ_BYTES:
        url = f"{os.environ['EVA_DATA_SERVER']}/read?bytes={READ_BYTES}"
        with urllib.request.urlopen(url) as data:
            data.read()
    else:
        time.sleep(STEP_S)


def numbers(start: int, record: Record) -> Iterator[int]:
    """The steps to do."""
    step = start
    while not record.finish():
        step += 1
        yield step


def main() -> None:
    """Count."""
    newest = latest_checkpoint()
    step = int((newest / "step").read_text()) if newest else 0
    record = Record()
    record.say("start" if record.alone else "overlap", step)

    def save(directory: Path) -> None:
        (directory / "step").write_text(str(step))
        record.say("checkpoint", step)

    print(f"attempt {os.environ['EVA_ATTEMPT']} starts at step {step}", flush=True)
    try:
        for number in EvaIterator(
            numbers(step, record), checkpoint=save, checkpoint_every_s=CHECKPOINT_S
        ):
            work()
            step = number
            record.say("step", step)
    finally:
        record.say("end", step)  # of itself, or asked to stop


if __name__ == "__main__":
    main()
