"""Worth of tasks at on-demand prices, whatever the cloud refuses at present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eva_master.model.catalog import Catalog, Offering, Purchase, base_family
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, StandaloneRates
from eva_master.packing.valuation.job_valuation import JobValuation, Reservation
from eva_master.packing.valuation.reservation_price import SAME_SPEED, hosts
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import RunId


class OnDemandPrices:
    """Reservation prices among on-demand offerings, as if all were available.

    Neither refusals of the cloud nor reached limits change them. A task that no on-demand offering
    hosts is valued at the spot market.

    Args:
        catalog: All offerings, with the operator's limits.
        standalone: Measured rates of tasks that do not state their own.
    """

    def __init__(self, catalog: Catalog, standalone: StandaloneRates) -> None:
        steady = (offering for offering in catalog if offering.purchase is Purchase.ON_DEMAND)
        rented = (offering for offering in catalog if offering.purchase is not Purchase.OWNED)
        self._steady = JobValuation(steady, standalone)
        self._rented = JobValuation(rented, standalone)
        self._single: dict[TaskSpec, Reservation] = {}
        """Reservations of tasks in no gang."""

    def of_job(self, job: JobView, runs: Sequence[RunView]) -> Mapping[RunId, Reservation]:
        """The reservations of a job's task runs.

        Args:
            job: The job.
            runs: Its task runs; for a gang, all in the snapshot.
        """
        if job.spec.kind is not JobKind.GANG or len(runs) == 1:
            return {run.id: self._of_task(run.task) for run in runs}
        tasks = [run.task for run in runs]
        return dict(
            zip(
                (run.id for run in runs),
                self._of(tasks, job.spec.training.split_batch),
                strict=True,
            )
        )

    def of_tasks(self, tasks: Sequence[TaskSpec], *, split: bool) -> tuple[Reservation, ...]:
        """The reservations of tasks that run together.

        Args:
            tasks: All members of a gang, or a task alone.
            split: Whether they divide batches by speed.
        """
        return self._of(tasks, split)

    def _of_task(self, task: TaskSpec) -> Reservation:
        reserved = self._single.get(task)
        if reserved is None:
            (reserved,) = self._of([task], split=False)
            self._single[task] = reserved
        return reserved

    def _of(self, tasks: Sequence[TaskSpec], split: bool) -> tuple[Reservation, ...]:
        reserved = self._steady.of_tasks([_steady(task) for task in tasks], gang=True, split=split)
        if all(reservation.offering is not None for reservation in reserved):
            return reserved
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


def _steady(task: TaskSpec) -> TaskSpec:
    """A task as it may run on demand: on each family that it may use, however that is paid for."""
    demand = {base_family(family): need for family, need in task.demand}
    if len(demand) == len(task.demand) and all(family in demand for family, _ in task.demand):
        return task
    return replace(task, demand=tuple(sorted(demand.items())))
