"""Worth of tasks at on-demand prices, whatever the cloud refuses at present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eva_master.model.catalog import Catalog, Offering, Purchase, base_family
from eva_master.model.ids import JobId, RunId
from eva_master.model.job import JobKind, TaskSpec
from eva_master.model.planning.snapshot import JobView, RunView, StandaloneRates
from eva_master.packing.valuation.job_valuation import JobValuation, Reservation
from eva_master.packing.valuation.reservation_price import SAME_SPEED, hosts


class OnDemandPrices:
    """Reservation prices among the offerings on demand of which any may be had.

    A refusal of the cloud changes none of them, nor does a limit that is reached. A task that
    nothing hosts on demand is valued at the spot market.

    Args:
        catalog: What is sold, with the operator's limits.
        standalone: Measured rates of tasks that do not state their own.
    """

    def __init__(self, catalog: Catalog, standalone: StandaloneRates) -> None:
        steady = (it for it in catalog if it.purchase is Purchase.ON_DEMAND)
        rented = (it for it in catalog if it.purchase is not Purchase.OWNED)
        self._steady = JobValuation(steady, standalone)
        self._rented = JobValuation(rented, standalone)
        self._single: dict[TaskSpec, Reservation] = {}
        """Of tasks in no gang."""

    def of_job(self, job: JobView, runs: Sequence[RunView]) -> Mapping[RunId, Reservation]:
        """The reservations of a job's task runs.

        Args:
            job: The job.
            runs: Its task runs; of a gang all that the snapshot has.
        """
        if job.kind is not JobKind.GANG or len(runs) == 1:
            return {run.id: self._of_task(run.task) for run in runs}
        tasks = [run.task for run in runs]
        return dict(zip((run.id for run in runs), self._of(tasks, job.split_batch), strict=True))

    def of_tasks(self, tasks: Sequence[TaskSpec], *, split: bool) -> tuple[Reservation, ...]:
        """The reservations of tasks that run together.

        Args:
            tasks: All members of a gang, or a task alone.
            split: Whether they divide batches by speed.
        """
        return self._of(tasks, split)

    def _of_task(self, task: TaskSpec) -> Reservation:
        known = self._single.get(task)
        if known is None:
            (known,) = self._of([task], split=False)
            self._single[task] = known
        return known

    def _of(self, tasks: Sequence[TaskSpec], split: bool) -> tuple[Reservation, ...]:
        found = self._steady.of_tasks([_steady(it) for it in tasks], gang=True, split=split)
        if all(it.offering is not None for it in found):
            return found
        return self._rented.of_tasks(tasks, gang=True, split=split)


def value_on(reservation: Reservation, offering: Offering) -> int:
    """Worth of a task on an offering's family, in micro-dollars per hour.

    That is its reservation price; on a family on which it is faster, so many times as much.
    """
    speed = max(SAME_SPEED, reservation.speed_on(base_family(offering.type.family)))
    return reservation.price * speed.numerator // speed.denominator


def can_host(offering: Offering, run: RunView) -> bool:
    """Whether an empty instance of an offering holds a task run."""
    return hosts(offering, run.task.demand)


def by_job(runs: Sequence[RunView]) -> dict[JobId, list[RunView]]:
    """Task runs by their jobs, in the same order."""
    found: dict[JobId, list[RunView]] = {}
    for run in runs:
        found.setdefault(run.job, []).append(run)
    return found


def _steady(task: TaskSpec) -> TaskSpec:
    """A task as it may run on demand: on each family that it may use, however that is paid for."""
    demand = {base_family(family): need for family, need in task.demand}
    if len(demand) == len(task.demand) and all(family in demand for family, _ in task.demand):
        return task
    return replace(task, demand=tuple(sorted(demand.items())))
