"""The records, rules and memory of a partition at one time, as the stages of a round see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eva_master.control.features.deadlines.hurry import hurry
from eva_master.control.features.shared_limits.memory import NO_MEMORY, QueueMemory
from eva_master.control.planning.allowance import Allowance, allowance, leeway
from eva_master.control.planning.parts import Sums, part_of
from eva_master.control.rounds.rules.given_up import PoolMembers
from eva_master.control.rounds.rules.price_limit import PriceLimit
from eva_master.control.rounds.rules.shared_limits import PartitionShare
from eva_master.control.rounds.rules.tenant_quotas import TenantCaps
from eva_master.control.rounds.shared_queue import shared_queue
from eva_master.control.settings import Settings
from eva_master.control.standing.membership import Statement
from eva_master.control.state.records import PlanningRecords
from eva_master.control.supply.boot_gate import BootGate
from eva_master.learning.boots import Boots
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.snapshot import Leeway, Snapshot
from eva_master.model.values import quick
from eva_master.packing.valuation.on_demand import OnDemandPrices
from eva_master.packing.waiting_turns import NO_TURNS, Turns
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, RunId

_NO_GATE = BootGate(Boots(), frozenset(), Millis(0))


@quick
@dataclass(frozen=True, slots=True)
class Recent:
    """Data that earlier rounds of a partition leave to the next one; lost at a restart.

    Attributes:
        withheld: Jobs that limits kept from starting: no room is kept for them now.
        lapsed: Jobs that their policy placed nowhere though room was kept for them: no room is
            kept for them now.
        dear: Offerings that the last plan chose and that were too dear.
        judged: The task runs of that plan.
        over_quota: Task runs that waited for their tenants' quotas in the last plan.
        joined: Jobs that stand in lines already, and that the policy sees for the first time.
        pools: Whether instances stand in pools.
        paused: Jobs for which nothing is bought now, since boots for them have failed.
        held_back: Jobs whose tasks take no room in lines now, since instances ended while they ran.
        gate: Limits on purchases after failed boots.
        stated: Pools and lines of each partition, as stated by the last plans.
        declined: Jobs whose policies did not use room that was free for them: no pool gives a
            member up for them.
        queues: Data that the rounds of all partitions leave to the queues at shared limits.
        turns: Turns of the waiting tasks, where they are too many for one round.
    """

    withheld: Collection[JobId] = ()
    lapsed: Collection[JobId] = ()
    dear: frozenset[OfferingId] = frozenset()
    judged: frozenset[RunId] = frozenset()
    over_quota: Collection[RunId] = ()
    joined: frozenset[JobId] = frozenset()
    pools: bool = False
    paused: Collection[JobId] = ()
    held_back: Collection[JobId] = ()
    gate: BootGate = _NO_GATE
    stated: Mapping[str, Statement] = field(default_factory=dict)
    declined: Collection[JobId] = ()
    queues: QueueMemory = NO_MEMORY
    turns: Turns = NO_TURNS


@dataclass(frozen=True)
class Moment:
    """A partition at one time: its records, its rules, and the memory of its rounds.

    Attributes:
        state: The records.
        settings: Settings of the control loop.
        partition: The partition; the whole of a cluster that is not divided.
        sums: Sums over each partition, by the name on record.
        prices: On-demand reservation prices of tasks, for the offerings of the partition.
        now: The time.
        recent: Data that earlier rounds left.
        whole: The cluster.
    """

    state: PlanningRecords
    settings: Settings
    partition: Partition
    sums: Sums
    prices: OnDemandPrices
    now: Millis
    recent: Recent
    whole: Snapshot

    @property
    def divided(self) -> bool:
        """Whether the cluster is divided into partitions."""
        return self.settings.partitions.divided

    @property
    def round_grid_ms(self) -> int:
        """At multiples of which time plans are made alone; 0 for at any time."""
        return self.partition.round_grid_ms if self.divided else self.settings.round_grid_ms

    @cached_property
    def part(self) -> Snapshot:
        """Part of the cluster that is the partition's."""
        return part_of(self.whole, self.partition, self.settings.partitions, self.sums)

    @cached_property
    def allowance(self) -> Allowance:
        """Size and spending of the partition, against its limits."""
        return allowance(self.state, self.sums, self.partition, self.now)

    @cached_property
    def leeway(self) -> Leeway:
        """Number and price of further launches in the partition."""
        return leeway(self.state, self.sums, self.settings.limits, self.partition, self.now)

    @cached_property
    def price_limit(self) -> PriceLimit:
        """How much may be paid for the tasks of the partition."""
        return PriceLimit(
            self.settings.price_limit_ppm,
            self.prices,
            hurry(self.state, self.part, self.now, self.settings).jobs,
            self.recent.dear,
            self.recent.judged,
            self.state.wall,
        )

    @cached_property
    def tenants(self) -> TenantCaps:
        """Quotas and budgets of tenants."""
        return TenantCaps(self.state, self.settings.tenancy, self.partition)

    @cached_property
    def pool_members(self) -> PoolMembers:
        """Members of pools, and the units that wait for their room."""
        recent = self.recent
        return PoolMembers(
            self.state,
            self.settings,
            self.partition,
            sums=self.sums,
            now=self.now,
            stated=recent.stated,
            ignored=frozenset((*recent.paused, *recent.declined)),
            refused=[refusal.offerings for refusal in recent.queues.refusals],
        )

    @cached_property
    def share(self) -> PartitionShare:
        """Share that is left to the partition of limits that others share."""
        return self.share_of(self.whole)

    def share_of(self, whole: Snapshot) -> PartitionShare:
        """That share in the cluster with other sizes of elastic gangs."""
        queue = shared_queue(
            self.state,
            self.settings,
            whole,
            sums=self.sums,
            now=self.now,
            memory=self.recent.queues,
        )
        return PartitionShare(queue, self.partition.name)

    def owner_of(self, job: JobId) -> str:
        """The user who has submitted a job."""
        return self.state.jobs[job].spec.owner

    def vacant(self, closed: Collection[InstanceId]) -> Callable[[InstanceId], bool]:
        """Whether an instance holds no task, one that stops included, and is kept for none.

        None is where plans are made at fixed times: there it goes at once.

        Args:
            closed: Instances that claims keep.
        """
        if self.round_grid_ms:
            return lambda _: False
        return lambda name: name not in closed and not self.state.occupants(name)
