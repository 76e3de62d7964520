"""How long a whole planning round takes in a large cluster of which little has changed.

Run as `python -m benchmarks.rounds [--tasks N] [--changes N] [--rounds N] [--json]`. The production
state machine gets its events directly and its actions take effect at once, on virtual time: first
all tasks are placed and run, then some jobs end and as many arrive, repeatedly. The timed parts of
a round are: from the events to the request for a plan, with the snapshot; the pickling of the
request and of the plan; the plan; and from the plan to the actions. The time of a snapshot from
scratch is shown beside them. All times are processor time of this process. Counts, which do not
depend on the load of the machine, show how much of the snapshot was rebuilt, and that no round is
held when nothing has changed.
"""

from __future__ import annotations

import pickle
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from benchmarks.harness import Figures, options, publish, surroundings
from benchmarks.packing import TYPES, Amounts, offering, task
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.adapters.planner.child import Answer
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanReceiver, PlanSender
from eva_master.adapters.planner.snapshot_diff import Sender, SnapshotReceiver
from eva_master.app.sections.building import build_policy
from eva_master.control.machine import Machine
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.colocation import key, observe
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.actions import (
    Action,
    FetchFiles,
    LaunchInstance,
    RequestPlan,
    StartTask,
    StopTask,
    TaskOrder,
    TerminateInstance,
)
from eva_master.model.events import (
    Event,
    InstanceGone,
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    RunReport,
    Tick,
    WorkerFetched,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot, ThroughputTable
from eva_master.ports import Policy
from eva_master.testing.job_views import changed
from eva_wire.values.ids import MILLION, InstanceId, Millis, RunId, Workload

KINDS: tuple[tuple[str, Amounts], ...] = (
    ("train", (1, 4, 16)),
    ("train", (1, 7, 30)),
    ("infer", (0, 0.5, 2)),
    ("infer", (0, 0.75, 3)),
    ("infer", (0, 1, 4)),
    ("etl", (0, 1.5, 8)),
    ("etl", (0, 2, 10)),
    ("etl", (0, 3, 16)),
    ("test", (0, 0.25, 0.5)),
    ("test", (0, 0.25, 1)),
    ("test", (0, 0.5, 1)),
    ("test", (0, 0.75, 1.5)),
)
"""Workloads and what their tasks need: four of them to an instance, more or less."""

GOALS_S = {8_000: (0.15, 0.3), 100_000: (1.5, None)}
"""Goals for the median and the longest round in seconds, by the number of tasks."""
FIRST_S = 2.0
"""Goal for the first plan after a start, of the smaller of these numbers of tasks."""
_STEP_MS = 2_000
_NEVER_MS = 1 << 40
_SESSION = 1
_SEED = 20
_OWNER = "bench"
_WARM = 4
"""Untimed rounds at the beginning, while delays are still being learned."""
_REPEATED = 5
_SOON = 100
"""Turns within which the cluster must come to rest after a plan."""

T = TypeVar("T")


class Stopwatch:
    """Sums processor time by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, call: Callable[[], T]) -> T:
        """Call a function and add its time to a name."""
        start = time.process_time()
        try:
            return call()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start

    @property
    def total(self) -> float:
        """All of it, in seconds."""
        return sum(self.seconds.values())


class Cluster:
    """A state machine whose every action takes effect at once, and the policy that plans for it.

    Attributes:
        machine: The production one.
        rounds: Plans that were made.
        now: Virtual time.
    """

    def __init__(self, policy: Policy, table: ThroughputTable) -> None:
        state = State(tuple(offering(*kind) for kind in TYPES))
        state.teach(_OWNER, Lessons(throughput=table))
        self.machine = Machine(state, Settings(round_gap_ms=1, sync_period_ms=_NEVER_MS))
        self.rounds = 0
        self._policy = policy
        self.now = Millis(0)
        self._sender, self._receiver = Sender(), SnapshotReceiver()
        self._plan_sender, self._plan_receiver = PlanSender(), PlanReceiver()
        self._orders: dict[RunId, TaskOrder] = {}

    def submit(self, specs: Iterable[JobSpec]) -> list[Event]:
        """The events of the arrival of jobs."""
        return [JobSubmitted(f"submit-{spec.name}", spec) for spec in specs]

    def end(self, runs: Iterable[RunId]) -> list[Event]:
        """The events of tasks that succeed."""
        state = self.machine.state
        return [
            self._said(place, run, Phase.EXITED, exit_code=0)
            for run in runs
            if (place := state.runs[run].instance) is not None
        ]

    def running(self) -> list[RunId]:
        """The task runs that run now."""
        return list(self._orders)

    def round(self, events: Sequence[Event], watch: Stopwatch) -> None:
        """Hold the rounds that are due, and let the cluster come to rest.

        Args:
            events: Events of the round.
            watch: Gets the times.
        """
        actions = watch.time("events", lambda: self.machine.handle(events, self._later()))
        actions = [*actions, *self._planned(actions, watch)]
        self._settle(actions)

    def _planned(self, actions: Sequence[Action], watch: Stopwatch) -> list[Action]:
        """Answer a request for a plan, if there is one among actions, and those that follow it."""
        followed: list[Action] = []
        while request := next((a for a in actions if isinstance(a, RequestPlan)), None):
            adopt = partial(self.machine.handle, [self._answer(request, watch)], self._later())
            actions = watch.time("adoption", adopt)
            followed.extend(actions)
            self.rounds += 1
        return followed

    def _answer(self, request: RequestPlan, watch: Stopwatch) -> PlanReady:
        """Have a plan made as by the planner's process."""
        asked = watch.time("parcel", lambda: self._sent(request.snapshot))
        plan, memory = watch.time("plan", lambda: self._policy.plan(asked, request.memory))
        plan = watch.time("parcel", lambda: self._sent_back(plan, memory))
        return PlanReady(request.round, plan, memory)

    def _sent(self, seen: Snapshot) -> Snapshot:
        """The snapshot as it arrives in the planner's process."""
        return self._receiver.snapshot(_sent(self._sender.diff(seen)))

    def _sent_back(self, plan: Plan, memory: PolicyMemory | None) -> Plan:
        """The plan as it arrives in the master's process, with the policy's memory."""
        diff = self._plan_sender.diff(plan, self._plan_receiver.number)
        return self._plan_receiver.plan(_sent(Answer(diff, memory)).plan)

    def _settle(self, actions: Sequence[Action]) -> None:
        """Answer actions until there are none left; no time passes but for plans."""
        for _ in range(_SOON):
            events = [event for action in actions for event in self._effect(action)]
            if not events:
                return
            actions = self.machine.handle(events, self.now)
            actions = [*actions, *self._planned(actions, Stopwatch())]
        raise RuntimeError("the cluster does not come to rest")

    def _effect(self, action: Action) -> list[Event]:
        match action:
            case LaunchInstance(instance, bought, _):
                capacity = bought.type.capacity
                return [
                    InstanceUp(instance, self.now),
                    WorkerRegistered(instance, _SESSION, capacity, (), "host"),
                ]
            case TerminateInstance(instance):
                known = self.machine.state.instances[instance]
                return [InstanceGone(instance, known.up_ms, self.now)]
            case StartTask(instance, order):
                self._orders[order.run] = order
                return [self._said(instance, order.run, Phase.RUNNING)]
            case StopTask(instance, run, _, _):
                return [self._said(instance, run, Phase.EXITED, exit_code=0, stopped=True)]
            case FetchFiles(instance, order):
                return [WorkerFetched(instance, _SESSION, order.run)]
            case _:
                return []

    def _said(
        self,
        instance: InstanceId,
        run: RunId,
        phase: Phase,
        *,
        exit_code: int | None = None,
        stopped: bool = False,
    ) -> Event:
        order = self._orders[run]
        if phase is Phase.EXITED:
            del self._orders[run]
        report = RunReport(run, order.attempt, phase, exit_code=exit_code, stopped=stopped)
        return WorkerReported(instance, _SESSION, (report,))

    def restart(self, policy: Policy) -> None:
        """Forget what a master and its planner's process forget when they end.

        Args:
            policy: A new one, as built from the settings.
        """
        self._policy = policy
        self._sender, self._receiver = Sender(), SnapshotReceiver()
        self._plan_sender, self._plan_receiver = PlanSender(), PlanReceiver()
        self.forget_views()

    def forget_views(self) -> None:
        """Have all of the next snapshot made anew."""
        state = self.machine.state
        state.view_cache = ViewCache()
        for job in state.active:
            state.view_cache.job_changed(job)
        for instance in state.live:
            state.view_cache.instance_changed(instance)

    def wait(self) -> None:
        """Advance the time until a round is due."""
        self.now = Millis(self.now + self.machine.settings.round_period_ms)

    def _later(self) -> Millis:
        self.now = Millis(self.now + _STEP_MS)
        return self.now


def _sent(value: T) -> T:
    """The value as it arrives in another process."""
    parcel: FastPickle[T] = pickle.loads(pickle.dumps(FastPickle(value)))
    return parcel.content


def _learned() -> ThroughputTable:
    """Every pair of workloads was seen together; neighbours take one to four per cent."""
    table = ThroughputTable()
    names = sorted({Workload(name) for name, _ in KINDS})
    for row, name in enumerate(names):
        for column, other in enumerate(names):
            lost = 10_000 * (1 + (row + column) % 4)
            table = observe(table, key(name, [other]), MILLION - lost)
    return table


class _Jobs:
    """Jobs of one task each, drawn evenly."""

    def __init__(self) -> None:
        self._choose = random.Random(_SEED)
        self._count = 0

    def __call__(self, count: int) -> list[JobSpec]:
        first, self._count = self._count, self._count + count
        return [
            # Every job file is read by itself: no two jobs share a value.
            JobSpec(f"job-{number}", _OWNER, (_task(*self._choose.choice(KINDS)),))
            for number in range(first, self._count)
        ]


def _task(workload: str, need: Amounts) -> TaskSpec:
    return task(workload, dict.fromkeys(("c7i", "p3", "r7i") if not need[0] else ("p3",), need))


def measure(policy: str, tasks: int, changes: int, rounds: int) -> Figures:
    """Fill a cluster, then change a little of it repeatedly.

    Args:
        policy: Which scheduler decides.
        tasks: Number of running tasks.
        changes: Arrivals and completions before each round.
        rounds: Number of rounds, at least two.
    """
    spare_lasting_values()
    choose, jobs = random.Random(_SEED), _Jobs()
    cluster = Cluster(build_policy(policy, {}), _learned())
    state = cluster.machine.state
    first = Stopwatch()
    cluster.round(cluster.submit(jobs(tasks)), first)
    for _ in range(_WARM):
        cluster.round(_change(cluster, choose, jobs, changes), Stopwatch())
    laps: list[Stopwatch] = []
    anew: list[int] = []
    before_laps = cluster.rounds
    for _ in range(rounds):
        events = _change(cluster, choose, jobs, changes)
        laps.append(Stopwatch())
        before = state.view_cache.made
        cluster.round(events, laps[-1])
        anew.append(state.view_cache.made - before)
    held = cluster.rounds - before_laps
    if held < rounds:
        raise RuntimeError(f"only {held} of {rounds} rounds held a plan")
    whole = _summary([lap.total for lap in laps])
    return {
        "tasks": len(cluster.running()),
        "instances": len(state.live),
        "filling_s": round(first.total, 3),
        "round_s": whole,
        "rounds_held": held,
        **{
            f"{part}_ms": _summary([1000 * lap.seconds.get(part, 0.0) for lap in laps])
            for part in ("events", "parcel", "plan", "adoption")
        },
        "views_made": round(statistics.median(anew)),
        **_snapshots(cluster),
        **_quiet(cluster),
        "start_s": _start(cluster, policy, _change(cluster, choose, jobs, changes)),
    }


def _start(cluster: Cluster, policy: str, events: Sequence[Event]) -> dict[str, float]:
    """The first round after a start, part by part."""
    watch = Stopwatch()
    cluster.restart(build_policy(policy, {}))
    cluster.round(events, watch)
    return {part: round(seconds, 3) for part, seconds in watch.seconds.items()}


def _missed(figures: Figures, tasks: int) -> list[str]:
    """Goals that figures miss; only the numbers of tasks above have any."""
    median, longest = GOALS_S.get(tasks, (None, None))
    missed = []
    if median is not None and figures["round_s"]["median"] > median:
        missed.append(f"median round within {median:g} s")
    if longest is not None and figures["round_s"]["max"] > longest:
        missed.append(f"longest round within {longest:g} s")
    if tasks == min(GOALS_S) and sum(figures["start_s"].values()) > FIRST_S:
        missed.append(f"first plan after a start within {FIRST_S:g} s")
    return missed


def _change(cluster: Cluster, choose: random.Random, jobs: _Jobs, changes: int) -> list[Event]:
    """End some jobs and submit as many."""
    ending = choose.sample(sorted(cluster.running()), changes // 2)
    return [*cluster.end(ending), *cluster.submit(jobs(changes - changes // 2))]


def _snapshots(cluster: Cluster) -> Figures:
    """Snapshots after one change each against one from scratch, which takes long."""
    state, settings = cluster.machine.state, cluster.machine.settings
    change, scratch = Stopwatch(), Stopwatch()
    for _ in range(_REPEATED):
        state.view_cache.job_changed(next(iter(state.active)))
        seen = change.time("", lambda: snapshot(state, cluster.now, settings))
    kept = state.view_cache
    cluster.forget_views()
    made = scratch.time("", lambda: snapshot(state, cluster.now, settings))
    assert _without_work(made) == _without_work(seen), "a snapshot from scratch shows the same"
    state.view_cache = kept
    return {
        "snapshot_ms": round(1000 * change.total / _REPEATED, 3),
        "snapshot_from_scratch_ms": round(1000 * scratch.total, 3),
        "snapshot_ratio": round(_REPEATED * scratch.total / change.total, 1),
    }


def _without_work(seen: Snapshot) -> Snapshot:
    """All but the work that is left: what was told of that stands while it is nearly true."""
    jobs = tuple(changed(job, estimate=None) for job in seen.jobs)
    return replace(seen, jobs=jobs, runs=tuple(replace(run, remaining=None) for run in seen.runs))


def _quiet(cluster: Cluster) -> Figures:
    """The time of a round in which nothing has changed."""
    watch = Stopwatch()
    cluster.wait()
    cluster.round([Tick()], Stopwatch())  # that the last changes took effect is news
    rounds, made = cluster.rounds, cluster.machine.state.view_cache.made
    for _ in range(_REPEATED):
        cluster.wait()
        cluster.round([Tick()], watch)
    return {
        "quiet_ms": round(1000 * sum(watch.seconds.values()) / _REPEATED, 3),
        "quiet_rounds_held": cluster.rounds - rounds,
        "quiet_views_made": cluster.machine.state.view_cache.made - made,
    }


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 4), "max": round(max(values), 4)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    chosen = options(__doc__, arguments, tasks=8000, changes=50, rounds=10)
    figures: Figures = {"surroundings": surroundings()}
    figures |= measure("eva", chosen.tasks, chosen.changes, chosen.rounds)
    figures["missed"] = _missed(figures, chosen.tasks)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
