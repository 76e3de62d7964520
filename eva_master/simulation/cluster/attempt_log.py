"""Logs of the attempts that simulated workers carry out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from eva_master.model.actions import TaskOrder
from eva_master.model.ids import InstanceId, JobId, Millis, RunId
from eva_master.simulation.cluster.work import Attempt, Checkpoint


class AttemptLog(Protocol):
    """Receives what happens to attempts."""

    def ordered(self, attempt: Attempt, /) -> None:
        """An attempt was ordered and now occupies room."""
        ...

    def began_from(self, attempt: Attempt, origin: Checkpoint | None) -> None:
        """An attempt has found the checkpoint that it resumes from."""
        ...

    def over(self, attempt: Attempt, now: Millis) -> None:
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

    def ordered(self, attempt: Attempt) -> None:
        """See `AttemptLog.ordered`."""
        order = attempt.order
        self.starts.append((order.run, order.attempt, attempt.instance))
        self.orders[order.run, order.attempt] = order

    def began_from(self, attempt: Attempt, origin: Checkpoint | None) -> None:
        """See `AttemptLog.began_from`."""
        self.origins[attempt.order.run, attempt.order.attempt] = origin

    def over(self, attempt: Attempt, now: Millis) -> None:
        """Nothing is logged: this log does not contain ends."""


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


@dataclass
class RunMetrics:
    """The sums over attempts that the metrics of a simulation are computed from.

    Attributes:
        executing_ms: By job, how long all of its tasks ran.
        moving_ms: By job, how long it made progress.
        task_ms: Time that tasks spent on instances, summed over tasks.
        gpu_ms: GPUs that tasks held, times milliseconds.
        milli_cpu_ms: Thousandths of vCPUs that tasks held, times milliseconds.
        mib_ms: MiB of memory that tasks held, times milliseconds.
        occupancies: The occupancy of every attempt; `None` if they are not kept.
    """

    executing_ms: dict[JobId, int] = field(default_factory=dict)
    moving_ms: dict[JobId, int] = field(default_factory=dict)
    task_ms: int = 0
    gpu_ms: int = 0
    milli_cpu_ms: int = 0
    mib_ms: int = 0
    occupancies: list[Occupancy] | None = None

    def ordered(self, _attempt: Attempt) -> None:
        """Nothing is counted: an attempt counts once it is over."""

    def began_from(self, attempt: Attempt, origin: Checkpoint | None) -> None:
        """Nothing is counted: no metric depends on checkpoints."""

    def over(self, attempt: Attempt, now: Millis) -> None:
        """See `AttemptLog.over`."""
        order = attempt.order
        held, need = now - attempt.since_ms, order.demand
        executing = 0
        if attempt.together_ms is not None:
            executing = (
                now if attempt.halted_ms is None else attempt.halted_ms
            ) - attempt.together_ms
        self.task_ms += held
        self.gpu_ms += need.gpus * held
        self.milli_cpu_ms += need.milli_cpus * held
        self.mib_ms += need.memory_mib * held
        if order.index == 0:
            job = order.job
            self.executing_ms[job] = self.executing_ms.get(job, 0) + executing
            self.moving_ms[job] = self.moving_ms.get(job, 0) + attempt.moving_ms
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
