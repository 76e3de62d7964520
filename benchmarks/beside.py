"""How long a small job waits beside extreme jobs of other users, on a live master.

Run as `python -m benchmarks.beside [--crowd NAME ...] [--scale N] [--limit SECONDS] [--json]`. For
each crowd a real master with an empty cluster runs in a process of its own. Its cloud launches
instances at once, and their agents, in another process, run timers as tasks. The crowd is
submitted, then the small job of another user, which is due to begin within the goal. Counted is the
processor time of master and planner from then until it runs, since a busy machine makes the time
itself longer. After the limit the small job is an error. `--scale` divides the size of crowds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import yaml

from benchmarks.harness import (
    Figures,
    RunningMaster,
    end_children_at_sigterm,
    publish,
    running_master,
    state_directory,
    surroundings,
    unlimited,
)
from benchmarks.load import users
from eva_client.rpc.master import Client
from eva_master.app.config import LimitsSection

GOAL_S = 30.0
"""Goal for the processor time until the small job runs."""
_TASK_MS = 600_000
_LOOK_S = 0.25
_THREADS = 16
_SETTINGS = {
    "policy": {"name": "eva"},
    "catalog": {"only": ["c7i.12xlarge", "c7i.48xlarge", "r7i.12xlarge", "r7i.48xlarge"]},
    "limits": {
        **unlimited(),
        **LimitsSection().model_dump(
            mode="json", include={"instances", "instances_per_user", "instances_per_job"}
        ),
    },
}
"""Large instances, so that the process of the agents has few of them, and no more than a master
allows by default."""
_TINY = {"cpus": 0.1, "memory": "64MiB"}
_SMALL = {
    "name": "small",
    "workload": "small",
    "run": "true",
    "resources": {"cpus": 1, "memory": "1GiB"},
}

Crowd = Callable[[int], Iterator[Mapping[str, Any]]]
"""Job files for a scale."""


def _job(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "workload": name, "run": "true", "resources": _TINY, **more}


def distinct(scale: int) -> Iterator[Mapping[str, Any]]:
    """Tasks of which each has a size and a workload of its own."""
    for number in range(300 // scale):
        size = {"cpus": 1 + number % 7, "memory": f"{512 + number}MiB"}
        yield _job(f"w{number}", resources=size)


def distinct_gang(scale: int) -> Iterator[Mapping[str, Any]]:
    """One gang of tasks of which each has a size of its own."""
    sizes = [{"cpus": 1 + n % 7, "memory": f"{512 + n}MiB"} for n in range(300 // scale)]
    tasks = [{"name": f"t{n}", "resources": size} for n, size in enumerate(sizes)]
    yield {"name": "gang", "run": "true", "tasks": tasks}


def gang(scale: int) -> Iterator[Mapping[str, Any]]:
    """One gang of ten thousand."""
    yield _job("gang", tasks=10_000 // scale)


def pairs(scale: int) -> Iterator[Mapping[str, Any]]:
    """Gangs of two tasks that are alike, each of a workload of its own."""
    for number in range(1_000 // scale):
        yield _job(f"pair{number}", tasks=2)


def elastic(scale: int) -> Iterator[Mapping[str, Any]]:
    """An elastic gang of a thousand and an array of ten thousand."""
    yield _job("elastic", tasks={"least": 1, "most": 1_000 // scale})
    yield _job("array", tasks=10_000 // scale, kind="array")


def many(scale: int) -> Iterator[Mapping[str, Any]]:
    """Jobs of many users, of several sizes."""
    for number in range(1_000 // scale):
        size = {"cpus": 1 + number % 4, "memory": f"{1 + number % 8}GiB"}
        yield _job(f"job{number}", workload=f"w{number % 50}", resources=size)


CROWDS: dict[str, tuple[Crowd, int]] = {
    "distinct": (distinct, 1),
    "distinct_gang": (distinct_gang, 1),
    "gang": (gang, 1),
    "pairs": (pairs, 1),
    "elastic": (elastic, 1),
    "many": (many, 200),
}
"""Crowds by name, with the number of their users."""


def measure(crowd: str, scale: int, limit_s: int) -> Figures:
    """Submit a crowd, then a small job, and wait until that runs.

    Args:
        crowd: Name of the crowd.
        scale: Divides its size.
        limit_s: Seconds after which the small job is given up.
    """
    make, owners = CROWDS[crowd]
    jobs = [yaml.safe_dump(dict(job)) for job in make(scale)]
    with (
        state_directory() as state_dir,
        running_master(state_dir, _SETTINGS, task_ms=_TASK_MS) as master,
        users(master, max(2, owners // scale + 1)) as clients,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        *others, own = clients
        calls = [
            pool.submit(others[number % len(others)].submit, job, file_name="job.yaml")
            for number, job in enumerate(jobs)
        ]
        for call in calls:
            call.result()
        return {"jobs": len(jobs), **_until_it_runs(master, own, limit_s)}


def _until_it_runs(master: RunningMaster, client: Client, limit_s: int) -> Figures:
    """Submit the small job and wait."""
    before, start = _busy_s(master), time.monotonic()
    job = client.submit(yaml.safe_dump(_SMALL), file_name="small.yaml").job_id
    while client.job(job).state == "pending" and time.monotonic() - start < limit_s:
        time.sleep(_LOOK_S)
    after, elapsed = _busy_s(master), time.monotonic() - start
    return {
        "state": client.job(job).state,
        "elapsed_s": round(elapsed, 1),
        "master_cpu_s": round(after["master"] - before["master"], 1),
        "planner_cpu_s": round(after["planner"] - before["planner"], 1),
    }


def _busy_s(master: RunningMaster) -> dict[str, float]:
    """Processor seconds of the master's process, and of its planners, ended ones included."""
    process = psutil.Process(master.pid)
    times = process.cpu_times()
    planner = times.children_user + times.children_system
    for child in process.children():
        if not any("clockwork" in word for word in child.cmdline()):
            planner += sum(child.cpu_times()[:4])
    return {"master": times.user + times.system, "planner": planner}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a small job missed the goal."""
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crowd", nargs="+", choices=CROWDS, default=list(CROWDS))
    parser.add_argument("--scale", type=int, default=1, help="divides the size of crowds")
    parser.add_argument("--limit", type=int, default=300, help="seconds for the small job")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    figures: Figures = {"surroundings": surroundings(), "goal_s": GOAL_S}
    crowds = {name: measure(name, chosen.scale, chosen.limit) for name in chosen.crowd}
    missed = [
        name
        for name, crowd in crowds.items()
        if crowd["state"] == "pending" or crowd["master_cpu_s"] + crowd["planner_cpu_s"] > GOAL_S
    ]
    return publish({**figures, "crowds": crowds, "missed": missed}, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
