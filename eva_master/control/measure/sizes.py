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
from eva_master.model.ids import MILLION, Family
from eva_master.model.job import JobSpec
from eva_master.model.planning.elastic import Elastic, Scaling
from eva_master.model.records import TaskRun
from eva_master.packing.elastic.room import fitting

_ALONE = Fraction(1)


def elastic(state: Records, spec: JobSpec, limits: Limits, partition: Partition) -> Elastic | None:
    """What policies may choose of a job; `None` unless it is an elastic gang.

    More members than instances are allowed do not run: each might need its own.

    Args:
        state: What was measured.
        spec: The job.
        limits: Of the cluster.
        partition: Where the job runs.
    """
    if spec.least is None:
        return None
    instances = min(limits.instances, limits.instances_per_user, limits.instances_per_job)
    allowed = min(instances, _instances_of(state, spec, partition, instances))
    most = max(spec.least, min(len(spec.tasks), allowed))
    reserved = state.reservations_of(spec)[0].offering
    family = None if reserved is None else base_family(reserved.type.family)
    together, apart = (_scaling(state, spec, family, apart=it) for it in (False, True))
    return Elastic(spec.least, most, together, apart)


def _instances_of(state: Records, spec: JobSpec, partition: Partition, most: int) -> int:
    """How many instances the partition of an elastic gang may have for its members."""
    if (limit := partition.limits.instances) is not None:
        most = min(most, limit)
    per_hour, task = partition.budget.per_hour, spec.tasks[0]
    if per_hour is not None:
        sold = partition.sold(state.catalog)
        prices = (it.price for it in sold if fitting(task, it, it.type.capacity))
        if cheapest := min(prices, default=0):
            most = min(most, per_hour // cheapest)
    return most


def size_speed(state: Records, placed: Sequence[TaskRun]) -> Fraction:
    """How fast the placed members of a gang are against one member; 1 unless it is elastic."""
    if not placed:
        return _ALONE
    spec = state.jobs[placed[0].job].spec
    if spec.least is None:
        return _ALONE
    apart = len({run.instance for run in placed}) > 1
    points = _measured(state, spec, _family(state, placed), apart=apart)
    known = speed_ppm(_stated(spec, apart=apart), points, len(placed), apart=apart)
    return Fraction(known, MILLION)


def measured(state: Records, members: Sequence[TaskRun]) -> Key | None:
    """What a window of all running members of an elastic gang is a measurement of.

    `None` if it is none, since they run on several families.
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
    known = state.learned.of(voice_of(spec)).scaling
    return known.points(plain(spec.tasks[0].workload), family, apart=apart)


def _stated(spec: JobSpec, *, apart: bool) -> Points:
    return spec.scaling_apart if apart and spec.scaling_apart else spec.scaling


def _family(state: Records, placed: Sequence[TaskRun]) -> Family | None:
    families = _families(state, placed)
    return next(iter(families)) if len(families) == 1 else None


def _families(state: Records, placed: Sequence[TaskRun]) -> Collection[Family]:
    return {
        base_family(state.instances[run.instance].offering.type.family)
        for run in placed
        if run.instance is not None
    }
