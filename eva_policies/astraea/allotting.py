"""Allotment of GPUs by type and number: first from the own quota, then from others' idle GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_policies.astraea.requests import RoomRequest
from eva_wire.values.ids import Family

_UNLIMITED = 10**9
"""Members that need nothing."""


@dataclass(frozen=True, slots=True)
class AllotmentRules:
    """Rules of a round's allotment.

    Attributes:
        capacity: Capacity of each type.
        quotas: The GPUs of each tenant.
        closed: Tenants that lend nothing at present.
        horizon_ms: The gain of more members has to pay for the restart within this time.
        by_arrival: Whether room of others is asked for in the order of submission.
        most: Upper limits of members, for asks that found no room for more.
    """

    capacity: Mapping[Family, Resources]
    quotas: Mapping[str, Quota]
    closed: frozenset[str] = frozenset()
    horizon_ms: int = 3_600_000
    by_arrival: bool = False
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Share:
    """Outcome for one ask.

    Attributes:
        family: The type.
        members: Number of members.
        own: GPUs of its tenant's quota.
        borrowed: GPUs beyond it.
    """

    family: Family
    members: int
    own: int = 0
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Allotment:
    """Outcome for all asks.

    Attributes:
        shares: By ask; an ask without an entry gets nothing.
        idle: GPUs that tenants leave idle of their quotas, by type.
        lent: The part of these GPUs that others may have, by type, before any was taken.
        free: Unused room of each type.
        left: Rest of each tenant's quota in the end, by type.
    """

    shares: dict[str, Share]
    idle: dict[str, dict[Family, int]]
    lent: dict[Family, int]
    free: dict[Family, Resources]
    left: dict[str, dict[Family, int]]


Accepts = Callable[[RoomRequest, Family, int], bool]
"""Whether an ask takes room of others on a type, of which so many GPUs are in use already."""


def everybody(ask: RoomRequest, family: Family, used: int) -> bool:
    """Room of others costs nothing."""
    del ask, family, used
    return True


class Allotting:
    """One allotment of a round's room.

    Args:
        rules: The rules.
        asks: The asks.
    """

    def __init__(self, rules: AllotmentRules, asks: Sequence[RoomRequest]) -> None:
        self._rules = rules
        ranked = sorted(asks, key=lambda it: it.rank)
        fixed = [ask for ask in asks if ask.fixed]
        leased = [ask for ask in asks if ask.leased and not ask.fixed]
        self._others = [ask for ask in ranked if not ask.fixed and not ask.leased]
        self._fixed = sorted(fixed, key=lambda it: (it.began_ms, *it.came))
        self._leased = sorted(leased, key=lambda it: (it.began_ms, *it.came))
        self._free = dict(rules.capacity)
        self._left = {name: dict(quota) for name, quota in rules.quotas.items()}
        self._shares: dict[str, Share] = {}

    def allot(self, accepts: Accepts = everybody) -> Allotment:
        """Allot all the room.

        Args:
            accepts: Whether an ask takes room of others at its price.
        """
        for ask in self._fixed:
            if ask.on is not None and ask.now:
                self._give(ask, ask.on, ask.now)
        for ask in (*self._leased, *self._others):
            self._from_quota(ask)
        idle = {name: dict(rest_of) for name, rest_of in self._left.items()}
        lent = {family: self._borrowable(family, None) for family in self._free}
        for ask in self._leased:
            self._from_others(ask, ask.now, everybody)
        rest = self._others
        if self._rules.by_arrival:
            rest = sorted(rest, key=lambda it: (-it.priority, it.guessed, *it.came))
        for ask in rest:
            self._from_others(ask, self._most(ask), accepts)
        return Allotment(self._shares, idle, lent, self._free, self._left)

    def _most(self, ask: RoomRequest) -> int:
        return min(ask.most, self._rules.most.get(ask.id, ask.most))

    def _from_quota(self, ask: RoomRequest) -> None:
        most = ask.now if ask.leased else self._most(ask)
        for family in ask.types:
            each = ask.gpus(family)
            rest = self._own_left(ask.tenant, family)
            members = min(most, self._room(ask, family), rest // each if each else _UNLIMITED)
            if members >= ask.least:
                self._give(ask, family, self._worth_it(ask, family, members))
                return

    def _from_others(self, ask: RoomRequest, most: int, accepts: Accepts) -> None:
        share = self._shares.get(ask.id)
        families = ask.types if share is None else (share.family,)
        for family in families:
            before = 0 if share is None else share.members
            each = ask.gpus(family)
            spare = self._borrowable(family, ask.tenant, lent=not ask.unlent)
            more = min(most - before, self._room(ask, family))
            more = min(more, spare // each if each else _UNLIMITED)
            if more <= 0 or before + more < ask.least:
                continue
            needed = each * more - self._own_left(ask.tenant, family)
            used = self._rules.capacity[family].gpus - self._free[family].gpus
            if needed > 0 and not accepts(ask, family, used):
                more = self._own_left(ask.tenant, family) // each
                if more <= 0 or before + more < ask.least:
                    continue
            members = self._worth_it(ask, family, before + more)
            if members > before:
                self._give(ask, family, members - before)
                return

    def _worth_it(self, ask: RoomRequest, family: Family, members: int) -> int:
        """So many members, or as many as it has if more are not worth a restart."""
        if not ask.now or ask.on != family or members <= ask.now:
            return members
        grows = not ask.leased and ask.pays_to_grow(members, self._rules.horizon_ms)
        return members if grows else ask.now

    def _give(self, ask: RoomRequest, family: Family, members: int) -> None:
        need = ask.need[family]
        gpus = need.gpus * members
        self._free[family] -= need.times(members)
        own = min(gpus, self._own_left(ask.tenant, family))
        quota_rest = self._left.get(ask.tenant, {})
        named = min(own, quota_rest.get(family, 0))
        if named:
            quota_rest[family] -= named
        if own > named:
            quota_rest[ANY_FAMILY] -= own - named
        share = self._shares.setdefault(ask.id, Share(family, 0))
        share.members += members
        share.own += own
        share.borrowed += gpus - own

    def _own_left(self, tenant: str, family: Family) -> int:
        quota_rest = self._left.get(tenant, {})
        return max(0, quota_rest.get(family, 0)) + max(0, quota_rest.get(ANY_FAMILY, 0))

    def _room(self, ask: RoomRequest, family: Family) -> int:
        """For how many more members there is room on a type."""
        room = ask.need[family].times_in(self._free[family]) if family in self._free else 0
        return _UNLIMITED if room is None else max(0, room)

    def _borrowable(self, family: Family, tenant: str | None, *, lent: bool = True) -> int:
        """GPUs that are free but for what tenants leave idle that do not lend.

        Args:
            family: Of which type.
            tenant: The one that asks.
            lent: Whether others lend to it; else what belongs to no tenant is all that it gets.
        """
        kept = 0
        for name in self._rules.closed if lent else self._left:
            if name != tenant:
                kept += self._own_left(name, family)
        return max(0, self._free[family].gpus - kept)


def left_out(asks: Iterable[RoomRequest], allotment: Allotment) -> list[RoomRequest]:
    """Jobs that would borrow and get nothing, in the order of their turn."""
    asks_left = [
        ask for ask in asks if ask.id not in allotment.shares and ask.need and not ask.unlent
    ]
    return sorted(asks_left, key=lambda it: it.rank)
