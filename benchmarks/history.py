"""The cost of history for a master: a journal of many jobs that have ended, and a master on it.

Run as `python -m benchmarks.history [--jobs N] [--json]`. Writes a journal of N ended jobs of one
task each, an instance for every tenth of them, a thousand jobs of the last days and a hundred that
run; starts a master on it, and one on a journal without the N. Then commands and scrapes read, one
after the other over one connection, through gRPC and HTTPS as users and Prometheus do.

`milliseconds` are of whole answers at the caller, `bytes` those of one answer. `control_share` is
the part of the master's processor time that the control loop's thread used while everything was
read, less what it uses in as long a time without reads.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import (
    Figures,
    RunningMaster,
    options,
    publish,
    running_master,
    spread,
    state_directory,
    surroundings,
)
from benchmarks.standing_master import THREADS
from eva_client.rpc.master import Client
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.store import SqlJournal, rows
from eva_master.model.changes import Changes, InstanceAccount, JobAccount
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Instance, Job, Outcome, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis, Workload, run_id

START_GOAL_S = 10.0
SCRAPE_GOAL_MS = 5.0
READ_GOAL_MS = 50.0
MEMORY_GOAL = 1.3
_LIVE = 100
_RECENT = 1_000
"""Jobs that ended a day ago, which are still in memory."""
_PER_INSTANCE = 10
"""Ended jobs for each instance that is gone."""
_DAY_MS = 86_400_000
_OLD_MS = 30 * _DAY_MS
_BATCH = 20_000
_MIB = 1024 * 1024


def measure(jobs: int, reads: int) -> Figures:
    """Start masters on both journals and read from them.

    Args:
        jobs: That have ended long ago.
        reads: How often each question is asked, at least twice.
    """
    figures: Figures = {"surroundings": surroundings(), "jobs": jobs}
    with state_directory() as state_dir:
        figures["empty"] = _run(state_dir, 0, reads)
    with state_directory() as state_dir:
        full = _run(state_dir, jobs, reads)
    ratio = full["memory_mib"] / figures["empty"]["memory_mib"]
    figures |= {**full, "memory_ratio": round(ratio, 3)}
    return {**figures, "missed": _missed(figures)}


def _missed(figures: Figures) -> list[str]:
    medians = {name: told["median"] for name, told in figures["milliseconds"].items()}
    slow = [name for name, ms in medians.items() if name != "scrape" and ms >= READ_GOAL_MS]
    return [
        *(["start_s"] if figures["start_s"] >= START_GOAL_S else []),
        *(["scrape"] if medians["scrape"] >= SCRAPE_GOAL_MS else []),
        *slow,
        *(["memory_ratio"] if figures["memory_ratio"] >= MEMORY_GOAL else []),
    ]


def _run(state_dir: Path, jobs: int, reads: int) -> Figures:
    """The figures of a master with so much history."""
    begun = time.monotonic()
    live = _fill(state_dir, jobs)
    filled = time.monotonic()
    port = _free_port()
    settings = {"metrics_port": port, "lost_worker_timeout": "1d", "round_period": "1d"}
    with running_master(state_dir, settings, live) as master, ExitStack() as stack:
        start_s = time.monotonic() - filled
        client = stack.enter_context(master.client())
        questions = _questions(master, client, port)
        sizes = {name: ask() for name, ask in questions.items()}
        milliseconds: dict[str, list[float]] = {name: [] for name in questions}
        clocks = _Clocks(master)
        before, busy = clocks.read(), time.monotonic()
        for _ in range(reads):
            for name, ask in questions.items():
                start = time.perf_counter()
                ask()
                milliseconds[name].append((time.perf_counter() - start) * 1000)
        after, busy = clocks.read(), time.monotonic() - busy
        time.sleep(busy)
        idle = clocks.read()
        memory = psutil.Process(master.pid).memory_info().rss
    control = (after[0] - before[0]) - (idle[0] - after[0])
    return {
        "journal_mib": round((state_dir / "journal.db").stat().st_size / _MIB),
        "fill_s": round(filled - begun, 1),
        "start_s": round(start_s, 2),
        "milliseconds": {name: spread(taken) for name, taken in milliseconds.items()},
        "bytes": sizes,
        "control_share": round(max(0.0, control) / (after[1] - before[1]), 4),
        "memory_mib": round(memory / _MIB, 1),
    }


def _questions(master: RunningMaster, client: Client, port: int) -> dict[str, Callable[[], int]]:
    """Questions by the command that asks them; each returns the size of the answer."""
    page = 200
    url = f"https://127.0.0.1:{port}/metrics"
    authority = (master.state_dir / "pki" / "ca.pem").read_text()
    trust = ssl.create_default_context(cadata=authority)
    trust.check_hostname = False
    old = next(islice(client.jobs(ended=True), _LIVE + _RECENT, None), None)
    name = old.id if old is not None else next(client.jobs()).id

    def scrape() -> int:
        with urllib.request.urlopen(url, context=trust) as answer:
            return len(answer.read())

    def size(*messages: Any) -> int:
        return sum(message.ByteSize() for message in messages)

    return {
        "scrape": scrape,
        "ls": lambda: size(*client.jobs()),
        "top": lambda: size(client.describe(), *client.jobs(), client.cost(newest=0)),
        "cost": lambda: size(client.cost(newest=50)),
        "ls --all": lambda: size(*islice(client.jobs(ended=True), page)),
        "nodes --all": lambda: size(client.describe(), *islice(client.instances(), page)),
        "status OLD": lambda: size(client.job(name)),
        "explain OLD": lambda: size(client.explain(name)),
    }


class _Clocks:
    """Processor time of the control loop's thread and of the whole master, in seconds."""

    def __init__(self, master: RunningMaster) -> None:
        told = json.loads((master.state_dir / THREADS).read_text())
        self._pid, self._control = master.pid, told["control-loop"]

    def read(self) -> tuple[float, float]:
        tasks = Path(f"/proc/{self._pid}/task")
        times = {}
        for task in tasks.iterdir():
            # A thread may end between the listing and the look.
            with suppress(FileNotFoundError, ProcessLookupError):
                nanoseconds = (task / "schedstat").read_text().split()[0]
                times[int(task.name)] = int(nanoseconds) / 1e9
        return times[self._control], sum(times.values())


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


# -- the journal ---------------------------------------------------------------------------------


def _fill(state_dir: Path, jobs: int) -> list[str]:
    """Write the journal; returns the ids of the instances that live."""
    now = SystemClock().now()
    path = state_dir / "journal.db"
    total = jobs + _RECENT + _LIVE
    first_live = total // _PER_INSTANCE + 1
    with SqlJournal.open(f"sqlite:///{path}") as journal:
        _insert_ended(path, jobs, Millis(now - _OLD_MS), offset=0)
        _insert_ended(path, _RECENT, Millis(now - _DAY_MS), offset=jobs)
        live = [
            _live(number, InstanceId(f"i{first_live + index:05d}"), now)
            for index, number in enumerate(range(jobs + _RECENT + 1, total + 1))
        ]
        journal.commit(
            Changes(
                jobs=tuple(job for job, _, _ in live),
                runs=tuple(run for _, run, _ in live),
                instances=tuple(it for _, _, it in live),
                instance_accounts=tuple(InstanceAccount(it.id, now) for _, _, it in live),
                values={
                    "counters": {
                        "jobs": total,
                        "instances": first_live + _LIVE,
                        "arrivals": total,
                        "completions": total - _LIVE,
                    },
                    "totals": _totals(jobs + _RECENT),
                },
            )
        )
    return [it.id for _, _, it in live]


def _totals(ended: int) -> dict[str, Any]:
    """The sums over the jobs and instances that are over, and the counts of all."""
    gone = -(-ended // _PER_INSTANCE)
    return {
        "charged": str(gone * _CHARGED),
        "idle": "0",
        "alone": str(ended * _ALONE),
        "migrations": 0,
        "jobs": {"succeeded": ended, "running": _LIVE},
        "runs": {"succeeded": ended, "running": _LIVE},
    }


_CHARGED, _ALONE = 321_300_000_000, 35_700_000_000
_TEMPLATE = "bench-0"


def _insert_ended(path: Path, jobs: int, over: Millis, offset: int) -> None:
    """Write jobs that have ended without encoding each of them: they differ by their ids alone."""
    job, run, instance = _ended(over)
    tables = {
        "jobs": rows.job_row(job),
        "job_specs": rows.spec_row(job),
        "task_runs": rows.run_row(run),
        "job_accounts": rows.job_account_row(JobAccount(job.id, Exact(_ALONE), Exact(_ALONE), 1)),
    }
    account = InstanceAccount(instance.id, over, Exact(_CHARGED), Exact(0), closed=True)
    machines = {
        "instances": rows.instance_row(instance),
        "instance_accounts": rows.instance_account_row(account),
    }
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        numbers = range(offset + 1, offset + jobs + 1)
        for start in range(0, jobs, _BATCH):
            some = numbers[start : start + _BATCH]
            for table, row in tables.items():
                _insert(connection, table, row, ((n, f"bench-{n}") for n in some))
            gone = [n // _PER_INSTANCE for n in some if n % _PER_INSTANCE == 0]
            for table, row in machines.items():
                _insert(connection, table, row, ((n, f"i{n:05d}") for n in gone))
            connection.commit()


def _insert(
    connection: sqlite3.Connection,
    table: str,
    row: rows.Values,
    names: Iterator[tuple[int, str]],
) -> None:
    """Insert rows like `row`, each with a name in place of the template's."""

    def values() -> Iterator[list[Any]]:
        for number, name in names:
            yield [
                number if column == "number" else _renamed(value, name)
                for column, value in row.items()
            ]

    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values())


def _renamed(value: Any, name: str) -> Any:
    return value.replace(_TEMPLATE, name) if isinstance(value, str) else value


def _spec(name: str) -> JobSpec:
    demand = Resources(gpus=0, milli_cpus=2000, memory_mib=4096)
    task = TaskSpec(Workload("steady"), Program("sleep 3600"), ((_OFFERING.type.family, demand),))
    return JobSpec(name=name, owner="bench", tasks=(task,))


(_OFFERING,) = load_catalog(only=["c7i.large"])


def _ended(over: Millis) -> tuple[Job, TaskRun, Instance]:
    """A job that has ended, its task run, and the instance that it was on."""
    stages = ("waiting", "starting", "running", "succeeded")
    at = [over - 3_700_000, over - 3_650_000, over - 3_600_000, over]
    job = Job(
        id=JobId(_TEMPLATE),
        spec=_spec(_TEMPLATE),
        submitted_ms=Millis(at[0]),
        history=tuple(
            zip(("pending", "running", "ending", "succeeded"), [*at[:3], over], strict=True)
        ),
        command=f"submit-{_TEMPLATE}",
        started_ms=Millis(at[2]),
        finished_ms=over,
        outcome=Outcome.SUCCEEDED,
        exit_code=0,
        attempt=1,
    )
    run = TaskRun(
        id=run_id(job.id, 0),
        job=job.id,
        index=0,
        history=tuple(zip(stages, at, strict=True)),
        attempt=1,
        started_ms=Millis(at[2]),
        exit_code=0,
        places=((1, InstanceId("i00001")),),
    )
    lives = ("launching", "up", "ready", "terminating", "gone")
    instance = Instance(
        id=InstanceId(_TEMPLATE),
        offering=_OFFERING,
        history=tuple(zip(lives, [*at, over], strict=True)),
        requested_ms=Millis(at[0]),
        up_ms=Millis(at[1]),
        ready_ms=Millis(at[2]),
        gone_ms=over,
        reason="empty",
    )
    return job, run, instance


def _live(number: int, place: InstanceId, now: Millis) -> tuple[Job, TaskRun, Instance]:
    """A job that runs, its task run, and the instance that it has for itself."""
    name = f"bench-{number}"
    job = Job(
        id=JobId(name),
        spec=_spec(name),
        submitted_ms=now,
        history=(("pending", now), ("running", now)),
        command=f"submit-{name}",
        started_ms=now,
        attempt=1,
    )
    run = TaskRun(
        id=run_id(job.id, 0),
        job=job.id,
        index=0,
        history=(("waiting", now), ("starting", now), ("running", now)),
        attempt=1,
        instance=place,
        target=place,
        started_ms=now,
    )
    instance = Instance(
        id=place,
        offering=_OFFERING,
        history=(("launching", now), ("up", now), ("ready", now)),
        requested_ms=now,
        up_ms=now,
        ready_ms=now,
    )
    return job, run, instance


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    chosen = options(__doc__, arguments, jobs=1_000_000, reads=30)
    return publish(measure(chosen.jobs, chosen.reads), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
