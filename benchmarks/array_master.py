"""The cost of an array of tasks of one second on a live master.

Run as `python -m benchmarks.array_master [--tasks N] [--agents N] [--slots N] [--limit SECONDS]
[--json]`. The real master runs in a process of its own, with journal, planner and gRPC port, and
nodes are declared in its settings. Agents from another process join as these nodes and speak the
protocol over TLS connections of their own; their tasks are timers. One array is submitted, and the
processor time of the master's process is read from its submission to its end, beside that of the
planner's process and of the agents. After the limit the array is cancelled, and the figures are
those of the tasks that ended until then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import yaml

from benchmarks.harness import (
    ROOT,
    Figures,
    RunningMaster,
    options,
    publish,
    running_master,
    state_directory,
    surroundings,
    wait_until,
)
from eva_client.rpc.master import Client

TASKS = 100_000
AGENTS = 50
SLOTS = 16
GOAL_PERCENT = 100.0
"""Goal: share of one core that the master's process takes."""
_TASK_MS = 1_000
_TYPE = "bench.node"
_MIB = 64
"""Memory of a slot."""
_ROUNDS = "1s"
"""Least time between two plans. A plan follows the tasks that have ended."""
_FENCE = "2m"
_TOKEN_MS = 600_000
_ENDED = ("succeeded", "failed", "cancelled")
_LOOK_S = 1.0


def measure(tasks: int, agents: int, slots: int, limit_s: int) -> Figures:
    """Run one array on a live master.

    Args:
        tasks: Its tasks.
        agents: At least one.
        slots: Tasks that an agent runs at a time.
        limit_s: Seconds after which the array is cancelled.
    """
    figures: Figures = {"surroundings": surroundings(), "agents": agents, "slots": agents * slots}
    names = [f"node{number}" for number in range(agents)]
    node = {
        "type": _TYPE,
        "capacity": {"cpus": slots, "memory": f"{slots * _MIB}MiB"},
        "usd_per_hour": 0,
        "fence_after": _FENCE,
    }
    with state_directory() as state_dir:
        settings = {
            "nodes": dict.fromkeys(names, node),
            "local": {"max_instances": 1},
            "round_min_interval": _ROUNDS,
        }
        with (
            running_master(state_dir, settings) as master,
            master.client() as client,
            _agents(master, client, names, slots) as theirs,
        ):
            wait_until(
                lambda: client.describe().workers_connected == agents, "the connection of all"
            )
            job_file = _job_file(tasks, agents * slots)
            figures |= _watch(master, client, theirs, job_file, limit_s)
    done = figures["tasks"]
    figures["tasks_per_s"] = round(done / figures["elapsed_s"], 1)
    figures["ms_per_task"] = round(1_000 * figures["cpu_s"] / done, 3) if done else None
    missed = []
    if figures["percent_of_a_core"] > GOAL_PERCENT:
        missed.append("percent_of_a_core")
    if figures["state"] != "succeeded":
        missed.append("state")
    return {**figures, "goal_percent": GOAL_PERCENT, "missed": missed}


def _watch(
    master: RunningMaster,
    client: Client,
    agents: psutil.Process,
    job_file: str,
    limit_s: int,
) -> Figures:
    process = psutil.Process(master.pid)
    planners = process.children()
    before, planned, theirs = _busy_s([process]), _busy_s(planners), _busy_s([agents])
    rounds, start = client.describe().rounds, time.monotonic()
    job = client.submit(job_file, file_name="array.yaml").job_id
    accepted = time.monotonic() - start
    while _state(client) not in _ENDED and time.monotonic() - start < limit_s:
        time.sleep(_LOOK_S)
    elapsed = time.monotonic() - start
    busy = _busy_s([process]) - before
    figures: Figures = {
        "submit_s": round(accepted, 3),
        "elapsed_s": round(elapsed, 1),
        "cpu_s": round(busy, 2),
        "percent_of_a_core": round(100 * busy / elapsed, 1),
        "planner_percent": round(100 * (_busy_s(planners) - planned) / elapsed, 1),
        "agents_percent": round(100 * (_busy_s([agents]) - theirs) / elapsed, 1),
        "rounds": client.describe().rounds - rounds,
        "tasks": client.describe().tasks_by_state["succeeded"],
        "memory_mib": round(process.memory_info().rss / 2**20),
        "state": _state(client),
    }
    if figures["state"] not in _ENDED:
        client.cancel(job)
        wait_until(lambda: _state(client) in _ENDED, "the end of the array", pause_s=_LOOK_S)
    return figures


def _state(client: Client) -> str:
    """The state of the only job."""
    (state,) = client.describe().jobs_by_state
    return state


def _busy_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _job_file(tasks: int, at_a_time: int) -> str:
    return yaml.safe_dump(
        {
            "name": "array",
            "run": "sleep 1",
            "kind": "array",
            "tasks": tasks,
            "concurrency": at_a_time,
            "resources": {"cpus": 1, "memory": f"{_MIB}MiB"},
            "duration": "1s",
            "reports_steps": False,
        }
    )


@contextmanager
def _agents(
    master: RunningMaster, client: Client, names: Sequence[str], slots: int
) -> Iterator[psutil.Process]:
    """Run `benchmarks.clockwork_agents` until the block ends."""
    request = {
        "tokens": [client.create_node_token(name, _TOKEN_MS).secret for name in names],
        "type": _TYPE,
        "milli_cpus": 1_000 * slots,
        "memory_mib": _MIB * slots,
        "task_ms": _TASK_MS,
    }
    path = master.state_dir / "agents.json"
    path.write_text(json.dumps(request))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.clockwork_agents", str(path)], cwd=ROOT
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if the master took more than one core."""
    chosen = options(__doc__, arguments, tasks=TASKS, agents=AGENTS, slots=SLOTS, limit=900)
    figures = measure(chosen.tasks, chosen.agents, chosen.slots, chosen.limit)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
