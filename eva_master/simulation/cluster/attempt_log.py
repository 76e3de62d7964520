"""What is kept of the attempts that simulated workers carry out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from eva_master.model.actions import TaskOrder
from eva_master.model.ids import InstanceId, JobId, Millis, RunId
from eva_master.simulation.cluster.work import Attempt, Checkpoint


class AttemptLog(Protocol):
    """Is told what happens to attempts."""

    def ordered(self, attempt: Attempt, /) -> None:
        """One begins to take room."""
        ...

    def began_from(self, attempt: Attempt, origin: Checkpoint | None) -> None:
        """One has found what it begins from."""
        ...

    def over(self, attempt: Attempt, now: Millis) -> None:
        """One takes no more room."""
        ...


@dataclass
class History:
    """Everything that was ever begun.

    Attributes:
        starts: Copy, number of the attempt, and where.
        orders: What was ordered with each start.
        origins: What each attempt began from.
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
        """How attempts end is not kept."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """An attempt's time on an instance, in milliseconds of virtual time.

    Attributes:
        from_ms: When its order came.
        to_ms: When its room was free.
        executing_ms: For how long the program ran together with all of its gang.
        moving_ms: For how long of it the job made progress.
    """

    run: RunId
    attempt: int
    instance: InstanceId
    from_ms: int
    to_ms: int
    executing_ms: int
    moving_ms: int


@dataclass
class Books:
    """What of attempts the metrics of a simulation are made of.

    Attributes:
        executing_ms: By job, for how long all of its tasks ran.
        moving_ms: By job, for how long it made progress.
        task_ms: Time of all tasks on instances.
        gpu_ms: GPUs held, times the time.
        milli_cpu_ms: vCPUs likewise, in thousandths.
        mib_ms: Memory likewise, in MiB.
        occupancies: Every attempt, `None` if they are not to be kept.
    """

    executing_ms: dict[JobId, int] = field(default_factory=dict)
    moving_ms: dict[JobId, int] = field(default_factory=dict)
    task_ms: int = 0
    gpu_ms: int = 0
    milli_cpu_ms: int = 0
    mib_ms: int = 0
    occupancies: list[Occupancy] | None = None

    def ordered(self, _attempt: Attempt) -> None:
        """An attempt counts once it is over."""

    def began_from(self, attempt: Attempt, origin: Checkpoint | None) -> None:
        """Of no interest."""

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
