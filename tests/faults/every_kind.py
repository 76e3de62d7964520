"""An episode of kills and pauses over jobs of every kind, with plain processes.

Arrays, gangs, chains, forks on owned nodes, jobs with deadlines on spot instances, jobs with caps
and jobs that are suspended: all of them at once, on one cluster of this machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from eva_master.adapters.local.interruptions import interrupt
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import InstanceId
from tests.e2e.cluster import EVA, PROGRAMS, Cluster, log_end, until
from tests.fakes.paths import PYTHON, short_tempdir
from tests.fakes.patience import DEADLINE_S
from tests.faults import checker
from tests.faults.campaign import PATIENCE_S, Result, ask

NODES = ("rack1", "rack2")
_NODE = {
    "type": "own.small",
    "capacity": {"cpus": 1, "memory": "512MiB"},
    "usd_per_hour": 0,
    "fence_after": "60s",
}
_CATALOG: dict[str, Any] = {
    "types": {
        "e2e.pair": {"cpus": 4, "memory": "8GiB", "price": "$0.20/h"},
        "e2e.one": {"cpus": 2, "memory": "4GiB", "price": "$0.12/h"},
    },
    "only": ["e2e"],
}
_SLOW = {"STEP_S": "0.2", "CHECKPOINT_S": "1"}
FORKED_STEPS = 1_500
KINDS: dict[str, dict[str, Any]] = {
    "single": {},
    "array": {"kind": "array", "tasks": 2},
    "gang": {"kind": "gang", "tasks": 2},
    "chain": {},
    "deadline": {"spot": "allowed", "duration": "5m", "deadline": {"within": "2h"}},
    "suspended": {},
    "capped": {"max_cost": "$0.003", "grace_period": "5s"},
    "forked": {
        "run": f"{PYTHON} {shlex.quote(str(PROGRAMS / 'forked.py'))}",
        "resources": {"cpus": 1, "memory": "256MiB"},
        "total_steps": FORKED_STEPS,
        "forks": 2,
        "merge": {"every": "4s"},
    },
}
_CAP_MICRO_USD = 3_000
_OVERSPENT_MICRO_USD = 200_000 * (5 + 60) // 3600
"""An hour of the dearest instance for the grace period and a minute."""
_NO_CAP_MICRO_USD = 100_000_000
_AT_ONCE = 5
_LONGEST_PAUSE_S = 8.0
VICTIMS = ("master", "agent", "supervisor", "task", "node", "spot", "suspend")


class Episode:
    """A cluster under fire.

    Args:
        cluster: Started, with its owned nodes.
        nodes: Starts the worker of an owned node, if it does not run.
        rng: Decides everything that can be decided.
    """

    def __init__(self, cluster: Cluster, nodes: OwnedNodes, rng: random.Random) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._rng = rng
        self._kinds: dict[str, str] = {}
        self._follows: dict[str, str] = {}
        self._open: list[str] = []
        self._suspended: set[str] = set()
        self._over_ms: dict[tuple[str, int], int] = {}
        self._paused: list[psutil.Process] = []
        self._away = False
        self.result = Result()

    def run(self, count: int) -> Result:
        """Let `count` faults happen, then let everything end, and look at what has become of it."""
        began = time.monotonic()
        while sum(self.result.faults.values()) < count:
            self._keep_busy()
            self._look()
            for _ in range(self._rng.randint(1, 3)):
                self._strike()
                time.sleep(self._rng.uniform(0, 2))
            time.sleep(self._rng.uniform(0, _LONGEST_PAUSE_S))
            self._relent()
            if self._rng.random() < 0.5:
                self._finish_one()
        self._end()
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def logs(self) -> list[tuple[str, str]]:
        """Titles and ends of the logs that tell why something went wrong."""
        nodes = ((f"{it}.log", log_end(self._cluster.home / f"{it}.log")) for it in NODES)
        return [*self._cluster.logs(), *nodes]

    # -- load ------------------------------------------------------------------------------------

    def _keep_busy(self) -> None:
        while len(self._open) < _AT_ONCE:
            there = {self._kinds[job] for job in self._open}
            # One of each before any comes twice, so that no episode is without a kind.
            kind = self._rng.choice([it for it in KINDS if it not in there] or list(KINDS))
            first = self._submit(kind, {})
            if kind == "chain":
                second = self._submit(kind, {"after": [first]})
                self._follows[second] = first

    def _submit(self, kind: str, more: dict[str, Any]) -> str:
        name = f"{kind}{len(self._kinds)}"
        keys = {"retries": 1000, "envs": _SLOW, **KINDS[kind], **more}
        job = ask(lambda: self._cluster.submit(name, **keys))
        self._kinds[job] = kind
        self._open.append(job)
        self.result.jobs += 1
        return job

    def _look(self) -> None:
        """Note which tasks a client is told to have succeeded."""
        for job in self._kinds:
            found = ask(lambda job=job: self._cluster.job(job).tasks)
            for task in found:
                if task.state == "succeeded" and not task.replica:
                    self._over_ms.setdefault((job, task.index), int(time.time() * 1000))

    def _finish_one(self) -> None:
        job = self._open.pop(self._rng.randrange(len(self._open)))
        self._cluster.finish(job)
        if job in self._follows.values():
            return  # what comes after it is finished by itself
        if self._kinds[job] == "capped":
            self._lift_cap(job)
        if job in self._suspended:
            self._suspended.discard(job)
            ask(lambda: self._cluster.client.resume(job))

    def _lift_cap(self, job: str) -> None:
        """See that a job has not cost more than its cap and a stop, and have it go on."""
        cost = ask(lambda: self._cluster.job(job).cost_micro_usd)
        if cost > _CAP_MICRO_USD + _OVERSPENT_MICRO_USD:
            self._note(job, iter([f"it has cost {cost} micro-dollars beside its cap"]))
        ask(lambda: self._cluster.client.resume(job, max_cost=_NO_CAP_MICRO_USD))

    # -- faults ----------------------------------------------------------------------------------

    def _strike(self) -> None:
        victim = self._rng.choice(VICTIMS)
        verb = self._rng.choice(("kill", "pause"))
        strike: Callable[[str], str] = getattr(self, f"_strike_{victim}")
        try:
            what = strike(verb)
        except (psutil.Error, IndexError, ProcessLookupError, EvaError, OSError):
            return  # It is dead, or just not there, or the master is away.
        if what:
            self.result.faults[what] = self.result.faults.get(what, 0) + 1

    def _hit(self, process: psutil.Process, verb: str, name: str) -> str:
        if verb == "kill":
            process.kill()
        else:
            process.suspend()
            self._paused.append(process)
        return f"{verb} {name}"

    def _strike_master(self, verb: str) -> str:
        if self._away:
            return ""
        self._away = True
        if verb == "kill":
            self._cluster.kill()
            return "kill master"
        return self._hit(self._cluster.master(), verb, "master")

    def _agent(self) -> psutil.Process:
        found = [it for it in self._cluster.processes() if "eva_worker.agent" in _arguments(it)]
        return self._rng.choice(sorted(found, key=lambda it: it.pid))

    def _strike_agent(self, verb: str) -> str:
        return self._hit(self._agent(), verb, "agent")

    def _strike_supervisor(self, verb: str) -> str:
        supervisor = self._agent().parent()
        return self._hit(supervisor, verb, "supervisor") if supervisor is not None else ""

    def _strike_task(self, verb: str) -> str:
        running = []
        for job in self._kinds:
            for index in (0, 1):
                lines = self._cluster.lines(job, index)
                if lines and lines[-1].event != "end":
                    running.append(lines[-1].pid)
        return self._hit(psutil.Process(self._rng.choice(running)), verb, "task")

    def _strike_node(self, verb: str) -> str:
        worker = self._nodes.process(self._rng.choice(NODES))
        return self._hit(worker, verb, "worker of a node") if worker is not None else ""

    def _strike_spot(self, verb: str) -> str:
        del verb
        spot = [it for it, record in self._cluster.records().items() if _is_spot_up(record)]
        interrupt(self._cluster.state_dir / "cloud", InstanceId(self._rng.choice(sorted(spot))))
        return "spot instance taken"

    def _strike_suspend(self, verb: str) -> str:
        jobs = [it for it in self._open if self._kinds[it] == "suspended"]
        if self._away or not jobs:
            return ""
        job = self._rng.choice(jobs)
        if verb == "kill" or job not in self._suspended:
            self._cluster.client.suspend(job)
            self._suspended.add(job)
        else:
            self._cluster.client.resume(job)
            self._suspended.discard(job)
        return "suspend or resume"

    def _relent(self) -> None:
        """Have everything that is paused or dead go on, in any order."""
        self._rng.shuffle(self._paused)
        for process in self._paused:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self._paused.clear()
        if self._away:
            if not self._cluster.runs():
                self._cluster.start()
            self._away = False
        self._nodes.start()

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> None:
        cluster = self._cluster
        for job in sorted(self._suspended):
            ask(lambda job=job: cluster.client.resume(job))
        for job in self._open:
            if self._kinds[job] == "capped":
                self._lift_cap(job)
        cluster.finish(*self._open)
        for job in self._kinds:
            ended = lambda job=job: ask(lambda: cluster.job(job).finished_ms)  # noqa: E731
            until(ended, f"{job} ends", within_s=PATIENCE_S)
        self._look()
        until(lambda: not self._bought(), "instances go", within_s=PATIENCE_S)
        for job, kind in self._kinds.items():
            self._note(job, self._faults(job, kind))
        self._note("the books", checker.book_faults(cluster, NODES))
        self._nodes.stop()
        cluster.stop()

    def _bought(self) -> set[str]:
        there = ask(lambda: self._cluster.client.describe().instances)
        return {it.id for it in there} - set(NODES)

    def _faults(self, job: str, kind: str) -> Iterator[str]:
        ended = self._cluster.job(job)
        if ended.state != "succeeded":
            yield f"{ended.state}: {ended.reason}"
        if kind == "forked":
            yield from checker.fork_faults(self._cluster, job, FORKED_STEPS)
            return
        for index in range(KINDS[kind].get("tasks", 1)):
            lines = self._cluster.lines(job, index)
            self.result.attempts += len({line.attempt for line in lines})
            # A gang starts over as a whole, with the members that had succeeded.
            over, others = self._over_ms.get((job, index)), []
            if kind == "gang":
                over, others = None, self._cluster.lines(job, 1 - index)
            yield from (f"task {index} {it}" for it in checker.task_faults(lines, over, others))
        if before := self._follows.get(job):
            lines = self._cluster.lines(before)
            yield from checker.chain_faults(lines, self._cluster.lines(job))

    def _note(self, name: str, faults: Iterator[str]) -> None:
        self.result.wrong.extend(f"{name}: {it}" for it in faults)


class OwnedNodes:
    """The workers of owned nodes, as an operator's service manager runs them.

    Args:
        cluster: Which they join.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start each worker that does not run."""
        for name in NODES:
            known = self._workers.get(name)
            if known is None or known.poll() is not None:
                self._workers[name] = self._start(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        home = self._cluster.home
        token = home / f"{name}.token"
        if not token.exists():
            make = ("node", "token", name, "--out", str(token))
            # A busy machine's master may be too slow for the command at first.
            made = lambda: self._cluster.eva(*make).returncode == 0  # noqa: E731
            until(made, f"a token of {name} is made", within_s=PATIENCE_S)
        joins = ["--join", str(token), "--type", "own.small", "--state-dir", str(home / name)]
        with (home / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*EVA, "worker", *joins],
                env={**os.environ, "EVA_ITERATOR_DEBUG": ""},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def process(self, name: str) -> psutil.Process | None:
        """The worker of a node; `None` if it does not run."""
        worker = self._workers.get(name)
        return psutil.Process(worker.pid) if worker is not None and worker.poll() is None else None

    def stop(self) -> None:
        """Have the workers leave."""
        for worker in self._workers.values():
            worker.terminate()
        for worker in self._workers.values():
            worker.wait(DEADLINE_S)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_spot_up(record: Any) -> bool:
    return record.purchase == "spot" and record.up_ms is not None and record.gone_ms is None


@contextlib.contextmanager
def cluster_of() -> Iterator[tuple[Cluster, OwnedNodes]]:
    """A cluster of plain processes, with two owned nodes and a spot market."""
    settings = {
        "nodes": dict.fromkeys(NODES, _NODE),
        "local": {"launch_delay": "100ms", "spot": {"notice": "0s"}},
        "lost_worker_timeout": "2m",
    }
    with tempfile.TemporaryDirectory(prefix="eva-faults-", dir=short_tempdir()) as home:
        cluster = Cluster(Path(home), settings=settings, catalog=_CATALOG)
        nodes = OwnedNodes(cluster)
        try:
            cluster.start()
            nodes.start()
            until(lambda: set(NODES) <= set(cluster.instances()), "both nodes join")
            yield cluster, nodes
        finally:
            nodes.stop()
            cluster.close()
