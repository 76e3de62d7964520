"""How many tasks of a job may run at a time at most: by its demands, and by all limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eva_master.control.planning.lasting_limits import sold
from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.state.records import Records
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.records import Instance
from eva_master.packing.elastic.room import fitting
from eva_master.packing.quotas import QuotaUse, gpu_needs


class PartitionRoom:
    """Room for tasks in an empty partition, within its limits and those of a job and its owner.

    Instances that are there already count, even beyond a limit.

    Args:
        state: The records.
        settings: With the limits.
        spec: The job whose quota and limits count; `None` for the partition's room alone.
        partition: By its name on record.

    Attributes:
        home: The partition.
    """

    def __init__(
        self, state: Records, settings: Settings, spec: JobSpec | None, partition: str
    ) -> None:
        self._settings = settings
        self._spec = spec
        self.home = home = settings.partitions.home(partition)
        divided = settings.partitions.divided
        self._sold = sold(state, settings, home if divided else None)
        self._live = [
            instance
            for instance in map(state.instances.__getitem__, state.live)
            if not divided or settings.partitions.home(instance.partition) is home
        ]
        self._all_live = len(state.live)

    def offerings(self, tasks: Sequence[TaskSpec]) -> Iterator[Offering]:
        """Offerings of which an instance has room for any of some tasks."""
        return (
            offering for offering in self._sold if offering.limit != 0 and _each(tasks, offering)
        )

    def is_there(self, task: TaskSpec) -> bool:
        """Whether an existing or booting instance would hold a task if it were empty."""
        return any(_each((task,), instance.offering) for instance in self._live)

    def at_once(self, tasks: Sequence[TaskSpec], most: int) -> int:
        """Number of tasks that may run at a time, whichever of some kinds they are.

        Args:
            tasks: One of each kind.
            most: Upper limit of the count.
        """
        sold = [(offering, each) for offering in self._sold if (each := _each(tasks, offering))]
        owned = sum(
            each * _number(offering, most) for offering, each in sold if _is_owned(offering)
        )
        bought = sum(
            each * self._most_of(offering, most)
            for offering, each in sold
            if not _is_owned(offering)
        )
        each = max((each for offering, each in sold if not _is_owned(offering)), default=0)
        rented = [
            instance
            for instance in self._live
            if not instance.owned and _each(tasks, instance.offering)
        ]
        bought = min(bought, each * self._instances(rented), self._affordable(sold, rented, most))
        return min(most, owned + bought, self._within_quota(tasks, most))

    def _most_of(self, offering: Offering, most: int) -> int:
        existing = sum(instance.offering.id == offering.id for instance in self._live)
        return max(_number(offering, most), existing)

    def _instances(self, there: Sequence[Instance]) -> int:
        """How many instances may be bought, those included that are there."""
        limits, own = self._settings.limits, self.home.limits.instances
        most = NO_LIMIT if limits.instances >= NO_LIMIT else max(limits.instances, self._all_live)
        if own is not None:
            most = min(most, max(own, len(self._live)))
        if self._spec is not None:
            # Tasks may join instances that others have, whatever their owner may launch.
            own = min(limits.instances_per_user, limits.instances_per_job)
            most = min(most, own + len(there))
        return most

    def _affordable(
        self, sold: Sequence[tuple[Offering, int]], there: Sequence[Instance], most: int
    ) -> int:
        """Number of tasks that fit in the partition's budget per hour."""
        per_hour = self.home.budget.per_hour
        if per_hour is None:
            return NO_LIMIT
        budget = max(per_hour, counted_per_hour(there))
        return max(
            (
                each * budget // offering.price if offering.price else each * most
                for offering, each in sold
                if not _is_owned(offering)
            ),
            default=0,
        )

    def _within_quota(self, tasks: Sequence[TaskSpec], most: int) -> int:
        """Number of tasks that fit in the quota of the job's tenant."""
        quotas, spec = self._settings.tenancy.enforced(self.home), self._spec
        quota = None if spec is None else quotas.get(spec.tenant)
        needs = [gpu_needs(task) for task in tasks]
        free = any(not need.gpus for task in tasks for _, need in task.demand)
        if quota is None or free or not all(needs):
            return most
        assert spec is not None
        share = QuotaUse(spec.tenant, quota, {})
        families = {family for need in needs for family in need}
        least = {
            family: min(need[family] for need in needs if family in need) for family in families
        }
        return sum(share.room(family) // gpus for family, gpus in least.items())


def _each(tasks: Sequence[TaskSpec], offering: Offering) -> int:
    """How many of the smallest of some tasks fit into an empty instance."""
    return max(fitting(task, offering, offering.type.capacity) for task in tasks)


def _number(offering: Offering, most: int) -> int:
    return most if offering.limit is None else min(offering.limit, most)


def _is_owned(offering: Offering) -> bool:
    return offering.purchase is Purchase.OWNED
