"""The rounds of the policy `astraea`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eva_master.model.planning.plan import Again, Loans, PolicyMemory, Resize
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.fleet.allotted import smallest
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_policies.astraea.allotting import AllotmentRules
from eva_policies.astraea.config import NAME, Config
from eva_policies.astraea.explanations import figures, named, waiting
from eva_policies.astraea.guarantee import Guarantee
from eva_policies.astraea.prices import PricedAllotment, clearing, free, posted, terms_of
from eva_policies.astraea.requests_from_snapshot import RoomRequests, gather
from eva_policies.astraea.seating import Seating
from eva_wire.values.ids import MILLION, Family, Millis

_TRIES = 4
"""So often room is counted out anew where machines cannot hold what was."""


class Astraea(FleetPolicy[Config]):
    """Shares the machines that tenants have brought together.

    A tenant has its own machines at once. Others borrow its idle ones: jobs with the highest cost
    of waiting relative to their remaining work come first. Their price is the cost of waiting of
    the best job that gets nothing. A tenant that ends worse off than alone is compensated out of
    the gains of the others.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Allot the fleet's room anew, except for leased places."""
        small = smallest(snapshot)
        fleet, contenders = self._contenders.of(small, 0)
        instances = open_instances(small, self._cache)
        asked = gather(small, fleet, contenders, instances, self._config)
        guarantee = Guarantee(self._config, snapshot, memory)
        guarantee.advance(asked.asks.values(), fleet.capacity())
        rules = self._rules(snapshot, fleet, asked, guarantee.closed)
        priced, seating = self._seated(snapshot, asked, rules)
        terms = terms_of(priced, list(asked.asks.values()), rules.closed)
        whys = waiting(asked, priced, seating.has)
        plan = turn_plan(
            seating.snapshot,
            seating.instances,
            seating.contenders,
            whys,
            explained=self._config.explained,
            lease_s=self._config.lease_s if _held_up(asked, seating) else None,
        )
        plan = named(plan, asked, priced)
        again = [time for time in (plan.again.at_ms, guarantee.next_ms) if time is not None]
        plan = replace(
            plan,
            sizes=_resizes(snapshot, seating),
            loans=Loans(terms, guarantee.transfers),
            again=Again(Millis(min(again)) if again else None),
            figures={**plan.figures, **figures(priced, guarantee)} if contenders else plan.figures,
        )
        return plan, guarantee.memory(memory)

    def _rules(
        self, snapshot: Snapshot, fleet: Fleet, asked: RoomRequests, closed: frozenset[str]
    ) -> AllotmentRules:
        capacity: dict[Family, Resources] = {}
        for family, total in fleet.capacity().items():
            capacity[family] = total - asked.taken.get(family, NOTHING)
        return AllotmentRules(
            capacity,
            {tenant.name: tenant.quota for tenant in snapshot.tenants},
            closed,
            1000 * self._config.horizon_s,
            by_arrival=self._config.pricing == "posted" and bool(snapshot.tenants),
        )

    def _seated(
        self, snapshot: Snapshot, asked: RoomRequests, rules: AllotmentRules
    ) -> tuple[PricedAllotment, Seating]:
        """Count room out until machines can hold what was."""
        most: dict[str, int] = {}
        for _ in range(_TRIES):
            tried = replace(rules, most=most)
            priced = self._priced(tried, asked)
            seating = Seating(snapshot, asked, priced.allotment, self._cache)
            if not seating.failed:
                break
            for name in seating.failed:
                members = priced.allotment.shares[name].members
                half = members // 2
                most[name] = half if half >= asked.asks[name].least else 0
        for name in seating.failed:
            priced.allotment.shares.pop(name, None)
        open_to = {
            name: not rules.closed and _accepts(asked, priced, name)
            for name in sorted(asked.contenders, key=lambda it: _rank(asked, it))
        }
        seating.fill(open_to, priced.allotment)
        return priced, seating

    def _priced(self, rules: AllotmentRules, asked: RoomRequests) -> PricedAllotment:
        asks = list(asked.asks.values())
        if self._config.pricing == "none" or not rules.quotas:
            return free(rules, asks)
        if self._config.pricing == "posted":
            return posted(rules, asks, round(self._config.posted_usd_per_hour * MILLION))
        return clearing(rules, asks)


def _accepts(asked: RoomRequests, priced: PricedAllotment, name: str) -> bool:
    ask = asked.asks.get(name)
    if asked.contenders[name].job.tenancy.unlent:
        return False
    if ask is None:
        return not priced.prices
    asked_for = (*priced.prices.values(), priced.posted.get(ask.id, 0))
    return all(ask.per_gpu_hour >= price for price in asked_for)


def _rank(asked: RoomRequests, name: str) -> tuple[Any, ...]:
    ask = asked.asks.get(name)
    return (1, name) if ask is None else (0, ask.rank)


def _held_up(asked: RoomRequests, seating: Seating) -> bool:
    """Whether somebody waits while others keep their places by a lease."""
    waits = any(not seating.has(name) for name in asked.asks)
    return waits and any(ask.leased for ask in asked.asks.values())


def _resizes(snapshot: Snapshot, seating: Seating) -> tuple[Resize, ...]:
    before: Mapping[str, int] = {job.id: len(job.runs) for job in snapshot.jobs}
    return tuple(
        Resize(
            job,
            size,
            "there is room for more" if size > before[job] else "others have the room",
        )
        for job, size in sorted(seating.sizes.items())
    )


def _reads(_config: Config) -> tuple[str, ...]:
    """The optional keys of job files that it reads."""
    return ("value",)


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Astraea,
    time_shares=True,
    elastic=True,
    lends=True,
    reads=_reads,
)
