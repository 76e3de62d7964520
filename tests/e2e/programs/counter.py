"""Counts steps from its newest checkpoint on, and writes down outside the cluster what it does.

The record has one JSON line per event in ``$RECORD/JOB.INDEX``. The program ends when a file
``$RECORD/JOB.finish`` appears, so that tests decide when, whatever the machine's speed. A lock that
the kernel frees at its death shows whether the same task ever ran twice at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from eva_iterator import EvaIterator, latest_checkpoint

TASK = os.environ["EVA_TASK_ID"].replace("/", ".")
RECORD = Path(os.environ["RECORD"])
FINISH = RECORD / f"{os.environ['EVA_JOB_ID']}.finish"
STEP_S = float(os.environ.get("STEP_S", "0.05"))
CHECKPOINT_S = float(os.environ.get("CHECKPOINT_S", "0.4"))
READ_BYTES = int(os.environ.get("READ_BYTES", "0"))


def say(event: str, step: int) -> None:
    """Append an event to the record, in one write."""
    line = {
        "event": event,
        "attempt": int(os.environ["EVA_ATTEMPT"]),
        "pid": os.getpid(),
        "at_ms": time.time_ns() // 1_000_000,
        "step": step,
    }
    descriptor = os.open(RECORD / TASK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    os.close(descriptor)


def alone() -> bool:
    """Take the task's lock, for as long as this process lives."""
    lock = os.open(RECORD / f"{TASK}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def work() -> None:
    """Do one step."""
    if READ_BYTES:
        url = f"{os.environ['EVA_DATA_SERVER']}/read?bytes={READ_BYTES}"
        with urllib.request.urlopen(url) as data:
            data.read()
    else:
        time.sleep(STEP_S)


def numbers(start: int) -> Iterator[int]:
    """The steps to do."""
    step = start
    while not FINISH.exists():
        step += 1
        yield step


def main() -> None:
    """Count."""
    newest = latest_checkpoint()
    step = int((newest / "step").read_text()) if newest else 0
    say("start" if alone() else "overlap", step)

    def save(directory: Path) -> None:
        (directory / "step").write_text(str(step))
        say("checkpoint", step)

    print(f"attempt {os.environ['EVA_ATTEMPT']} starts at step {step}", flush=True)
    for number in EvaIterator(numbers(step), checkpoint=save, checkpoint_every_s=CHECKPOINT_S):
        work()
        step = number
        say("step", step)
    say("end", step)


if __name__ == "__main__":
    main()
