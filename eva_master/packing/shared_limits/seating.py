"""Free room of shared limits, given to waiting task runs one after the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering, Purchase, base_family
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.quotas import QuotaUse, gpu_needs
from eva_master.packing.room import by_offering, more_of, need_on, room_beside
from eva_master.packing.shared_limits.limit import (
    ALL_INSTANCES,
    NO_OFFERING,
    Limit,
    LimitKind,
    LimitUnit,
    Parts,
    SharedLimits,
    Taken,
    gathers,
)
from eva_master.packing.valuation.reservation_price import Demand, hosts
from eva_wire.values.ids import Family, InstanceId, OfferingId


@dataclass(frozen=True, slots=True)
class LimitSeat:
    """Outcome of looking for room for waiting task runs.

    Attributes:
        taken: Amount of each limit that they get, or keep until there is enough.
        complete: Whether the amount is enough.
        lacking: The shared limits that leave them too little.
        gpus: GPUs of their tenant's quota that they get, by family.
        offerings: Offerings that would be launched for them.
    """

    taken: Taken = field(default_factory=dict)
    complete: bool = False
    lacking: frozenset[Limit] = frozenset()
    gpus: Mapping[Family, int] = field(default_factory=dict)
    offerings: frozenset[OfferingId] = frozenset()


_Option = tuple[Offering, tuple[Limit, ...]]


class SharedRoom:
    """Free room of each shared limit, and the instances that count against it.

    Args:
        snapshot: The cluster.
        parts: Division of the cluster.
        shared: Limits that partitions share.

    Attributes:
        free: Free amount of each limit.
        most: Total amount of each limit.
    """

    def __init__(self, snapshot: Snapshot, parts: Parts, shared: SharedLimits) -> None:
        self.snapshot, self.parts, self.shared = snapshot, parts, shared
        used = by_offering(snapshot.instances)
        self.free: dict[Limit, int] = {}
        self.most: dict[Limit, int] = {}
        self._limits: defaultdict[OfferingId, list[Limit]] = defaultdict(list)
        for offering in snapshot.catalog:
            more = more_of(offering, used)
            if more is not None and offering.purchase is not Purchase.OWNED:
                limit = Limit(LimitKind.OFFERING, offering.id)
                self._add(limit, more, offering.limit or 0)
                self._limits[offering.id].append(limit)
        for refusal in shared.refusals:
            limit = Limit(LimitKind.CLOUD, min(refusal.offerings))
            self._add(limit, refusal.free, max(1, refusal.free))
            for name in refusal.offerings:
                self._limits[name].append(limit)
        if shared.instances is not None:
            self._add(ALL_INSTANCES, shared.instances, shared.all_instances or 0)
        self.passing = {job for job, _ in parts.passed}
        self._options: dict[tuple[str, Demand], tuple[_Option, ...]] = {}
        self._places: defaultdict[str, set[InstanceId]] = defaultdict(set)
        if shared.per_user is not None:
            owners = {job.id: job.spec.owner for job in snapshot.jobs}
            for run in snapshot.runs:
                if run.instance is not None:
                    self._places[owners[run.job]].add(run.instance)

    def _add(self, limit: Limit, free: int, most: int) -> None:
        self.free[limit], self.most[limit] = max(0, free), most

    def limits_of(self, offering: OfferingId, owner: str | None) -> tuple[Limit, ...]:
        """The limits that one more instance counts against.

        Args:
            offering: Its offering.
            owner: The user whose tasks it gets; `None` if it is for nobody in particular.
        """
        limits = [*self._limits.get(offering, ())]
        if self.shared.instances is not None:
            limits.append(ALL_INSTANCES)
        if owner is not None and self.shared.per_user is not None:
            limit = Limit(LimitKind.USER, owner)
            if limit not in self.free:
                used = len(self._places.get(owner, ()))
                self._add(limit, self.shared.per_user - used, self.shared.per_user)
            limits.append(limit)
        return tuple(limits)

    def options(self, partition: str, demand: Demand) -> tuple[_Option, ...]:
        """Offerings that a partition may launch for a task, those without limit first.

        An offering that the cloud refuses is included, with nothing free of it at present.
        """
        key = partition, demand
        if key not in self._options:
            now, sells = self.snapshot.now_ms, self.parts.sells
            refused = {name for refusal in self.shared.refusals for name in refusal.offerings}
            suitable = [
                offering
                for offering in self.snapshot.catalog
                if offering.purchase is not Purchase.OWNED
                and (offering.available(now) or offering.id in refused)
                and sells(partition, offering)
                and hosts(offering, demand)
            ]
            suitable.sort(key=lambda it: (it.id in self._limits, it.price, it.id))
            self._options[key] = tuple(
                (offering, tuple(self._limits.get(offering.id, ()))) for offering in suitable
            )
        return self._options[key]

    def quota(self, unit: LimitUnit) -> str | None:
        """The tenant whose quota a unit counts against; `None` if there is none."""
        tenant = unit.job.spec.tenant
        limited = tenant in self.shared.quotas and self.parts.limits_tenants(unit.partition)
        return tenant if limited else None


class LimitSeating:
    """Gives the room of shared limits to units, one after the other.

    Args:
        room: The free room.
        empty: Whether to seat in a cluster in which nothing runs.
        freed: Additional free amount of each limit.
    """

    def __init__(
        self, room: SharedRoom, *, empty: bool = False, freed: Taken | None = None
    ) -> None:
        self._room = room
        self._empty = empty
        self._freed = {} if freed is None else freed
        self._taken: Counter[Limit] = Counter()
        self._launched: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._full: dict[object, frozenset[Limit]] = {}
        self._shares: dict[str, QuotaUse] = {}

    def seat(self, unit: LimitUnit) -> LimitSeat:
        """Give room to waiting task runs, if there is enough."""
        kind = unit.partition, unit.job.spec.owner, unit.job.spec.tenant, unit.runs[0].task.demand
        alike = not unit.together and unit.job.id not in self._room.passing
        if alike and kind in self._full:
            return LimitSeat(lacking=self._full[kind])
        trial = _Trial(self, unit)
        for run in unit.runs:
            trial.add(run)
        complete = trial.placed >= unit.least
        if complete:
            trial.spread()
        elif alike:
            self._full[kind] = frozenset(trial.lacking)
        if not complete and not self._gathers(unit):
            return LimitSeat(lacking=frozenset(trial.lacking))
        self._taken.update(trial.taken)
        self._launched[unit.partition] += trial.launched
        self._spent[unit.partition] += trial.spent
        if trial.share is not None:
            trial.share.take(trial.gpus)
        lacking = frozenset() if complete else frozenset(trial.lacking)
        offerings = frozenset(trial.offerings)
        return LimitSeat(dict(trial.taken), complete, lacking, dict(trial.gpus), offerings)

    def _gathers(self, unit: LimitUnit) -> bool:
        """Whether a gang keeps what is free until there is enough for all of it."""
        if self._empty or not unit.together:
            return False
        if not gathers(self._room.snapshot.now_ms - unit.since_ms):
            return False
        return LimitSeating(self._room, empty=True).seat(unit).complete

    def tries_at_once(self, unit: LimitUnit) -> bool:
        """Whether launches for a unit that the cloud may refuse are one try together.

        The cloud's quota is not known, so a gang tries it as a whole, though it may be too large
        for it. While gangs gather nothing each launch is a try: the gang has as many as succeeded
        lately, and others come first.
        """
        return not unit.together or gathers(self._room.snapshot.now_ms - unit.since_ms)

    def free(self, limit: Limit) -> int:
        """Remaining amount of a limit."""
        amounts = self._room.most if self._empty else self._room.free
        return amounts[limit] + self._freed.get(limit, 0) - self._taken[limit]

    def share(self, unit: LimitUnit) -> QuotaUse | None:
        """Share that is left of the quota of a unit's tenant; `None` if it has none."""
        tenant, shared = self._room.quota(unit), self._room.shared
        if tenant is None:
            return None
        if tenant not in self._shares:
            used = {} if self._empty else shared.use.get(tenant, {})
            self._shares[tenant] = QuotaUse(tenant, shared.quotas[tenant], used)
        return self._shares[tenant]

    def is_for_nodes(self, unit: LimitUnit, run: RunView) -> bool:
        """Whether a task can run on owned nodes alone, and has left none of these unused."""
        if (unit.job.id, NO_OFFERING) in self._room.parts.passed:
            return False
        return not self._room.options(unit.partition, run.task.demand)

    def allows(self, partition: str, launched: int, spent: int) -> bool:
        """Whether a partition's own limits allow some more launches."""
        if self._empty:
            return True
        total = self._launched[partition] + launched, self._spent[partition] + spent
        return self._room.parts.allows(partition, *total)

    def options(self, unit: LimitUnit, demand: Demand) -> Iterable[_Option]:
        """Offerings that may be launched for a unit's task, with the limits of each."""
        room, owner, passed = self._room, unit.job.spec.owner, self._room.parts.passed
        for offering, _ in room.options(unit.partition, demand):
            if (unit.job.id, offering.id) not in passed:
                yield offering, room.limits_of(offering.id, owner)


class _Trial:
    """Room for one unit, before it is taken.

    Attributes:
        placed: Number of its task runs with room.
        taken: Amount taken of each limit.
        launched: Number of instances. spent: Their prices together.
        lacking: Limits that leave too little.
        offerings: Offerings that are launched.
        share: Share of its tenant's quota. gpus: GPUs taken of it.
    """

    def __init__(self, seating: LimitSeating, unit: LimitUnit) -> None:
        self._seating, self._unit = seating, unit
        self._one_try = seating.tries_at_once(unit)
        self._bins: list[tuple[Offering, Resources]] = []
        self._full: set[Demand] = set()
        self.placed = 0
        self.taken: Counter[Limit] = Counter()
        self.launched = self.spent = 0
        self.lacking: set[Limit] = set()
        self.offerings: set[OfferingId] = set()
        self.share = seating.share(unit)
        self.gpus: Counter[Family] = Counter()

    def add(self, run: RunView) -> None:
        """Look for room for one task run: on an instance that another run gets, or on a new one."""
        demand = run.task.demand
        if demand in self._full:
            return
        for number, (offering, free) in enumerate(self._bins):
            need = run.task.demand_on(offering.type.family)
            if need is not None and need.fits(free) and self._admitted(run, offering):
                self._bins[number] = offering, free - need
                self._count(run, offering)
                return
        if not self._bought(run):
            self._full.add(demand)

    def _bought(self, run: RunView) -> bool:
        options = tuple(self._seating.options(self._unit, run.task.demand))
        if not options and self.share is not None:
            return self._seating.is_for_nodes(self._unit, run) and self._on_nodes(run)
        for offering, limits in options:
            short = [limit for limit in limits if not self._has(limit)]
            if short:
                self.lacking.update(short)
            elif self._allowed(offering) and self._admitted(run, offering):
                self._take(offering, limits)
                room = room_beside(offering, need_on(run.task, offering))
                self._bins.append((offering, room))
                self._count(run, offering)
                return True
        return False

    def _on_nodes(self, run: RunView) -> bool:
        """Count a task that can run on owned nodes alone: of its tenant's quota."""
        for family, _ in run.task.demand:
            needed = self._gpus_on(run, family)
            if self._within_quota(needed):
                self.gpus.update(needed)
                self.placed += 1
                return True
        return False

    def spread(self) -> None:
        """Take an instance for each of the task runs, as far as there are any.

        Policies may keep the members of a gang apart.
        """
        for run in self._unit.runs[len(self._bins) :]:
            for offering, limits in self._seating.options(self._unit, run.task.demand):
                if all(map(self._has, limits)) and self._allowed(offering):
                    self._take(offering, limits)
                    break
            else:
                return

    def _has(self, limit: Limit) -> bool:
        if not self._counts(limit):
            return True
        return self._seating.free(limit) - self.taken[limit] > 0

    def _counts(self, limit: Limit) -> bool:
        """Whether one more launch takes something of a limit."""
        return limit.kind is not LimitKind.CLOUD or limit not in self.taken or not self._one_try

    def _allowed(self, offering: Offering) -> bool:
        more = self.launched + 1, self.spent + offering.price
        return self._seating.allows(self._unit.partition, *more)

    def _take(self, offering: Offering, limits: Iterable[Limit]) -> None:
        for limit in limits:
            if self._counts(limit):
                self.taken[limit] += 1
        self.launched += 1
        self.spent += offering.price
        self.offerings.add(offering.id)

    def _admitted(self, run: RunView, offering: Offering) -> bool:
        return self._within_quota(self._gpus_on(run, offering.type.family))

    def _within_quota(self, needed: Mapping[Family, int]) -> bool:
        if self.share is None or not needed or self.share.allows(self.gpus + Counter(needed)):
            return True
        self.lacking.add(Limit(LimitKind.TENANT, self._unit.job.spec.tenant))
        return False

    def _gpus_on(self, run: RunView, family: Family) -> dict[Family, int]:
        base = base_family(family)
        gpus = gpu_needs(run.task).get(base, 0)
        return {base: gpus} if gpus else {}

    def _count(self, run: RunView, offering: Offering) -> None:
        self.placed += 1
        if self.share is not None:
            self.gpus.update(self._gpus_on(run, offering.type.family))
