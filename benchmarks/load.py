"""How long submissions take that come evenly from two users while others watch all jobs.

Run as `python -m benchmarks.load [--jobs N] [--per-second N] [--watchers N] [--json]`. A real
master gets jobs at a steady rate, from two users; nine of ten watchers read nothing. A submission
counts from the moment at which it was due, so that what waits counts as well. Then `eva ls` is run,
with and without `--json`, each in a process of its own. The cloud launches nothing: all jobs stay.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks.harness import (
    Figures,
    RunningMaster,
    fresh_master,
    options,
    publish,
    spread,
    surroundings,
    unlimited,
    wait_until,
)
from benchmarks.submission import JobFiles
from benchmarks.watchers import watchers
from eva_client.rpc.master import Client
from eva_wire.values.errors import Unreachable

GOAL_MS = 2_000.0
"""Goal for the 99th percentile of submissions."""
GOAL_FIRST_PAGE_S = 1.0
GOAL_JSON_S = 5.0
"""Goal for the client's processor time for all jobs as JSON, in seconds."""
_INSTANCES = 50
_THREADS = 64
"""Submissions that wait at the same time, at most."""
_READ_NOTHING = 0.9


def settings() -> Figures:
    """The settings of a master whose jobs stay, and whose users may have as many as they like."""
    return {"limits": {**unlimited(), "instances": _INSTANCES}, "policy": {"name": "eva"}}


def measure(jobs: int, per_second: int, watched: int) -> Figures:
    """Submit jobs at a rate while others watch, then list them.

    Args:
        jobs: How many.
        per_second: How many of them in a second.
        watched: Streams of all jobs.
    """
    figures: Figures = {"surroundings": surroundings()}
    with fresh_master(settings()) as master:
        files, silent = JobFiles(random.Random(37)), round(watched * _READ_NOTHING)
        with users(master, 2) as clients:
            offer(clients, [next(files) for _ in range(2)], per_second)  # connects
            with watchers(master, watched - silent, silent) as read:
                took = offer(clients, [next(files) for _ in range(jobs - 2)], per_second)
        first_s, _ = _eva(master, "ls")
        all_s, all_cpu_s = _eva(master, "ls", "--json")
    spread_ms = spread(took)
    missed = [
        *(["submission_ms"] if spread_ms["p99"] > GOAL_MS else []),
        *(["first_page_s"] if first_s > GOAL_FIRST_PAGE_S else []),
        *(["all_json_cpu_s"] if all_cpu_s > GOAL_JSON_S else []),
    ]
    return {
        **figures,
        "jobs": jobs,
        "per_second": per_second,
        "watchers": watched,
        "messages_read": read[0],
        "submission_ms": spread_ms,
        "first_page_s": round(first_s, 2),
        "all_json_s": round(all_s, 2),
        "all_json_cpu_s": round(all_cpu_s, 2),
        "load_average_after": round(os.getloadavg()[0], 2),
        "missed": missed,
    }


@contextmanager
def users(master: RunningMaster, count: int) -> Iterator[list[Client]]:
    """Connections of so many users who submit."""
    with master.client() as operator:
        wait_until(lambda: _answers(operator), "the first answer")
        secrets = [operator.create_token(f"user-{n}", "user").secret for n in range(count)]
    told = yaml.safe_load((master.state_dir / "client.yaml").read_text())
    authorities = Path(told["ca_file"]).read_bytes()
    clients = [
        Client(master.address, authorities=authorities, token=secret, timeout_s=120)
        for secret in secrets
    ]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def _answers(client: Client) -> bool:
    try:
        client.describe()
    except Unreachable:
        return False
    return True


def offer(clients: Sequence[Client], jobs: Sequence[str], per_second: float) -> list[float]:
    """Submit jobs when they are due, whether or not earlier ones are accepted.

    Returns:
        Milliseconds from each job's being due to its being accepted.
    """

    def submit(number: int, due_s: float) -> float:
        clients[number % len(clients)].submit(jobs[number], file_name="job.yaml")
        return (time.monotonic() - due_s) * 1000

    begin_s = time.monotonic()
    waiting: list[Future[float]] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for number in range(len(jobs)):
            due_s = begin_s + number / per_second
            time.sleep(max(0.0, due_s - time.monotonic()))
            waiting.append(pool.submit(submit, number, due_s))
        return [it.result() for it in waiting]


def _eva(master: RunningMaster, *arguments: str) -> tuple[float, float]:
    """Run a command; returns how long it took and its processor time, in seconds."""
    told = yaml.safe_load((master.state_dir / "client.yaml").read_text())
    told["address"] = master.address
    file = master.state_dir / "user.yaml"
    file.write_text(json.dumps(told))
    file.chmod(0o600)
    environment: Mapping[str, str] = {**os.environ, "EVA_CONFIG": str(file), "COLUMNS": "120"}
    begin_s, before = time.monotonic(), os.times()
    subprocess.run(
        [sys.executable, "-m", "eva_client.cli", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    used_s = after.children_user + after.children_system
    used_s -= before.children_user + before.children_system
    return time.monotonic() - begin_s, used_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    chosen = options(__doc__, arguments, jobs=20_000, per_second=50, watchers=200)
    figures = measure(chosen.jobs, chosen.per_second, chosen.watchers)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
