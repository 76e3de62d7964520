"""Members of pools that are given up for tasks which wait for what they hold.

A member stays though it is empty, so what it holds of a limit is free for nobody. Where somebody
outside the pool waits for that, an empty member is handed to the policy as an ordinary instance if
the task that waits fits there and runs in the same partition; else it goes, so that something else
may be bought.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eva_master.control.planning.allowance import allowance
from eva_master.control.planning.parts import Sums, part_of
from eva_master.control.rounds.rules.tenant_quotas import TenantCaps
from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.standing.membership import Statement
from eva_master.control.state.records import PlanningRecords
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, pooled
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import Instance
from eva_master.model.values import once, replace
from eva_master.packing.parts.partition import without_launched
from eva_master.packing.parts.seating import (
    PoolSeating,
    SeatingPartition,
    SparedMember,
    WaitingUnit,
    is_seen,
    members_of,
    waiting,
)
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.room import Place, with_lower_limits
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, RunId
from eva_wire.values.states import LIVE

_MOST_UNITS = 64
"""For so many units members are given up in one round, and so many are told who holds them."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Members that pools of a partition give up, and the snapshot without them.

    Attributes:
        snapshot: Snapshot for the policy.
        handed: Members that the policy sees as ordinary instances, with the job for each.
        released: Members hidden from the policy that are terminated, with the job for each.
        seats: Units for which the handed members are enough, as task runs with members.
    """

    snapshot: Snapshot
    handed: Mapping[InstanceId, JobId] = field(default_factory=dict)
    released: Mapping[InstanceId, JobId] = field(default_factory=dict)
    seats: tuple[tuple[tuple[RunId, InstanceId], ...], ...] = ()

    def seated(self, before: PlanEffect, effect: PlanEffect) -> PlanEffect:
        """A plan in which units take their members over where limits allow nothing else.

        A policy that ignores limits buys something cheaper for them, which limits cut.

        Args:
            before: The policy's plan.
            effect: The policy's plan, as limits leave it.
        """
        if effect is before or not self.seats:
            return effect
        asked, goes, plan = before.assigned, effect.assigned, effect.plan
        taken: set[object] = {*goes.values()}
        empty = {view.id for view in effect.now.instances if not view.residents}
        more: dict[RunId, InstanceId] = {}
        for unit in self.seats:
            members = {member for _, member in unit}
            cut = all(run in asked and run not in goes for run, _ in unit)
            if cut and members <= empty and members.isdisjoint(taken):
                more.update(unit)
                taken |= members
        if not more:
            return effect
        used = {*more.values()}
        entries = tuple(
            Assign(entry.run, more[entry.run]) if entry.run in more else entry
            for entry in plan.entries
        )
        pools = tuple(
            replace(pool, members=tuple(member for member in pool.members if member not in used))
            for pool in plan.pools
        )
        return effect.with_plan(replace(plan, entries=entries, pools=pools))

    def completed(self, effect: PlanEffect, claims: Iterable[Claim]) -> PlanEffect:
        """A plan that states those members again which were not used, or are not empty any more.

        Args:
            effect: The policy's plan.
            claims: Claims that the policy was shown: claimed members take no task from a line.
        """
        if not self.handed and not self.released:
            return effect
        used, stated = {*effect.assigned.values()}, effect.members
        claimed = {name for claim in claims for name in claim.instances}
        open_again: defaultdict[str, list[InstanceId]] = defaultdict(list)
        closed: defaultdict[str, list[InstanceId]] = defaultdict(list)
        for view in effect.now.instances:
            if view.id in stated or not view.pool:
                continue
            unused = view.id in self.handed and view.id not in used
            if unused or (view.residents and (view.id in self.handed or view.id in self.released)):
                (closed if view.id in claimed else open_again)[view.pool].append(view.id)
        pools = tuple(_restated(effect.plan.pools, open_again, closed))
        return effect.with_plan(replace(effect.plan, pools=pools))


def _restated(
    pools: tuple[Pool, ...],
    open_again: Mapping[str, list[InstanceId]],
    closed: Mapping[str, list[InstanceId]],
) -> Iterator[Pool]:
    names = {pool.name for pool in pools}
    for pool in pools:
        resting = tuple(closed.get(pool.name, ()))
        more = (*open_again.get(pool.name, ()), *resting)
        if more:
            yield replace(pool, members=(*pool.members, *more), closed=(*pool.closed, *resting))
        else:
            yield pool
    for name in dict.fromkeys((*open_again, *closed)):
        if name not in names:
            resting = tuple(closed.get(name, ()))
            members = (*open_again.get(name, ()), *resting)
            yield Pool(name, members, "its room was offered to others", resting)


class PoolMembers:
    """The members of pools at one moment, and all waiting units.

    Args:
        state: The records.
        settings: Settings of the control loop.
        partition: The partition of the plan.
        sums: Sums over each partition, by the name on record.
        now: The time.
        stated: Pools and lines of each partition, as the last plans say.
        ignored: Jobs that get nothing now.
        refused: Groups of offerings that the cloud has refused, each under one quota.
    """

    def __init__(
        self,
        state: PlanningRecords,
        settings: Settings,
        partition: Partition,
        *,
        sums: Sums,
        now: Millis,
        stated: Mapping[str, Statement],
        ignored: Collection[JobId],
        refused: Collection[Collection[OfferingId]],
    ) -> None:
        self._refused = refused
        self._state = state
        self._settings = settings
        self._partition = partition
        self._sums = sums
        self._now = now
        self._stated = stated
        self._ignored = ignored

    # -- before the policy -----------------------------------------------------------------------

    def given_up(self, seen: Snapshot, whole: Snapshot) -> GivenUp:
        """Give up empty members for the units that wait for them.

        Args:
            seen: Snapshot that the policy of the partition may see.
            whole: The cluster.
        """
        empty = [view for view in _members(seen.instances) if not view.residents]
        if not empty or self._partition.name not in self._stated:
            return GivenUp(seen)
        own = self._of(self._partition, seen)
        others, waits = self._others(whole), waiting(own)
        units = self._candidates([*waits, *waiting(*others)], whole)
        if not units:
            return GivenUp(seen)
        members = members_of(own, waits, empty)
        parts, cluster = [own, *others], self._cluster_left()
        seating = PoolSeating(parts, cluster, members, refused=self._refused)
        handed: dict[InstanceId, JobId] = {}
        released: dict[InstanceId, JobId] = {}
        seats: list[tuple[tuple[RunId, InstanceId], ...]] = []
        for unit in units:
            if not seating.members:
                break
            seat = seating.seat(unit)
            if seat.complete:
                handed.update((member.view.id, unit.job.id) for member in seat.handed)
                released.update((member.view.id, unit.job.id) for member in seat.released)
                seats += [seat.places] if len(seat.places) == len(unit.runs) else []
        shown = _without(seen, handed, released)
        return GivenUp(shown, handed, released, tuple(seats))

    def _candidates(self, waits: Iterable[WaitingUnit], whole: Snapshot) -> list[WaitingUnit]:
        """The first units that may start now, in order."""
        may_start = self._startable(whole)
        units = [
            unit
            for unit in waits
            if is_seen(unit) and unit.job.id not in self._ignored and may_start(unit)
        ]
        return sorted(units, key=lambda unit: (unit.rank, unit.runs[0].id))[:_MOST_UNITS]

    def _startable(self, whole: Snapshot) -> Callable[[WaitingUnit], bool]:
        """Whether a unit waits for room alone: not for a backoff, nor at a limit of its user."""
        limits, jobs = self._settings.limits, self._state.jobs
        bounded = limits.instances_per_user < NO_LIMIT or limits.instances_per_job < NO_LIMIT
        of_user: defaultdict[str, set[InstanceId]] = defaultdict(set)
        of_job: defaultdict[JobId, set[InstanceId]] = defaultdict(set)
        for run in whole.runs if bounded else ():
            if run.instance is not None:
                of_job[run.job].add(run.instance)
                of_user[jobs[run.job].spec.owner].add(run.instance)

        def may_start(unit: WaitingUnit) -> bool:
            job = jobs[unit.job.id]
            if job.not_before_ms > self._now:
                return False
            if any(self._state.runs[run.id].not_before_ms > self._now for run in unit.runs):
                return False
            return not bounded or (
                len(of_user[job.spec.owner]) < limits.instances_per_user
                and len(of_job[job.id]) < limits.instances_per_job
            )

        return may_start

    # -- after the policy ------------------------------------------------------------------------

    def within(self, effect: PlanEffect, whole: Snapshot, *, contested: bool = False) -> PlanEffect:
        """A plan whose pools leave to tasks of other partitions what these come first for.

        Args:
            effect: The policy's plan, as limits leave it.
            whole: The cluster as it is.
            contested: Whether others than the partition wait for limits that they share.
        """
        effect = self._bought(effect, whole)
        return self._closed(effect, whole) if contested else effect

    def _bought(self, effect: PlanEffect, whole: Snapshot) -> PlanEffect:
        """A plan whose pools buy nothing for which a task of another partition waits."""
        used = {*effect.assigned.values()}
        fresh = [key for key in pooled(effect.plan) if key not in used]
        others = self._others(whole) if fresh else []
        if not others:
            return effect
        own = self._of(self._partition, effect.now, effect.plan.lines)
        ours = [unit for unit in waiting(own) if unit.job.id in own.lines or not is_seen(unit)]
        first = min((unit.rank for unit in ours), default=None)
        seating = PoolSeating(others, self._cluster_left())
        for unit in self._candidates(waiting(*others), whole):
            if first is None or unit.rank < first:
                seating.seat(unit)
        slots, cluster = dict(seating.slots), seating.cluster
        gone = set[int]()
        keys = {key: offering.id for key, offering in effect.launched.items()}
        for key in (*(key for key in keys if key not in fresh), *fresh):
            if key not in fresh:
                allowed = True
            else:
                allowed = slots.get(keys[key], 1) > 0 and (cluster is None or cluster > 0)
            if not allowed:
                gone.add(key)
                continue
            if keys[key] in slots:
                slots[keys[key]] -= 1
            cluster = None if cluster is None else cluster - 1
        return effect.drop({}, gone)

    def _closed(self, effect: PlanEffect, whole: Snapshot) -> PlanEffect:
        """A plan whose lines fill no member for which a task of another partition comes first.

        Else a line would give the room of each task that ends to the next one of its own, and the
        member would never be empty.
        """
        plan = effect.plan
        views = {view.id: view for view in _members(effect.now.instances)}
        stated = {
            member for pool in plan.pools if not pool.shared for member in pool.members
        } & views.keys()
        others = self._others(whole) if stated else []
        if not others:
            return effect
        own = self._of(self._partition, effect.now, plan.lines)
        views_stated = [views[InstanceId(str(member))] for member in sorted(stated)]
        members = members_of(own, waiting(own), views_stated)
        seating = PoolSeating(others, self._cluster_left(), members, refused=self._refused)
        going: set[InstanceId | int] = set()
        for unit in self._candidates(waiting(*others), whole):
            if not seating.members:
                break
            going.update(member.view.id for member in seating.seat(unit).released)
        if not going:
            return effect
        pools = tuple(
            replace(pool, closed=tuple(dict.fromkeys((*pool.closed, *(going & {*pool.members})))))
            for pool in plan.pools
        )
        return effect.with_plan(replace(plan, pools=pools))

    def told(self, effect: PlanEffect, whole: Snapshot) -> PlanEffect:
        """A plan whose reasons name the pools that hold the room tasks wait for.

        Args:
            effect: The policy's plan, as limits leave it.
            whole: The cluster as it is.
        """
        held = effect.held
        spared = [*_members(whole.instances), *_members(whole.draining)] if held else []
        if not spared:
            return effect
        taken = {*effect.assigned.values()}
        home = self._settings.partitions.home
        members = [
            SparedMember(home(view.partition).name, view) for view in spared if view.id not in taken
        ]
        own = self._after(effect, effect.now)
        cluster = self._cluster_left(len(effect.plan.launches))
        seating = PoolSeating([own], cluster, members, vacant=False, refused=self._refused)
        said: dict[RunId, str] = {}
        names: dict[object, str] = {}
        for unit in waiting(own):
            if unit.runs[0].id not in held or unit.job.id in own.lines:
                continue
            kind = unit.kind
            if kind not in names:
                if len(names) >= _MOST_UNITS:
                    break
                names[kind] = _named(seating.seat(unit, take=False).members)
            said.update((run.id, names[kind]) for run in unit.runs if names[kind])
        reasons = {run: f"{held[run]}; {name}" for run, name in said.items() if run in held}
        return effect.explain(reasons)

    def _after(self, effect: PlanEffect, present: Snapshot) -> SeatingPartition:
        """The partition once a plan has bought what it buys."""
        plan = effect.plan
        part = self._of(self._partition, without_launched(present, plan), plan.lines)
        count = len(plan.launches)
        price = sum(offering.price for offering in effect.launched.values())
        return replace(
            part,
            instances=None if part.instances is None else max(0, part.instances - count),
            per_hour=None if part.per_hour is None else max(0, part.per_hour - price),
        )

    def declined(self, shown: Snapshot, effect: PlanEffect, whole: Snapshot) -> frozenset[JobId]:
        """Jobs that the policy leaves waiting though it was shown room for them.

        Empty while room is kept for others.

        Args:
            shown: Snapshot that the policy was shown.
            effect: Its plan, as limits leave it.
            whole: The cluster as it is.
        """
        if shown.claims or not _members(whole.instances):
            return frozenset()
        own = self._after(effect, _carried_out(shown, effect.assigned))
        units = self._candidates(waiting(own), whole)
        if not units:
            return frozenset()
        seating = PoolSeating([own], self._cluster_left(len(effect.plan.launches)))
        kinds = {unit.kind: unit for unit in units}.values()
        return frozenset(unit.job.id for unit in kinds if seating.seat(unit, take=False).complete)

    # -- partitions ------------------------------------------------------------------------------

    def _others(self, whole: Snapshot) -> list[SeatingPartition]:
        partitions, parts = self._settings.partitions, []
        for other in partitions.all:
            if other is not self._partition:
                seen = part_of(whole, other, partitions, self._sums)
                limits = TenantCaps(self._state, self._settings.tenancy, other)
                admitted = limits.admitted(seen, ())
                parts.append(self._of(other, seen if admitted is None else admitted.snapshot))
        return parts

    def _of(
        self, partition: Partition, seen: Snapshot, lines: tuple[Line, ...] | None = None
    ) -> SeatingPartition:
        if lines is None:
            statement = self._stated.get(partition.name)
            lines = () if statement is None else statement.lines
        queued: defaultdict[JobId, set[str]] = defaultdict(set)
        for line in lines:
            for job in line.jobs:
                queued[job].update(line.pools)
        in_lines = {job: frozenset(pools) for job, pools in queued.items()}
        part = SeatingPartition(partition.name, seen, in_lines, partition.short)
        return self._bounded(part, partition) if partition.bounded else part

    def _bounded(self, part: SeatingPartition, partition: Partition) -> SeatingPartition:
        """A partition with what its limits leave once terminating instances are gone."""
        allowed = allowance(self._state, self._sums, partition, self._now)
        most, budget = partition.limits.instances, partition.budget
        going = [instance for instance in self._terminating if instance.partition == partition.name]
        stays = allowed.instances - len(going)
        per_hour = allowed.per_hour - counted_per_hour(going)
        return replace(
            part,
            instances=None if most is None else max(0, most - stays),
            per_hour=None if budget.per_hour is None else max(0, budget.per_hour - per_hour),
            may_buy=budget.per_month is None or allowed.spent < budget.per_month,
        )

    def _cluster_left(self, launched: int = 0) -> int | None:
        most = self._settings.limits.instances
        if most >= NO_LIMIT:
            return None
        stay = len(self._state.live) - len(self._terminating)
        return max(0, max(0, most - stay) - launched)

    @cached_property
    def _terminating(self) -> tuple[Instance, ...]:
        """Terminating instances, which still count towards limits."""
        instances = map(self._state.instances.__getitem__, self._state.live)
        return tuple(instance for instance in instances if instance.state not in LIVE)


def concerned(
    state: PlanningRecords,
    settings: Settings,
    *,
    sums: Sums,
    now: Millis,
    ignored: Collection[JobId],
    refused: Collection[Collection[OfferingId]],
    whole: Snapshot,
) -> set[str]:
    """Names of partitions whose pools would give up a member if a plan were made.

    Args:
        state: The records.
        settings: Settings of the control loop.
        sums: Sums over each partition, by the name on record.
        now: The time.
        ignored: Jobs that get nothing now.
        refused: Groups of offerings that the cloud has refused, each under one quota.
        whole: The cluster.
    """
    home = settings.partitions.home
    empty = [view for view in _members(whole.instances) if not view.residents]
    names = set[str]()
    for partition in {home(view.partition).name: home(view.partition) for view in empty}.values():
        members = PoolMembers(
            state,
            settings,
            partition,
            sums=sums,
            now=now,
            stated=state.membership.stated,
            ignored=ignored,
            refused=refused,
        )
        seen = part_of(whole, partition, settings.partitions, sums)
        admitted = TenantCaps(state, settings.tenancy, partition).admitted(seen, ())
        given = members.given_up(seen if admitted is None else admitted.snapshot, whole)
        if given.handed or given.released:
            names.add(partition.name)
    return names


def _members(instances: tuple[InstanceView, ...]) -> Sequence[InstanceView]:
    """The instances that stand in pools and would go without them."""
    return once(_standing, instances)


def _standing(instances: tuple[InstanceView, ...]) -> list[InstanceView]:
    standing = [view for view in instances if view.pool]
    return [view for view in standing if view.offering.purchase is not Purchase.OWNED]


def _carried_out(shown: Snapshot, places: Mapping[RunId, Place]) -> Snapshot:
    """A snapshot in which a plan's task runs are placed, those on new instances nowhere."""
    if not places:
        return shown
    live = {run: where if isinstance(where, str) else None for run, where in places.items()}
    runs = [
        replace(run, instance=live[run.id], pinned=True) if run.id in live else run
        for run in shown.runs
    ]
    return replace(shown, runs=tuple(runs))


def _without(
    seen: Snapshot, handed: Collection[InstanceId], released: Collection[InstanceId]
) -> Snapshot:
    """A snapshot in which handed members are ordinary instances and released ones are gone.

    Released members still count towards the limits of their offerings.
    """
    if not handed and not released:
        return seen
    lower = Counter(view.offering.id for view in seen.instances if view.id in released)
    return replace(
        seen,
        instances=tuple(
            replace(view, pool="") if view.id in handed else view
            for view in seen.instances
            if view.id not in released
        ),
        catalog=with_lower_limits(seen.catalog, lower),
    )


def _named(members: tuple[SparedMember, ...]) -> str:
    """The pools of some members, as their holders; empty if there are none."""
    pools = sorted({member.pool for member in members})
    if not pools:
        return ""
    if len(pools) == 1:
        return f"the pool {pools[0]} holds it"
    return f"the pools {', '.join(pools[:-1])} and {pools[-1]} hold it"
