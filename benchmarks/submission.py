"""How long a submission takes while a full cluster has a long queue and a plan is being made.

Run as `python -m benchmarks.submission [--queued N] [--samples N] [--json]`. A real master gets
jobs that all differ, and the catalog offers one instance of each type, so that nearly all jobs stay
queued and every round packs them again. Rounds follow each other at once (the default is at most
one in five seconds), so that a plan is nearly always being made. Then one client submits one job
after the other; each figure is the time of a whole call at the client. The journal tells at the end
which rounds were in progress when.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Figures,
    RunningMaster,
    options,
    publish,
    running_master,
    spread,
    state_directory,
    surroundings,
    wait_until,
)
from eva_client.rpc.master import Client
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.store import SqlJournal
from eva_master.model.changes import Round

GOAL_MS = 20.0
"""Goal for the median, in milliseconds."""
PAUSE_S = 0.02
"""Seconds between two submissions, so that the samples meet many rounds."""
_ROUND_MIN_INTERVAL = "10ms"
_CLIENTS = 8
_SPARE = 1.15
"""Some jobs find a place."""


@dataclass(frozen=True)
class Sample:
    """One submission, in milliseconds; `began_ms` since the epoch, as the journal's times."""

    began_ms: float
    took_ms: float


def measure(queued: int, samples: int) -> Figures:
    """Fill a master's queue, submit, and read from its journal what else it did.

    Args:
        queued: Jobs without a place when the first sample is taken.
        samples: Submissions to time, at least two.
    """
    figures: Figures = {"surroundings": surroundings()}
    with state_directory() as state_dir:
        settings = {"policy": {"name": "eva"}, "round_min_interval": _ROUND_MIN_INTERVAL}
        jobs = JobFiles(random.Random(20))
        with limited_master(state_dir, settings) as master:
            figures["queued"] = _fill(master, [next(jobs) for _ in range(int(queued * _SPARE))])
            taken = _submit(master, [next(jobs) for _ in range(samples)])
        with SqlJournal.open(master.journal) as journal:
            rounds = journal.rounds(limit=100_000)
    return {**figures, **_report(taken, rounds)}


def _report(taken: Sequence[Sample], rounds: Sequence[Round]) -> Figures:
    begin, end = taken[0].began_ms, taken[-1].began_ms + taken[-1].took_ms
    meanwhile = [r for r in rounds if begin <= r.at_ms + r.planned_ms and r.at_ms <= end]
    busy = [sample for sample in taken if _under_way(meanwhile, sample)]
    all_ms = spread([sample.took_ms for sample in taken])
    return {
        "samples": len(taken),
        "submission_ms": all_ms,
        "during_a_round": len(busy),
        "during_a_round_ms": spread([s.took_ms for s in busy]) if len(busy) > 1 else {},
        "rounds_meanwhile": len(meanwhile),
        "round_ms": spread([r.planned_ms for r in meanwhile]) if len(meanwhile) > 1 else {},
        "goal_ms": GOAL_MS,
        "missed": ["submission_ms"] if all_ms["median"] > GOAL_MS else [],
    }


def _under_way(rounds: Sequence[Round], sample: Sample) -> bool:
    return any(r.at_ms <= sample.began_ms <= r.at_ms + r.planned_ms for r in rounds)


@contextmanager
def limited_master(state_dir: Path, settings: Mapping[str, Any]) -> Iterator[RunningMaster]:
    """Run a master on whose catalog one instance of each type is on sale until the block ends.

    Args:
        state_dir: Its state, with the catalog's file.
        settings: Its other settings.
    """
    types = {offering.type.name: {"limit": 1} for offering in load_catalog()}
    catalog = state_dir / "catalog.yaml"
    catalog.write_text(json.dumps({"types": types}))
    with running_master(state_dir, {**settings, "catalog": {"file": str(catalog)}}) as master:
        yield master


class JobFiles:
    """Job files that all differ, in demand and in name."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._count = 0

    def __next__(self) -> str:
        self._count += 1
        cpus = self._choose.randrange(1, 64) / 4
        mib = self._choose.randrange(2, 256) * 256
        return json.dumps(
            {
                "name": f"job-{self._count}",
                "workload": f"workload-{self._count % 50}",
                "run": "true",
                "resources": {"cpus": cpus, "memory": f"{mib}MiB"},
            }
        )


def _fill(master: RunningMaster, jobs: Sequence[str]) -> int:
    """Submit from several clients, wait for a plan, count the jobs without a place."""
    with master.client() as client:
        with ThreadPoolExecutor(_CLIENTS) as pool:
            for _ in pool.map(lambda job: client.submit(job, file_name="job.yaml"), jobs):
                pass
        _wait_for_plan(client)
        return sum(not job.tasks[0].target for job in client.jobs())


def _wait_for_plan(client: Client) -> None:
    """Until every job has a place or a reason why it has none."""
    wait_until(
        lambda: all(job.tasks[0].target or job.tasks[0].waiting_for for job in client.jobs()),
        "a plan of the whole queue",
        pause_s=1.0,
    )


def _submit(master: RunningMaster, jobs: Sequence[str]) -> list[Sample]:
    taken = []
    with master.client() as client:
        client.describe()  # connects
        for job in jobs:
            time.sleep(PAUSE_S)
            began_ms, start = time.time() * 1000, time.perf_counter()
            client.submit(job, file_name="job.yaml")
            taken.append(Sample(began_ms, (time.perf_counter() - start) * 1000))
        _wait_for_plan(client)  # so that the last round is in the journal
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if the median missed the goal."""
    chosen = options(__doc__, arguments, queued=1000, samples=500)
    return publish(measure(chosen.queued, chosen.samples), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
