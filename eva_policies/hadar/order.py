"""Order of the contenders and their types: by the worth of each type's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.lp.least_time import LeastTime, Need, least_time
from eva_policies.hadar.config import Config
from eva_policies.hadar.mixed_type_gangs import Parting, partings
from eva_wire.values.ids import MILLION, Family, Millis, RunId

_SLACK_PART = 20
"""The longest go first for at most one part in so many of the time from when the first job that is
here came until everything can be done."""

_LEASES = 12
"""For so many leases a job waits that ends within one, before it goes before critical ones."""


@dataclass(frozen=True, slots=True)
class RankedContender:
    """A contender in the order of choice.

    Attributes:
        one: The contender.
        costs: Cost of its remaining work by type, in milliseconds of the bound.
        suits: The types that suit it, the best first.
        parting: Several types that suit its tasks better than any one of these, `None` if none do.
        brief: Whether it has waited for many leases though it would end within one.
        late: Whether it came so long ago that it goes before those that came after it.
        mixed: Whether it runs on all of these together, since none has room for all of it.
        critical: Whether the end of all work is later if it waits.
    """

    one: Contender
    costs: Mapping[Family, float]
    suits: tuple[Family, ...]
    parting: Parting | None = None
    critical: bool = False
    brief: bool = False
    late: bool = False
    mixed: bool = False

    @property
    def least(self) -> float:
        """Cost of its remaining work on its cheapest type."""
        return min(self.costs.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class FleetSlack:
    """Earliest end of all work, and the slack of critical contenders.

    Attributes:
        bound_ms: Lower bound of the time until all remaining work is done.
        slack_ms: A contender that would end within this time before the bound, or later, goes
            first.
    """

    bound_ms: float
    slack_ms: float


@dataclass(frozen=True, slots=True)
class RoundOrder:
    """The order of a round.

    Attributes:
        bound_ms: Lower bound of the time until all remaining work is done.
        worth: Worth of each type's time.
        turns: Contenders in the order of choice.
    """

    bound_ms: float
    worth: LeastTime
    turns: tuple[RankedContender, ...]


def ordered(
    contenders: Sequence[Contender],
    capacity: Mapping[Family, Resources],
    on: Mapping[RunId, frozenset[Family]],
    config: Config,
    now: Millis,
) -> RoundOrder:
    """Find the order of a round.

    Args:
        contenders: The contenders, by submission.
        capacity: Capacity of the fleet, by type.
        on: The types that contenders are on at present, by their ids.
        config: Settings.
        now: The time of the round.
    """
    needs = _needs(contenders)
    least = least_time(needs, capacity)
    worth = least_time(needs, capacity, one_by_one=False)
    assert least is not None, "contenders have room in the fleet"
    assert worth is not None, "contenders have room in the fleet"
    first = min((contender.job.submitted_ms for contender in contenders), default=now)
    span_ms = now - first + least.bound_ms
    slack_ms = min(1000 * config.slack_s, span_ms / _SLACK_PART)
    urgent = FleetSlack(least.bound_ms, slack_ms)
    turns = [
        _turn(contender, urgent, worth, on.get(contender.id), config) for contender in contenders
    ]
    came = now - config.patience * least.bound_ms
    lease_ms = 1000 * config.lease_s
    turns = [
        replace(
            turn,
            late=turn.one.job.submitted_ms < came,
            brief=_is_brief(turn.one, lease_ms) and _waits_ms(turn.one, now) > _LEASES * lease_ms,
        )
        for turn in turns
    ]
    turns.sort(key=lambda turn: _rank(turn, config))
    return RoundOrder(least.bound_ms, worth, tuple(turns))


def _is_brief(one: Contender, lease_ms: int) -> bool:
    return one.left_ms <= lease_ms and not one.guessed


def _waits_ms(one: Contender, now: Millis) -> int:
    """For how long it has been waiting for a place; 0 if it has one."""
    since = one.runs[0].since_ms
    return 0 if one.seated or since is None else now - since


def _needs(contenders: Sequence[Contender]) -> list[Need]:
    """Remaining work; equal tasks of arrays are one need."""
    needs: dict[object, Need] = {}
    for contender in contenders:
        for need in contender.needs:
            key = tuple(need.demand.items()), tuple(need.alone_ms.items())
            before = needs.get(key)
            count = 1 + contender.unseen + (before.count if before else 0)
            needs[key] = replace(need, count=count)
    return list(needs.values())


def _turn(
    one: Contender,
    urgent: FleetSlack,
    worth: LeastTime,
    on: frozenset[Family] | None,
    config: Config,
) -> RankedContender:
    # A contender that moves takes longer.
    takes = {
        family: ms + (one.move_ms if on is not None and on != {family} else 0)
        for family, ms in one.alone_ms.items()
    }
    costs = {family: ms * worth.cost(family, one.demand[family]) for family, ms in takes.items()}
    parting = _parting(one, urgent, worth, on)
    least_ms = one.left_ms if parting is None else min(one.left_ms, parting.takes_ms)
    critical = least_ms >= urgent.bound_ms - urgent.slack_ms
    if not one.types:
        fastest = sorted(costs, key=lambda it: (takes[it], it))
        others = sorted(worth.price.keys() - costs.keys())
        return RankedContender(one, costs, (*fastest, *others), parting, critical, mixed=True)
    in_time = [family for family in one.types if takes[family] <= urgent.bound_ms]
    in_time = in_time or [min(one.types, key=lambda it: (takes[it], it))]
    cheapest = sorted(in_time, key=lambda it: (costs[it], it))
    most = costs[cheapest[0]] * (MILLION + config.near_ppm) / MILLION
    near = [family for family in cheapest if critical or costs[family] <= most]
    first = cheapest[0]
    if parting and _worse(parting.takes_ms, parting.cost, urgent) >= _worse(
        takes[first], costs[first], urgent
    ):
        parting = None
    return RankedContender(one, costs, tuple(near), parting, critical)


def _parting(
    one: Contender, urgent: FleetSlack, worth: LeastTime, on: frozenset[Family] | None
) -> Parting | None:
    """The best way to have the tasks of a gang on several types, if there is any."""
    ways = [
        replace(way, takes_ms=way.takes_ms + one.move_ms)
        if on is not None and on != set(way.types)
        else way
        for way in partings(one, worth)
    ]
    return min(ways, key=lambda it: _worse(it.takes_ms, it.cost, urgent), default=None)


def _worse(takes_ms: float, cost: float, urgent: FleetSlack) -> tuple[bool, float]:
    """Sort key from good to bad: ends beyond the bound are worst, then higher costs."""
    late = takes_ms > urgent.bound_ms
    return late, takes_ms if late else cost


def _rank(turn: RankedContender, config: Config) -> tuple[object, ...]:
    """Sort key: late contenders go first, in the order of their arrival.

    Then contenders that have waited long enough and end within a lease, since that delays others
    only briefly; then the critical ones, the longest first; then those of the least cost.
    """
    came = turn.one.job.submitted_ms
    first = -turn.one.job.priority, not turn.late, came if turn.late else 0
    if turn.brief:
        return *first, 0, turn.least, came, turn.one.id
    if turn.critical:
        # Contenders of about equal length do not take turns.
        rest_ms = turn.one.left_ms + (2_000 * config.lease_s if turn.one.seated else 0)
        return *first, 1, -rest_ms, came, turn.one.id
    return *first, 2, turn.least, came, turn.one.id
