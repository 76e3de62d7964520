"""How many tasks of a job may run at a time at most: by its demands, and by all limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eva_master.control.planning.lasting_limits import sold
from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.state.records import Records
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.records import Instance
from eva_master.packing.elastic.room import fitting
from eva_master.packing.quotas import Share, gpu_needs


class Room:
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
        return (it for it in self._sold if it.limit != 0 and _each(tasks, it))

    def is_there(self, task: TaskSpec) -> bool:
        """Whether an instance is there, or boots, that would hold a task if it were empty."""
        return any(_each((task,), it.offering) for it in self._live)

    def at_once(self, tasks: Sequence[TaskSpec], most: int) -> int:
        """How many tasks may run at a time, whichever of some kinds they are.

        Args:
            tasks: One of each kind.
            most: No more are counted.
        """
        sold = [(it, each) for it in self._sold if (each := _each(tasks, it))]
        owned = sum(each * _number(it, most) for it, each in sold if _is_owned(it))
        bought = sum(each * self._most_of(it, most) for it, each in sold if not _is_owned(it))
        each = max((each for it, each in sold if not _is_owned(it)), default=0)
        there = [it for it in self._live if not it.owned and _each(tasks, it.offering)]
        bought = min(bought, each * self._instances(there), self._affordable(sold, there, most))
        return min(most, owned + bought, self._within_quota(tasks, most))

    def _most_of(self, offering: Offering, most: int) -> int:
        there = sum(it.offering.id == offering.id for it in self._live)
        return max(_number(offering, most), there)

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
        """How many tasks the partition's budget per hour has room for."""
        per_hour = self.home.budget.per_hour
        if per_hour is None:
            return NO_LIMIT
        budget = max(per_hour, sum(it.offering.price for it in there))
        return max(
            (
                each * budget // it.price if it.price else each * most
                for it, each in sold
                if not _is_owned(it)
            ),
            default=0,
        )

    def _within_quota(self, tasks: Sequence[TaskSpec], most: int) -> int:
        """How many tasks the quota of the job's tenant has room for."""
        tenancy, spec = self._settings.tenancy, self._spec
        quota = None if spec is None else tenancy.quotas.get(spec.tenant)
        needs = [gpu_needs(task) for task in tasks]
        free = any(not need.gpus for task in tasks for _, need in task.demand)
        if quota is None or free or not all(needs) or self.home.name in tenancy.lending:
            return most
        assert spec is not None
        share = Share(spec.tenant, quota, {})
        families = {family for need in needs for family in need}
        least = {family: min(it[family] for it in needs if family in it) for family in families}
        return sum(share.room(family) // gpus for family, gpus in least.items())


def _each(tasks: Sequence[TaskSpec], offering: Offering) -> int:
    """How many of the smallest of some tasks fit into an empty instance."""
    return max(fitting(task, offering, offering.type.capacity) for task in tasks)


def _number(offering: Offering, most: int) -> int:
    return most if offering.limit is None else min(offering.limit, most)


def _is_owned(offering: Offering) -> bool:
    return offering.purchase is Purchase.OWNED
