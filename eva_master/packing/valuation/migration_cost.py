"""Cost of moving a task run and of launching an instance (Eva, section 4.5).

While a task run is checkpointed at its source and started at its target, its share of both
instances is paid for and does no work. Where a share is not known yet, the reservation price takes
its place: on an instance that pays for itself no share is larger.
"""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Exact


def share(price: int, own: int, everyone: int) -> int:
    """A task run's part of an instance's price, in micro-dollars per hour, rounded down.

    Args:
        price: Of the instance, per hour.
        own: Reservation price of the task run.
        everyone: Reservation prices of all task runs on the instance, this one included.
    """
    return price * own // everyone if everyone else price


def migration_cost(job: JobView, source: int, target: int) -> Exact:
    """Cost of one task run while it moves.

    A member of a gang that stops and starts again in place has only its own share idle: its
    target's is 0.

    Args:
        job: Its job, with the durations of a checkpoint and a start.
        source: Its share of the instance that it leaves, in micro-dollars per hour.
        target: Its share of the instance that it goes to, in micro-dollars per hour.
    """
    return Exact((source + target) * job.delays.change_ms)


def expected_migration_cost(job: JobView, price: int, source: int | None = None) -> Exact:
    """`migration_cost` before the target is known: its share there is its reservation price.

    The estimate is never below the cost where the instances are worth their prices.

    Args:
        job: Its job.
        price: Its reservation price, in micro-dollars per hour.
        source: Its share of the instance that it leaves, if that was worked out.
    """
    return migration_cost(job, price if source is None else source, price)


def stop_cost(job: JobView, runs: Sequence[RunView], valuation: JobValuation) -> Exact:
    """Cost of suspending task runs of a job, which start again elsewhere later.

    Args:
        job: Their job.
        runs: All members of a gang, or one task run.
        valuation: Source of reservation prices.
    """
    gang = job.spec.kind is JobKind.GANG
    tasks = [run.task for run in runs]
    reserved = valuation.of_tasks(tasks, gang=gang, split=job.spec.training.split_batch)
    return Exact(sum(expected_migration_cost(job, each.price) for each in reserved))


def launch_cost(offering: Offering) -> Exact:
    """Price of a new instance until it can run tasks."""
    return Exact(offering.price * offering.type.boot_ms)
