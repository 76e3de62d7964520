"""How long jobs take on a live master whose policy has to learn how long that is.

Run as `python -m benchmarks.live_run_times FILE [--policy NAME ...] [--jobs N] [--faster N]
[--slots N] [--gap MS] [--with-past] [--results FOLDER] [--json]`, with a trace of jobs as for
`benchmarks.run_times`. With `--with-past` the journal has the knowledge of its past jobs from the
start; else they are left out. The real master runs in a process of its own, with journal, planner
and gRPC port. Agents from another process join as nodes of one slot each, and their tasks are
timers. The trace is run as many times faster as is said, arrivals, tasks and the queues of `slearn`
alike. Beside each figure is that of the same jobs, as fast, in a simulation.

Finished policies stay in the folder, a file each, and are not run again: a call that was
interrupted goes on with the policies that are left.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness import (
    ROOT,
    Figures,
    RunningMaster,
    end_children_at_sigterm,
    publish,
    running_master,
    state_directory,
    surroundings,
    wait_until,
)
from eva_client.rpc.master import Client
from eva_lab.experiments.fixed import ClusterSection
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.earlier import taught
from eva_lab.simulator.scenario.submission import OWNER
from eva_lab.traces.recipes import TasksRecipe
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.store.journal import SqlJournal
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.building import policy_config
from eva_master.app.sections.policies import estimates_of
from eva_master.learning.knowledge import Knowledge
from eva_master.model.changes import Changes
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob
from eva_master.packing.elastic.fixed import built

POLICIES = ("slearn", "slearn:published", "slearn:las", "slearn:fifo")
_TYPE, _MIB = "bench.node", 64
_NODE: dict[str, Any] = {
    "type": _TYPE,
    "capacity": {"cpus": 1, "memory": f"{_MIB}MiB"},
    "usd_per_hour": 0,
    "fence_after": "2m",
}
_DEMAND = Resources(0, 1_000, _MIB)
_TOKEN_MS = 3_600_000
_FIRST_QUEUE_S = 1_000
_LOOK_S = 1.0
_GAP_MS = 1_000
_ENDED = ("succeeded", "failed", "cancelled")


def hastened(trace: Trace, faster: int, *, past: bool = False) -> Trace:
    """A trace in which everything takes so many times less time; without past jobs unless asked."""

    def job(one: TraceJob) -> TraceJob:
        tasks = tuple(
            replace(task, duration_ms=max(1, (task.duration_ms or 0) // faster))
            for task in one.tasks
        )
        total = sum(task.duration_ms or 0 for task in tasks)
        arrival = one.arrival_ms // faster
        return replace(
            one, arrival_ms=arrival, duration_ms=max(1, total // len(tasks)), tasks=tasks
        )

    earlier = (replace(it, mean_ms=max(1, it.mean_ms // faster)) for it in trace.past)
    return replace(trace, jobs=tuple(map(job, trace.jobs)), past=tuple(earlier) if past else ())


def section(name: str, faster: int) -> OnePolicySection:
    """A policy whose queues are for jobs that are so many times faster."""
    return OnePolicySection(name=name, options={"first_queue_s": max(1, _FIRST_QUEUE_S // faster)})


def simulated_s(trace: Trace, chosen: OnePolicySection, slots: int, gap_ms: int) -> float:
    """How long jobs take on average in a simulation, in seconds.

    Args:
        trace: As fast as it is to be.
        chosen: The policy.
        slots: On so many machines of one slot.
        gap_ms: From one plan to the next at least.
    """
    kind = policies()[chosen.name]
    config = policy_config(chosen, kind)
    setup = Setup(
        trace,
        (),
        built(kind, config),
        nodes=ClusterSection(servers=slots).fixed.nodes,
        durations=False,
        estimates=estimates_of(kind, config),
        round_gap_ms=gap_ms,
        keep_record=True,
    )
    jobs = Simulation(setup).run().record.jobs
    return sum(job.jct_ms for job in jobs) / len(jobs) / 1_000


def live(trace: Trace, chosen: OnePolicySection, slots: int, gap_ms: int) -> Figures:
    """Run a trace on a live master; returns how long jobs took, and what it took the master.

    Args:
        trace: As fast as it is to be.
        chosen: The policy.
        slots: On so many agents with one slot each.
        gap_ms: From one plan to the next at least.
    """
    names = [f"node{number}" for number in range(slots)]
    settings = {
        "nodes": dict.fromkeys(names, _NODE),
        "local": {"max_instances": 1},
        "round_min_interval": f"{gap_ms}ms",
        "policy": chosen.model_dump(mode="json"),
    }
    with state_directory() as state_dir, ExitStack() as stack:
        _teach(state_dir, trace, chosen)
        master = stack.enter_context(running_master(state_dir, settings))
        client = stack.enter_context(master.client())
        users = _users(stack, master, client, trace)
        stack.enter_context(_agents(master, client, names, trace))
        wait_until(lambda: client.describe().workers_connected == slots, "the connection of all")
        late_s = _submit(users, trace)
        while not _over(client, len(trace.jobs)):
            time.sleep(_LOOK_S)
        jobs = [job for job in client.jobs(ended=True) if job.state in _ENDED]
        took = sorted((job.finished_ms - job.submitted_ms) / 1_000 for job in jobs)
        return {
            "succeeded": sum(job.state == "succeeded" for job in jobs),
            "jct_mean_s": round(sum(took) / len(took), 2),
            "jct_p50_s": round(took[len(took) // 2], 2),
            "submitted_late_s": round(late_s, 2),
            "rounds": client.describe().rounds,
        }


def _teach(state_dir: Path, trace: Trace, chosen: OnePolicySection) -> None:
    """Write what past jobs teach into the master's journal, as it is before its first start."""
    if not trace.past:
        return
    kind = policies()[chosen.name]
    mode = estimates_of(kind, policy_config(chosen, kind))
    past = (replace(it, demand=_DEMAND) for it in trace.past)
    learned = taught(Knowledge(), past, SystemClock().now(), mode)
    with SqlJournal.open(f"sqlite:///{state_dir / 'journal.db'}") as journal:
        journal.commit(Changes(values={"learned": learned.to_json()}))


def _users(
    stack: ExitStack, master: RunningMaster, operator: Client, trace: Trace
) -> dict[str, Client]:
    """A connection of each user of a trace, by the name of the user."""
    told = yaml.safe_load((master.state_dir / "client.yaml").read_text())
    authorities = Path(told["ca_file"]).read_bytes()
    found = {}
    for owner in {job.owner or OWNER for job in trace.jobs}:
        token = operator.create_token(owner, "user").secret
        client = Client(master.address, authorities=authorities, token=token)
        found[owner] = stack.enter_context(client)
    return found


def _submit(users: Mapping[str, Client], trace: Trace) -> float:
    """Submit jobs as they arrive; returns by how much the latest of them was late."""
    begin, late = time.monotonic(), 0.0
    for job in trace.jobs:
        due = begin + job.arrival_ms / 1_000
        time.sleep(max(0.0, due - time.monotonic()))
        late = max(late, time.monotonic() - due)
        keys = {
            "name": job.id,
            "run": "a timer",
            "kind": "array",
            "tasks": len(job.tasks),
            "workload": str(job.workload),
            "resources": {"cpus": 1, "memory": f"{_MIB}MiB"},
            "reports_steps": False,
        }
        user = users[job.owner or OWNER]
        user.submit(yaml.safe_dump(keys), file_name=f"{job.id}.yaml")
    return late


def _over(client: Client, jobs: int) -> bool:
    states = client.describe().jobs_by_state
    return sum(count for state, count in states.items() if state in _ENDED) == jobs


@contextmanager
def _agents(
    master: RunningMaster, client: Client, names: Sequence[str], trace: Trace
) -> Iterator[None]:
    """Run `benchmarks.clockwork_agents` until the block ends."""
    request = {
        "tokens": [client.create_node_token(name, _TOKEN_MS).secret for name in names],
        "type": _TYPE,
        "milli_cpus": 1_000,
        "memory_mib": _MIB,
        "tasks_ms": {job.id: [task.duration_ms for task in job.tasks] for job in trace.jobs},
    }
    path = master.state_dir / "agents.json"
    path.write_text(json.dumps(request))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.clockwork_agents", str(path)], cwd=ROOT
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def measured(chosen: argparse.Namespace) -> Figures:
    """Run what has not been run yet; returns all figures."""
    recipe = TasksRecipe(kind="tasks", file=chosen.file, jobs=chosen.jobs or None)
    trace = hastened(recipe.trace(1, ()), chosen.faster, past=chosen.with_past)
    chosen.results.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in chosen.policy or POLICIES:
        what = f"{chosen.file.name.partition('.')[0]}-{len(trace.jobs)}-{chosen.faster}"
        past = "-past" if chosen.with_past else ""
        past += "" if chosen.gap == _GAP_MS else f"-{chosen.gap}ms"
        kept = chosen.results / f"{what}{past}-{chosen.slots}-{name.replace(':', '_')}.json"
        if not kept.exists():
            policy = section(name, chosen.faster)
            row = {
                "policy": name,
                **surroundings(),
                **live(trace, policy, chosen.slots, chosen.gap),
            }
            expected = simulated_s(trace, policy, chosen.slots, chosen.gap)
            row["simulated_jct_mean_s"] = round(expected, 2)
            kept.write_text(json.dumps(row))
        rows.append(json.loads(kept.read_text()))
    return {
        "jobs": len(trace.jobs),
        "tasks": sum(len(job.tasks) for job in trace.jobs),
        "faster": chosen.faster,
        "slots": chosen.slots,
        "policies": rows,
        "missed": [it["policy"] for it in rows if it["succeeded"] < len(trace.jobs)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a job did not succeed."""
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a trace of jobs")
    parser.add_argument("--policy", action="append", help=f"default: {', '.join(POLICIES)}")
    parser.add_argument("--jobs", type=int, default=0, help="the first so many; default: all")
    parser.add_argument("--faster", type=int, default=200, help="default: 200")
    parser.add_argument("--slots", type=int, default=150, help="default: 150")
    parser.add_argument(
        "--gap", type=int, default=_GAP_MS, help="ms from plan to plan at least; default: 1000"
    )
    parser.add_argument("--with-past", action="store_true", help="past jobs have taught the master")
    parser.add_argument("--results", type=Path, default=Path("build/live-run-times"))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    return publish(measured(chosen), as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
