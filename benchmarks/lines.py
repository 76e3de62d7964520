"""The cost of freed room in a pool for the control loop, however many tasks wait in line.

Run as `python -m benchmarks.lines [--waiting N ...] [--json]`. Tasks of single-task jobs, or of one
array, stand in a line for a pool whose instances are full. One after the other ends, and its room
is given to the next in the same turn. The figure is the number of calls, of functions of Python and
of those it has built in, in such a turn: it is the same on every machine, a busy one too. No plan
is made meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from benchmarks.calls import Calls
from benchmarks.harness import Figures, publish
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
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import NewInstance, Plan
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload

WAITING = (100, 10_000)
GOAL_RATIO = 1.3
"""How many times as many calls a room may cost with the most tasks as with the fewest."""
ROOMS = 40
"""Rooms that become free; fewer than wait."""
_INSTANCES = 4
_SLOTS = 4
_FAMILY = Family("c")
_OFFERING = Offering(
    InstanceType("c.4", _FAMILY, Resources(0, 1_000 * _SLOTS, _SLOTS)), Price(1_000_000)
)
_TASK = TaskSpec(
    Workload("w"), Program("true"), ((_FAMILY, Resources(0, 1_000, 1)),), reports_steps=False
)
_Begun = tuple[RunId, InstanceId, int]


class Cluster:
    """The state machine with a pool that is full, and so many tasks that wait in line for it.

    Args:
        waiting: Tasks that wait at the beginning.
        jobs: Whether each is a job of its own, instead of one array.
    """

    def __init__(self, waiting: int, *, jobs: bool) -> None:
        self._now = 0
        self._machine = Machine(State((_OFFERING,)), Settings())
        self._running: list[_Begun] = []
        self._asked: list[RequestPlan] = []
        self._answer(self._machine.recover(Millis(0)))
        tasks = waiting + _INSTANCES * _SLOTS
        for number in range(tasks if jobs else 1):
            mine = (_TASK,) if jobs else (_TASK,) * tasks
            spec = JobSpec(f"a{number}", "bench", mine, kind=JobKind.ARRAY)
            self._tell(JobSubmitted(f"submit-{number}", spec))
        self._plan()

    def _plan(self) -> None:
        """Answer the first plan that was asked for. Later ones stay without an answer."""
        line = Line(("p",), tuple(JobId(job) for job in self._machine.state.jobs))
        keys = tuple(range(_INSTANCES))
        pool = Pool("p", keys, "benchmark")
        launches = tuple(NewInstance(key, _OFFERING) for key in keys)
        asked = self._asked.pop(0)
        self._tell(PlanReady(asked.round, Plan(launches, (), pools=(pool,), lines=(line,)), None))

    def free(self) -> int:
        """Have a task end; returns the calls of the turn that gives its room to the next.

        Raises:
            RuntimeError: The room was not taken in that turn.
        """
        run, place, attempt = self._running.pop(0)
        ended = WorkerReported(place, 1, (RunReport(run, attempt, Phase.EXITED, exit_code=0),))
        self._now += 1
        calls = Calls(builtins=True)
        with calls.counting():
            actions = self._machine.handle([ended], Millis(self._now))
        if not any(
            isinstance(action, StartTask) and action.instance == place for action in actions
        ):
            raise RuntimeError(f"the room of {run} was not taken in the turn that heard of it")
        self._machine.take_changes()
        self._answer(actions)
        return calls.made

    def _tell(self, event: Event) -> None:
        self._now += 1
        actions = self._machine.handle([event], Millis(self._now))
        self._machine.take_changes()
        self._answer(actions)

    def _answer(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case LaunchInstance():
                    self._tell(InstanceUp(action.instance, Millis(self._now)))
                    capacity = _OFFERING.type.capacity
                    self._tell(WorkerRegistered(action.instance, 1, capacity, ()))
                case StartTask():
                    begun = action.order.run, action.instance, action.order.attempt
                    self._running.append(begun)
                    report = RunReport(begun[0], begun[2], Phase.RUNNING)
                    self._tell(WorkerReported(begun[1], 1, (report,)))
                case RequestPlan():
                    self._asked.append(action)
                case _:
                    pass


def measure(waiting: int, *, jobs: bool) -> float:
    """Calls for a room that becomes free, the median of several.

    Args:
        waiting: Tasks that wait; more than `ROOMS`.
        jobs: See `Cluster`.
    """
    cluster = Cluster(waiting, jobs=jobs)
    return statistics.median(cluster.free() for _ in range(ROOMS))


def _enough(text: str) -> int:
    number = int(text)
    if number <= ROOMS:
        raise argparse.ArgumentTypeError(f"more than {ROOMS} tasks wait")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--waiting", type=_enough, action="append", help="may be repeated; default: 100 and 10000"
    )
    chosen = parser.parse_args(arguments)
    sizes = sorted(set(chosen.waiting or WAITING))
    figures: Figures = {"missed": []}
    for name, jobs in (("jobs", True), ("array", False)):
        calls = {str(waiting): measure(waiting, jobs=jobs) for waiting in sizes}
        ratio = round(calls[str(sizes[-1])] / calls[str(sizes[0])], 3)
        figures[name] = {"calls": calls, "ratio": ratio}
        if ratio > GOAL_RATIO:
            figures["missed"].append(name)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
