"""The cost of a small job file of very many equal tasks for a master and its callers.

Run as `python -m benchmarks.amplification [--tasks N] [--kilobytes N] [--json]`. A real master has
a catalog that offers one instance of each type, so that nearly all tasks wait. One client submits
the file, another one asks for the cluster's state and a third submits small jobs and cancels them,
all the time, from before until two rounds have looked at the tasks. The journal's size, that of its
files, and the memory, what the kernel counts for the master's process, are those of another such
job, submitted before while nobody else asks and after the same file with one task.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import (
    Figures,
    RunningMaster,
    options,
    publish,
    spread,
    state_directory,
    surroundings,
    wait_until,
)
from benchmarks.submission import limited_master
from eva_client.rpc.master import Client
from eva_master.adapters.store import SqlJournal

GOAL_MS = 100.0
"""Within which everybody is answered meanwhile: the 90th percentile."""
GOAL_BYTES = 1_000_000
"""By which the journal grows at most when the job is submitted."""
_PAUSE_S = 0.01
_WARM = 20


def measure(tasks: int, kilobytes: int) -> Figures:
    """Submit the file while others ask.

    Args:
        tasks: How many tasks it has.
        kilobytes: How long it is.
    """
    figures: Figures = {"surroundings": surroundings()}
    with state_directory() as state_dir:
        settings = {"round_min_interval": "1s", "round_period": "2s"}
        with limited_master(state_dir, settings) as master, master.client() as client:
            client.submit(_file("one", 1, kilobytes), file_name="one.yaml")
            _two_rounds(client)
            before = _sizes(master)
            client.submit(_file("quietly", tasks, kilobytes), file_name="quietly.yaml")
            after = _sizes(master)
            _two_rounds(client)
            later = _sizes(master)
            with _asked(master, _describe) as reads, _asked(master, _submit_and_cancel) as writes:
                wait_until(lambda: min(len(reads), len(writes)) >= _WARM, "the first answers")
                begun = len(reads), len(writes)
                start = time.monotonic()
                client.submit(_file("many", tasks, kilobytes), file_name="many.yaml")
                figures["submitted_ms"] = round(1000 * (time.monotonic() - start), 1)
                _two_rounds(client)
            figures["reads_ms"] = spread(reads[begun[0] :])
            figures["commands_ms"] = spread(writes[begun[1] :])
        with SqlJournal.open(master.journal) as journal:
            assert sum(len(job.spec.tasks) for job in journal.load().jobs) > tasks
    for name, sizes in (("submitted", after), ("two_rounds", later)):
        grown = {key: sizes[key] - before[key] for key in sizes}
        figures[f"bytes_{name}"] = grown
    figures["missed"] = _missed(figures)
    return figures


def _two_rounds(client: Client) -> None:
    rounds = client.describe().rounds
    wait_until(lambda: client.describe().rounds >= rounds + 2, "two rounds")


def _missed(figures: Figures) -> list[str]:
    slow = [name for name in ("reads_ms", "commands_ms") if figures[name]["p90"] > GOAL_MS]
    large = figures["bytes_submitted"]["journal"] > GOAL_BYTES
    return slow + ["bytes_submitted"] * large


def _file(name: str, tasks: int, kilobytes: int) -> str:
    half = "x" * (kilobytes * 500 - 100)
    job = {
        "name": name,
        "kind": "array",
        "tasks": tasks,
        "resources": {"cpus": 1, "memory": "1GiB"},
        "run": f"true {half}",
        "envs": {"LONG": half},
    }
    return json.dumps(job)


def _sizes(master: RunningMaster) -> dict[str, int]:
    status = Path(f"/proc/{master.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    files = master.state_dir.glob("journal.db*")
    return {
        "journal": sum(file.stat().st_size for file in files),
        "memory": int(resident.split()[1]) * 1024,
    }


def _describe(client: Client, _: int) -> None:
    client.describe()


def _submit_and_cancel(client: Client, number: int) -> None:
    text = json.dumps(
        {"name": f"s{number}", "resources": {"cpus": 1, "memory": "1GiB"}, "run": "true"}
    )
    job = client.submit(text, file_name="small.yaml").job_id
    client.cancel(job)


@contextmanager
def _asked(master: RunningMaster, ask: Callable[[Client, int], None]) -> Iterator[list[float]]:
    """Have a client of its own ask all the time; the milliseconds that each answer took."""
    took: list[float] = []
    over = threading.Event()

    def go_on() -> None:
        with master.client() as client:
            while not over.wait(_PAUSE_S):
                start = time.monotonic()
                ask(client, len(took))
                took.append(1000 * (time.monotonic() - start))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    chosen = options(__doc__, arguments, tasks=10_000, kilobytes=60)
    return publish(measure(chosen.tasks, chosen.kilobytes), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
