"""Who goes first, and on which types: by what the time of each type is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.ids import MILLION, Family, Millis, RunId
from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.lp.least_time import LeastTime, Need, least_time
from eva_master.policies.hadar.config import Config
from eva_master.policies.hadar.parting import Parting, partings

_SLACK_PART = 20
"""The longest go first for at most one part in so many of the time from when the first job that is
here came until everything can be done."""

_LEASES = 12
"""For so many leases a job waits that ends within one, before it goes before critical ones."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A contender in the order in which they choose.

    Attributes:
        one: Who.
        costs: What is left of it costs by type, in milliseconds of the bound.
        suits: The types that suit it, the best first.
        parting: Several types that suit its tasks better than any one of these, `None` if none do.
        brief: Whether it has waited for many leases though it would end within one.
        late: Whether it came so long ago that it goes before those that came after it.
        mixed: Whether it runs on all of these together, since none has room for all of it.
        critical: Whether everything ends later if it waits.
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
        """What is left of it costs where that is least."""
        return min(self.costs.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Urgency:
    """When everything can be done, and who has to hurry for it.

    Attributes:
        bound_ms: Nobody is done with everything that is left before.
        slack_ms: Who would end later than so long before it goes first.
    """

    bound_ms: float
    slack_ms: float


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a round.

    Attributes:
        bound_ms: Nobody is done with everything that is left before.
        worth: What the time of each type is worth.
        turns: Who chooses first.
    """

    bound_ms: float
    worth: LeastTime
    turns: tuple[Turn, ...]


def ordered(
    contenders: Sequence[Contender],
    capacity: Mapping[Family, Resources],
    on: Mapping[RunId, frozenset[Family]],
    config: Config,
    now: Millis,
) -> Order:
    """Find the order of a round.

    Args:
        contenders: Who competes, by submission.
        capacity: Of the fleet, by type.
        on: The types that contenders are on at present, by their ids.
        config: Settings.
        now: The time of the round.
    """
    needs = _needs(contenders)
    least = least_time(needs, capacity)
    worth = least_time(needs, capacity, one_by_one=False)
    assert least is not None, "contenders have room in the fleet"
    assert worth is not None, "contenders have room in the fleet"
    first = min((one.job.submitted_ms for one in contenders), default=now)
    span_ms = now - first + least.bound_ms
    slack_ms = min(1000 * config.slack_s, span_ms / _SLACK_PART)
    urgent = Urgency(least.bound_ms, slack_ms)
    turns = [_turn(one, urgent, worth, on.get(one.id), config) for one in contenders]
    came = now - config.patience * least.bound_ms
    lease_ms = 1000 * config.lease_s
    turns = [
        replace(
            it,
            late=it.one.job.submitted_ms < came,
            brief=_is_brief(it.one, lease_ms) and _waits_ms(it.one, now) > _LEASES * lease_ms,
        )
        for it in turns
    ]
    turns.sort(key=lambda turn: _rank(turn, config))
    return Order(least.bound_ms, worth, tuple(turns))


def _is_brief(one: Contender, lease_ms: int) -> bool:
    return one.left_ms <= lease_ms and not one.guessed


def _waits_ms(one: Contender, now: Millis) -> int:
    """For how long it has been waiting for a place; 0 if it has one."""
    since = one.runs[0].since_ms
    return 0 if one.seated or since is None else now - since


def _needs(contenders: Sequence[Contender]) -> list[Need]:
    """What is left to be done; tasks of arrays that are alike are one need."""
    found: dict[object, Need] = {}
    for one in contenders:
        for need in one.needs:
            key = tuple(need.demand.items()), tuple(need.alone_ms.items())
            before = found.get(key)
            count = 1 + one.unseen + (before.count if before else 0)
            found[key] = replace(need, count=count)
    return list(found.values())


def _turn(
    one: Contender,
    urgent: Urgency,
    worth: LeastTime,
    on: frozenset[Family] | None,
    config: Config,
) -> Turn:
    # Whoever goes elsewhere is longer at it.
    takes = {
        family: ms + (one.move_ms if on is not None and on != {family} else 0)
        for family, ms in one.alone_ms.items()
    }
    costs = {it: ms * worth.cost(it, one.demand[it]) for it, ms in takes.items()}
    parting = _parting(one, urgent, worth, on)
    least_ms = one.left_ms if parting is None else min(one.left_ms, parting.takes_ms)
    critical = least_ms >= urgent.bound_ms - urgent.slack_ms
    if not one.types:
        fastest = sorted(costs, key=lambda it: (takes[it], it))
        others = sorted(worth.price.keys() - costs.keys())
        return Turn(one, costs, (*fastest, *others), parting, critical, mixed=True)
    in_time = [it for it in one.types if takes[it] <= urgent.bound_ms]
    in_time = in_time or [min(one.types, key=lambda it: (takes[it], it))]
    cheapest = sorted(in_time, key=lambda it: (costs[it], it))
    most = costs[cheapest[0]] * (MILLION + config.near_ppm) / MILLION
    near = [it for it in cheapest if critical or costs[it] <= most]
    first = cheapest[0]
    if parting and _worse(parting.takes_ms, parting.cost, urgent) >= _worse(
        takes[first], costs[first], urgent
    ):
        parting = None
    return Turn(one, costs, tuple(near), parting, critical)


def _parting(
    one: Contender, urgent: Urgency, worth: LeastTime, on: frozenset[Family] | None
) -> Parting | None:
    """The best way to have the tasks of a gang on several types, if there is any."""
    found = [
        replace(it, takes_ms=it.takes_ms + one.move_ms)
        if on is not None and on != set(it.types)
        else it
        for it in partings(one, worth)
    ]
    return min(found, key=lambda it: _worse(it.takes_ms, it.cost, urgent), default=None)


def _worse(takes_ms: float, cost: float, urgent: Urgency) -> tuple[bool, float]:
    """What compares more is worse: what ends after everything can be done, then what costs more."""
    late = takes_ms > urgent.bound_ms
    return late, takes_ms if late else cost


def _rank(turn: Turn, config: Config) -> tuple[object, ...]:
    """Who is late goes first, in the order in which they came.

    Then whoever has waited for long enough and ends within a lease, since nobody waits longer than
    that for it; then the critical ones, of these the longest; then who costs least.
    """
    came = turn.one.job.submitted_ms
    first = -turn.one.job.priority, not turn.late, came if turn.late else 0
    if turn.brief:
        return *first, 0, turn.least, came, turn.one.id
    if turn.critical:
        # Those that are about as long do not take turns.
        left = turn.one.left_ms + (2_000 * config.lease_s if turn.one.seated else 0)
        return *first, 1, -left, came, turn.one.id
    return *first, 2, turn.least, came, turn.one.id
