"""The cost of one task of an array in the control loop, for arrays of several sizes.

Run as `python -m benchmarks.arrays [--tasks N ...] [--slots N] [--profile N] [--json]`. The state
machine of production gets every event of every task, each in a turn of its own: its place, its
start, `running`, and its exit. Planning is in the loop, with snapshots, plans that are checked and
adopted, and a planner that fills the slots that are free in the order of the tasks. After each turn
what has changed is taken for the journal. The figure with the read model published after each turn
is a second one: a busy master does so once for all that it has heard. All times are processor time,
the least of several runs. The yardstick is the time of a fixed piece of Python in the same process:
by it the figures of machines, and of a busy machine and a quiet one, are compared.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.harness import Figures, publish, surroundings
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, LaunchInstance, RequestPlan, StartTask
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import (
    Event,
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    RunReport,
    Tick,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import JobState

TASKS = (1_000, 10_000)
SLOTS = 64
REPEATS = 3
GOAL_MS = 0.5
"""Milliseconds of processor time for a task with all its events."""
GOAL_RATIO = 1.3
"""How much more a task may cost in the largest array than in the smallest."""
_SLOTS_EACH = 16
_FAMILY = Family("c")
_OFFERING = Offering(
    InstanceType("c.16", _FAMILY, Resources(0, 1_000 * _SLOTS_EACH, _SLOTS_EACH)), Price(1_000_000)
)
_TASK = TaskSpec(
    Workload("w"), Program("true"), ((_FAMILY, Resources(0, 1_000, 1)),), reports_steps=False
)
_ROUND_MS = 1_000
_YARDSTICK = 20_000


class Cluster:
    """The state machine, with a cloud, workers and a planner that answer at once.

    Args:
        slots: How many tasks run at a time.
        publishes: Whether the read model is published after each turn.
    """

    def __init__(self, slots: int, *, publishes: bool = False) -> None:
        self._now = 0
        self._slots = slots
        self._machine = Machine(State((_OFFERING,)), Settings(round_gap_ms=_ROUND_MS))
        self._begun: list[tuple[RunId, InstanceId, int]] = []
        self._todo: list[Event] = []
        self.turns = self.rounds = 0
        self._publishes = publishes
        self._answer(self._machine.recover(Millis(0)))

    def run(self, tasks: int) -> None:
        """Run one array to its end.

        Raises:
            RuntimeError: The array does not end.
        """
        spec = JobSpec("a", "bench", (_TASK,) * tasks, kind=JobKind.ARRAY)
        self._tell(JobSubmitted("submit", spec))
        running: list[tuple[RunId, InstanceId, int]] = []
        while self._machine.state.jobs[JobId("a-1")].state is not JobState.SUCCEEDED:
            begun, self._begun = self._begun, []
            turns = self.turns
            for task in begun:
                self._report(*task, Phase.RUNNING)
            running += begun
            # Every second one, so that no instance is empty before there are no more tasks.
            over, running = running[::2], running[1::2]
            for task in over:
                self._report(*task, Phase.EXITED, exit_code=0)
            self._now += _ROUND_MS
            self._tell(Tick())
            if self.turns > turns + 1 + 10 * self._slots:
                raise RuntimeError("the control loop goes round in circles")

    def _report(
        self,
        run: RunId,
        place: InstanceId,
        attempt: int,
        phase: Phase,
        exit_code: int | None = None,
    ) -> None:
        self._now += 1
        report = RunReport(run, attempt, phase, exit_code=exit_code)
        self._tell(WorkerReported(place, 1, (report,)))

    def _tell(self, event: Event) -> None:
        self._todo.append(event)
        while self._todo:
            self._answer(self._machine.handle([self._todo.pop(0)], Millis(self._now)))

    def _answer(self, actions: list[Action]) -> None:
        self.turns += 1
        self._machine.take_changes()
        if self._publishes:
            self._machine.published()
        for action in actions:
            self._todo.extend(self._done(action))

    def _done(self, action: Action) -> Iterator[Event]:
        match action:
            case LaunchInstance():
                yield InstanceUp(action.instance, Millis(self._now))
                yield WorkerRegistered(action.instance, 1, _OFFERING.type.capacity, ())
            case StartTask():
                self._begun.append((action.order.run, action.instance, action.order.attempt))
            case RequestPlan():
                self.rounds += 1
                yield PlanReady(action.round, self._plan(action.snapshot), None)
            case _:
                pass

    def _plan(self, seen: Snapshot) -> Plan:
        """First come, first served; who finds no slot is told so."""
        free: list[InstanceId | int] = []
        for box in seen.instances:
            free += [box.id] * (_SLOTS_EACH - len(box.residents))
        room = self._slots // _SLOTS_EACH - len(seen.instances)
        free += [key for key in range(room) for _ in range(_SLOTS_EACH)]
        waiting = [run.id for run in seen.runs if run.instance is None]
        places = [Assign(run, box) for run, box in zip(waiting, free, strict=False)]
        new = dict.fromkeys(place.on for place in places if isinstance(place.on, int))
        holds = [Hold(run, "no slot is free") for run in waiting[len(free) :]]
        stay = [Assign(run.id, run.instance) for run in seen.runs if run.instance is not None]
        launches = tuple(NewInstance(key, _OFFERING) for key in new)
        return Plan(launches, (*stay, *places, *holds))


def measure(tasks: int, slots: int) -> Figures:
    """Run one array to its end, several times.

    Args:
        tasks: Its tasks.
        slots: How many run at a time; a multiple of 16.
    """
    spent: dict[bool, list[float]] = {False: [], True: []}
    sticks = []
    for publishes in (False, True) * REPEATS:
        sticks.append(yardstick())
        cluster = Cluster(slots, publishes=publishes)
        start = time.thread_time()
        cluster.run(tasks)
        spent[publishes].append((time.thread_time() - start) * 1_000 / tasks)
    per_task = min(spent[False])
    return {
        "ms_per_task": round(per_task, 4),
        "yardsticks_per_task": round(per_task / min(sticks), 2),
        "published_ms_per_task": round(min(spent[True]), 4),
        "turns": cluster.turns,
        "rounds": cluster.rounds,
    }


def yardstick() -> float:
    """Milliseconds that 100 changed copies of an immutable record take, each put into a table."""
    start = time.thread_time()
    place, known = _OFFERING, {}
    for number in range(_YARDSTICK):
        place = replace(place, price=Price(number))
        known[place.id] = place
    return (time.thread_time() - start) * 1_000 * 100 / _YARDSTICK


def _profile(tasks: int, slots: int) -> None:
    """Print where the time of the loop goes, by function."""
    profile = cProfile.Profile()
    profile.runcall(Cluster(slots).run, tasks)
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("an array has at least one task")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--tasks", type=_positive, action="append", help="may be repeated; default: 1000 and 10000"
    )
    parser.add_argument("--slots", type=int, default=SLOTS, help=f"default: {SLOTS}")
    parser.add_argument("--profile", type=int, default=0, help="profile an array of so many tasks")
    chosen = parser.parse_args(arguments)
    if chosen.slots < _SLOTS_EACH or chosen.slots % _SLOTS_EACH:
        parser.error(f"--slots is a multiple of {_SLOTS_EACH}")
    if chosen.profile:
        _profile(chosen.profile, chosen.slots)
        return 0
    sizes = sorted(set(chosen.tasks or TASKS))
    figures: Figures = {"surroundings": surroundings(), "slots": chosen.slots}
    figures["yardstick_ms"] = round(min(yardstick() for _ in range(REPEATS)), 3)
    arrays = {str(tasks): measure(tasks, chosen.slots) for tasks in sizes}
    figures |= arrays
    costs = [array["ms_per_task"] for array in arrays.values()]
    figures["ratio"] = round(costs[-1] / costs[0], 3)
    slow = [name for name, array in arrays.items() if array["ms_per_task"] > GOAL_MS]
    figures["missed"] = [f"{name} tasks" for name in slow]
    if figures["ratio"] > GOAL_RATIO:
        figures["missed"].append("ratio")
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
