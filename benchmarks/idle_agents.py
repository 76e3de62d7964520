"""The master's cost of many connected agents with nothing to report.

Run as `python -m benchmarks.idle_agents [--agents N] [--window SECONDS] [--json]`. The journal of a
real master is filled with ready instances, each of which holds one running task, and with their
jobs. Agents from processes of their own register, each over a TLS connection with a certificate of
its own, list their task as running, send an empty heartbeat as often as the master asks for it, and
answer its questions. Once all have registered, the processor time of the master's process is read
at the beginning and at the end of the window. That of the planner's process is shown separately.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import psutil
from cryptography.hazmat.primitives.asymmetric import ec

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
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pki.authority import Authority, private_pem
from eva_master.adapters.store import SqlJournal
from eva_master.app.config import MasterConfig
from eva_master.model.catalog import Offering
from eva_master.model.changes import Changes, InstanceAccount
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import InstanceId, JobId, Millis, Workload, run_id
from eva_wire.values.states import InstanceState, JobState, RunState

GOAL_PERCENT = 25.0
"""Goal: share of one core for 2,000 agents."""
_PROCESSES = 2
_MIB = 1024 * 1024
_CERTIFICATE_MS = 86_400_000
_PATIENCE = "10m"
"""Seconds within which all agents must have connected."""


def measure(agents: int, window_s: int) -> Figures:
    """Connect agents to a master and watch its process.

    Args:
        agents: At least one.
        window_s: Seconds, at least one.
    """
    names = [f"i{number:05d}" for number in range(1, agents + 1)]
    figures: Figures = {"surroundings": surroundings(), "agents": agents}
    with state_directory() as state_dir:
        _fill_journal(state_dir, names)
        settings = {"lost_worker_timeout": _PATIENCE}
        with (
            running_master(state_dir, settings, names) as master,
            _agents(master, names) as clients,
        ):
            figures |= _connect(master, agents)
            figures |= _watch(master, clients, window_s)
            figures["lost"] = agents - _connected(master)
    missed = [
        *(["percent_of_a_core"] if figures["percent_of_a_core"] > GOAL_PERCENT else []),
        *(["lost"] if figures["lost"] else []),
    ]
    return {**figures, "goal_percent": GOAL_PERCENT, "missed": missed}


def _connected(master: RunningMaster) -> int:
    with master.client() as client:
        return client.describe().workers_connected


def _connect(master: RunningMaster, agents: int) -> Figures:
    start = time.monotonic()
    wait_until(lambda: _connected(master) == agents, "the connection of all agents", pause_s=0.5)
    return {"connect_s": round(time.monotonic() - start, 1)}


def _watch(master: RunningMaster, clients: Sequence[psutil.Process], window_s: int) -> Figures:
    process = psutil.Process(master.pid)
    planners = process.children()
    before, planned, theirs = _busy_s([process]), _busy_s(planners), _busy_s(clients)
    with master.client() as client:
        rounds = client.describe().rounds
        start = time.monotonic()
        time.sleep(window_s)
        elapsed = time.monotonic() - start
        rounds = client.describe().rounds - rounds
    return {
        "heartbeat_ms": MasterConfig.model_fields["heartbeat"].default,
        "window_s": round(elapsed, 1),
        "percent_of_a_core": round((_busy_s([process]) - before) / elapsed * 100, 1),
        "planner_percent": round((_busy_s(planners) - planned) / elapsed * 100, 1),
        "agents_percent": round((_busy_s(clients) - theirs) / elapsed * 100, 1),
        "rounds": rounds,
        "memory_mib": round(process.memory_info().rss / _MIB),
        "threads": process.num_threads(),
    }


def _busy_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


# -- the agents' processes -----------------------------------------------------------------------


@contextmanager
def _agents(master: RunningMaster, names: Sequence[str]) -> Iterator[list[psutil.Process]]:
    """Run `benchmarks.quiet_agents` in several processes until the block ends."""
    authority = Authority.of(master.state_dir / "pki", "eva", SystemClock())
    with ExitStack() as stack:
        clients = []
        for number in range(_PROCESSES):
            share = names[number::_PROCESSES]
            request = {
                "address": master.workers,
                "authorities": authority.certificates.decode(),
                "agents": [_agent(authority, name) for name in share],
            }
            path = master.state_dir / f"agents-{number}.json"
            path.write_text(json.dumps(request))
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.quiet_agents", str(path)], cwd=ROOT
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            clients.append(psutil.Process(process.pid))
        yield clients


def _agent(authority: Authority, name: str) -> dict[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.issue_agent(key.public_key(), InstanceId(name), _CERTIFICATE_MS)
    return {
        "instance": name,
        "key": private_pem(key).decode(),
        "certificate": certificate.decode(),
        "run": _run(name),
    }


# -- the journal ---------------------------------------------------------------------------------


@cache
def _offering() -> Offering:
    (offering,) = load_catalog(only=["c7i.large"])
    return offering


def _job(name: str) -> JobId:
    return JobId(f"job-{int(name.removeprefix('i'))}")


def _run(name: str) -> str:
    return run_id(_job(name), 0)


def _fill_journal(state_dir: Path, names: Sequence[str]) -> None:
    """Write the journal of a master with one running task on each instance."""
    now = SystemClock().now()
    with SqlJournal.open(f"sqlite:///{state_dir / 'journal.db'}") as journal:
        journal.commit(
            Changes(
                jobs=tuple(_running_job(name, now) for name in names),
                runs=tuple(_running_run(name, now) for name in names),
                instances=tuple(_ready_instance(name, now) for name in names),
                instance_accounts=tuple(InstanceAccount(InstanceId(n), now) for n in names),
                values={
                    "counters": {
                        "jobs": len(names),
                        "instances": len(names),
                        "arrivals": len(names),
                    }
                },
            )
        )


def _running_job(name: str, now: Millis) -> Job:
    demand = Resources(gpus=0, milli_cpus=2000, memory_mib=4096)
    task = TaskSpec(Workload("steady"), Program("sleep 3600"), ((_offering().type.family, demand),))
    return Job(
        id=_job(name),
        spec=JobSpec(name=_job(name), owner="bench", tasks=(task,)),
        submitted_ms=now,
        history=((JobState.PENDING.value, now), (JobState.RUNNING.value, now)),
        command=f"submit-{name}",
        started_ms=now,
        attempt=1,
    )


def _running_run(name: str, now: Millis) -> TaskRun:
    states = (RunState.WAITING, RunState.STARTING, RunState.RUNNING)
    return TaskRun(
        id=run_id(_job(name), 0),
        job=_job(name),
        index=0,
        history=tuple((state.value, int(now)) for state in states),
        attempt=1,
        instance=InstanceId(name),
        target=InstanceId(name),
        started_ms=now,
    )


def _ready_instance(name: str, now: Millis) -> Instance:
    states = (InstanceState.LAUNCHING, InstanceState.UP, InstanceState.READY)
    return Instance(
        id=InstanceId(name),
        offering=_offering(),
        history=tuple((state.value, int(now)) for state in states),
        requested_ms=now,
        up_ms=now,
        ready_ms=now,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if the master used more than its share of a core."""
    chosen = options(__doc__, arguments, agents=2000, window=60)
    return publish(measure(chosen.agents, chosen.window), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
