"""Logs of the attempts that simulated workers carry out."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Protocol

from eva_lab.simulator.cluster.work import Checkpoint, SimulatedAttempt
from eva_master.model.actions import TaskOrder
from eva_master.model.values import quick
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId


class AttemptLog(Protocol):
    """Receives what happens to attempts."""

    def ordered(self, attempt: SimulatedAttempt, /) -> None:
        """An attempt was ordered and now occupies room."""
        ...

    def began_from(self, attempt: SimulatedAttempt, origin: Checkpoint | None) -> None:
        """An attempt has found the checkpoint that it resumes from."""
        ...

    def over(self, attempt: SimulatedAttempt, now: Millis) -> None:
        """An attempt is over and has left its room."""
        ...


@dataclass
class History:
    """A log of all attempts that were ever ordered.

    Attributes:
        starts: Task run, number of the attempt, and instance.
        orders: The order of each start.
        origins: The checkpoint that each attempt resumed from.
    """

    starts: list[tuple[RunId, int, InstanceId]] = field(default_factory=list)
    orders: dict[tuple[RunId, int], TaskOrder] = field(default_factory=dict)
    origins: dict[tuple[RunId, int], Checkpoint | None] = field(default_factory=dict)

    def ordered(self, attempt: SimulatedAttempt) -> None:
        """See `AttemptLog.ordered`."""
        order = attempt.order
        self.starts.append((order.run, order.attempt, attempt.instance))
        self.orders[order.run, order.attempt] = order

    def began_from(self, attempt: SimulatedAttempt, origin: Checkpoint | None) -> None:
        """See `AttemptLog.began_from`."""
        self.origins[attempt.order.run, attempt.order.attempt] = origin

    def over(self, attempt: SimulatedAttempt, now: Millis) -> None:
        """Nothing is logged: this log does not contain ends."""


@quick
@dataclass(frozen=True, slots=True)
class Occupancy:
    """An attempt's time on an instance, in milliseconds of virtual time.

    Attributes:
        from_ms: When it was ordered.
        to_ms: When its room was free.
        executing_ms: How long the program ran together with its whole gang.
        moving_ms: How long the job made progress in that time.
    """

    run: RunId
    attempt: int
    instance: InstanceId
    from_ms: int
    to_ms: int
    executing_ms: int
    moving_ms: int


class CoveredTime:
    """The time that intervals cover together, as they come in roughly in the order of their ends.

    Attributes:
        covered_ms: So long.
    """

    __slots__ = ("_ends", "_starts", "covered_ms")

    def __init__(self) -> None:
        self.covered_ms = 0
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Cover the time of one more interval."""
        first = bisect_left(self._ends, start)
        last = first
        while last < len(self._starts) and self._starts[last] <= end:
            start = min(start, self._starts[last])
            end = max(end, self._ends[last])
            self.covered_ms -= self._ends[last] - self._starts[last]
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        self.covered_ms += end - start


@dataclass
class RunMetrics:
    """The sums over attempts that the metrics of a simulation are computed from.

    Attributes:
        executed: By job, when all of its tasks ran, or any task of an array.
        moving_ms: By job, how long it made progress; the sum over the tasks of an array.
        completed: Attempts that came to a good end, other than those of gangs.
        task_ms: Time that tasks spent on instances, summed over tasks.
        gpu_ms: GPUs that tasks held, times milliseconds.
        milli_cpu_ms: Thousandths of vCPUs that tasks held, times milliseconds.
        mib_ms: MiB of memory that tasks held, times milliseconds.
        occupancies: The occupancy of every attempt; `None` if they are not kept.
    """

    executed: dict[JobId, CoveredTime] = field(default_factory=dict)
    moving_ms: dict[JobId, int] = field(default_factory=dict)
    completed: int = 0
    task_ms: int = 0
    gpu_ms: int = 0
    milli_cpu_ms: int = 0
    mib_ms: int = 0
    occupancies: list[Occupancy] | None = None

    def ordered(self, _attempt: SimulatedAttempt) -> None:
        """Nothing is counted: an attempt counts once it is over."""

    def began_from(self, attempt: SimulatedAttempt, origin: Checkpoint | None) -> None:
        """Nothing is counted: no metric depends on checkpoints."""

    def over(self, attempt: SimulatedAttempt, now: Millis) -> None:
        """See `AttemptLog.over`."""
        order = attempt.order
        held, need = now - attempt.since_ms, order.demand
        executing = 0
        if attempt.together_ms is not None:
            until = now if attempt.halted_ms is None else attempt.halted_ms
            executing = until - attempt.together_ms
            if order.gang is None or order.index == 0:
                self.executed.setdefault(order.job, CoveredTime()).add(attempt.together_ms, until)
        self.task_ms += held
        self.gpu_ms += need.gpus * held
        self.milli_cpu_ms += need.milli_cpus * held
        self.mib_ms += need.memory_mib * held
        if order.gang is None or order.index == 0:
            job = order.job
            self.moving_ms[job] = self.moving_ms.get(job, 0) + attempt.moving_ms
        if order.gang is None and attempt.report is not None and attempt.report.exit_code == 0:
            self.completed += 1
        if self.occupancies is not None:
            self.occupancies.append(
                Occupancy(
                    order.run,
                    order.attempt,
                    attempt.instance,
                    attempt.since_ms,
                    now,
                    executing,
                    attempt.moving_ms,
                )
            )
