"""Rules for tasks that stand in lines, for the loop, previews and outlooks alike."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from eva_master.control.planning import quota_use, scope
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.model.fleet.partitions import Partition
from eva_master.model.records import Instance, Job
from eva_wire.values.ids import Millis
from eva_wire.values.states import InstanceState


class Bar(Enum):
    """Reason for which no task of a job takes room from a line now, in words for its user."""

    UNPLANNED = "it is suspended, has ended, or waits for others or for a secret"
    ELSEWHERE = "it runs in another partition"
    GANG = "gangs stand in no line"
    NONE_LEFT = "none of its tasks may be given a place now"
    HELD_BACK = "instances ended as its tasks ran there, so that one at a time is tried"
    BACKOFF = "it failed, and is not tried again at once"
    QUOTA = "its tenant has no more of its quota left"


def bar(
    records: Records,
    settings: Settings,
    partition: Partition,
    job: Job,
    now: Millis,
    *,
    placeable: int,
    held_back: Callable[[], bool],
) -> Bar | None:
    """The reason for which no task of a job takes room from a line; `None` if one may.

    Args:
        records: The cluster.
        settings: Settings of the control loop.
        partition: The line's partition.
        job: The job.
        now: The time.
        placeable: Number of its tasks that may be given a place.
        held_back: Whether its tasks are tried one at a time, and one is.
    """
    reason: Bar | None = None
    if not scope.plans_job(records, job):
        reason = Bar.UNPLANNED
    elif settings.partitions.home(job.partition) is not partition:
        reason = Bar.ELSEWHERE
    elif not job.spec.stands_in_line:
        reason = Bar.GANG
    elif placeable <= 0:
        reason = Bar.NONE_LEFT
    elif held_back():
        reason = Bar.HELD_BACK
    elif now < job.not_before_ms:
        reason = Bar.BACKOFF
    elif not quota_use.within_quota(records, settings.tenancy, partition, job):
        reason = Bar.QUOTA
    return reason


def gives_room(instance: Instance, *, connected: bool, stated: bool = False) -> bool:
    """Whether a member of a pool, or a shared instance, takes tasks from a line at once.

    Args:
        instance: The instance.
        connected: Whether its worker has a session.
        stated: Whether a plan that is not adopted yet states it: an instance that an earlier plan
            has drained then takes tasks again.
    """
    lasts = instance.state is InstanceState.READY and instance.leaving_ms is None
    return lasts and connected and not instance.at_risk and (stated or instance.drain is None)
