"""How fast an elastic gang is with its number of members, by what is stated, measured or usual."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction

from eva_master.control.settings import Limits
from eva_master.control.state.records import Records
from eva_master.learning.speeds.scaling import Key, Points, scaling, speed_ppm
from eva_master.learning.voices.names import plain, voice_of
from eva_master.model.catalog import base_family
from eva_master.model.fleet.partitions import Partition
from eva_master.model.job import JobSpec
from eva_master.model.planning.elastic import Elastic, Scaling
from eva_master.model.records import TaskRun
from eva_master.packing.elastic.room import fitting
from eva_wire.values.ids import MILLION, Family

_ALONE = Fraction(1)


def elastic(state: Records, spec: JobSpec, limits: Limits, partition: Partition) -> Elastic | None:
    """Sizes of a job that policies may choose; `None` unless it is an elastic gang.

    At most as many members run as instances are allowed: each might need its own.

    Args:
        state: The records, with measurements.
        spec: The job.
        limits: Limits of the cluster.
        partition: The job's partition.
    """
    if spec.elastic.least is None:
        return None
    instances = min(limits.instances, limits.instances_per_user, limits.instances_per_job)
    allowed = min(instances, _instances_of(state, spec, partition, instances))
    most = max(spec.elastic.least, min(len(spec.tasks), allowed))
    reserved = state.prices.of(spec)[0].offering
    family = None if reserved is None else base_family(reserved.type.family)
    together, apart = (_scaling(state, spec, family, apart=split_up) for split_up in (False, True))
    return Elastic(spec.elastic.least, most, together, apart)


def _instances_of(state: Records, spec: JobSpec, partition: Partition, most: int) -> int:
    """Number of instances that the partition of an elastic gang may have for its members."""
    if (limit := partition.limits.instances) is not None:
        most = min(most, limit)
    per_hour, task = partition.budget.per_hour, spec.tasks[0]
    if per_hour is not None:
        sold = partition.sold(state.catalog)
        prices = (
            offering.price for offering in sold if fitting(task, offering, offering.type.capacity)
        )
        if cheapest := min(prices, default=0):
            most = min(most, per_hour // cheapest)
    return most


def size_speed(state: Records, placed: Sequence[TaskRun]) -> Fraction:
    """Speed of the placed members of a gang against one member; 1 unless it is elastic."""
    if not placed:
        return _ALONE
    spec = state.jobs[placed[0].job].spec
    if spec.elastic.least is None:
        return _ALONE
    apart = len({run.instance for run in placed}) > 1
    points = _measured(state, spec, _family(state, placed), apart=apart)
    speed = speed_ppm(_stated(spec, apart=apart), points, len(placed), apart=apart)
    return Fraction(speed, MILLION)


def measured(state: Records, members: Sequence[TaskRun]) -> Key | None:
    """The key that a window of all running members of an elastic gang measures.

    `None` if there is none, since they run on several families.
    """
    families = _families(state, members)
    if len(families) != 1:
        return None
    workload = plain(state.task(members[0]).workload)
    apart = len({run.instance for run in members}) > 1
    return workload, next(iter(families)), len(members), apart


def _scaling(state: Records, spec: JobSpec, family: Family | None, *, apart: bool) -> Scaling:
    points = _measured(state, spec, family, apart=apart)
    return scaling(_stated(spec, apart=apart), points, apart=apart)


def _measured(state: Records, spec: JobSpec, family: Family | None, *, apart: bool) -> Points:
    if family is None:
        return ()
    table = state.learned.of(voice_of(spec)).scaling
    return table.points(plain(spec.tasks[0].workload), family, apart=apart)


def _stated(spec: JobSpec, *, apart: bool) -> Points:
    gang = spec.elastic
    return gang.scaling_apart if apart and gang.scaling_apart else gang.scaling


def _family(state: Records, placed: Sequence[TaskRun]) -> Family | None:
    families = _families(state, placed)
    return next(iter(families)) if len(families) == 1 else None


def _families(state: Records, placed: Sequence[TaskRun]) -> Collection[Family]:
    return {
        base_family(state.instances[run.instance].offering.type.family)
        for run in placed
        if run.instance is not None
    }
