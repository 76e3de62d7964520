"""The rounds of Hadar as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eva_master.model.catalog import Gpu
from eva_master.model.fleet.forking import Forking
from eva_master.model.ids import Family, Millis, RunId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender, Contenders
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import PlannerCache, open_instances
from eva_master.policies.hadar_published.asks import Ask, Utility
from eva_master.policies.hadar_published.branches import Given, Refused, allocate
from eva_master.policies.hadar_published.config import NAME, PRESETS, Config
from eva_master.policies.hadar_published.find_alloc import Allocator, Candidate
from eva_master.policies.hadar_published.memory import Memory, digest, joined
from eva_master.policies.hadar_published.prices import Extremes, extremes, price_ranges
from eva_master.policies.hadar_published.queue import ask_of, in_order
from eva_master.policies.hadar_published.rooms import Rooms
from eva_master.policies.hadar_published.servers import Free, free_of, kinds, seats, taken

_NO_ROOM = "the GPUs that it needs are not free"
_TOO_DEAR = "the GPUs that are free cost more than it is worth now"
_BEHIND = "others earn more"


class HadarPublished:
    """Prices GPUs by how many of a server are in use, and admits whoever earns more than it pays.

    In each round a dynamic programme goes through the queue and chooses who is admitted, so that
    the sum of their payoffs is large.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._contenders = Contenders()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Give the fleet's room away anew, or what of it is free; see `Config.replan`."""
        config, known = self._config, Memory.read(memory, self._config)
        fleet, contenders = self._contenders.of(snapshot, 1000 * config.lease_s)
        crowded = any(not one.seated for one in contenders)
        rested = "" if crowded else _digest(snapshot, contenders)
        stay = config.replan == "arrivals" or (rested and rested == known.rested)
        choosing = [it for it in contenders if it.chooses and not (stay and it.seated)]
        sheets = _sheets(snapshot) if config.first_rates else None
        now, asks = snapshot.now_ms, dict[RunId, Ask]()
        for one in contenders:
            ask = ask_of(one, fleet.machines, now, known.sizes.get(one.job.id, 0.0), sheets)
            if ask is not None:
                asks[one.id] = ask
        met = extremes(asks.values(), Utility(config.utility), config.horizon_s)
        before = known.extremes if config.remember_prices else {}
        sizes: dict[str, float] = {}
        for one in contenders:
            if one.id in asks:
                sizes[one.job.id] = max(asks[one.id].size, sizes.get(one.job.id, 0.0))
        kept = Memory(joined(before, met, fleet.machines), sizes, rested)
        instances = open_instances(snapshot, self._cache)
        turn = _Turn(config, snapshot, instances, fleet, choosing)
        why = turn.give(asks, kept.extremes)
        plan = turn_plan(snapshot, instances, contenders, why, explained=config.explained)
        if crowded and config.replan == "every_round":
            plan = replace(plan, again_ms=Millis(snapshot.now_ms + 1000 * config.lease_s))
        if not config.remember_prices:
            kept = replace(kept, extremes={})
        return plan, kept.written(config)


class _Turn:
    """Gives away what is free in one round.

    Args:
        config: Settings.
        snapshot: The cluster.
        instances: Its instances.
        fleet: What there is to be given away.
        choosing: Whose places are decided; they lose those that they have.
    """

    def __init__(
        self,
        config: Config,
        snapshot: Snapshot,
        instances: OpenInstances,
        fleet: Fleet,
        choosing: Sequence[Contender],
    ) -> None:
        self._config, self._choosing, self._fleet = config, choosing, fleet
        self._seats = Seats(snapshot, instances, choosing)
        for one in choosing:
            if one.fixed:
                # The rest of a gang comes to where it is before others do.
                self._seats.on(one, self._types(one))
        wanted = sum(len(one.runs) for one in choosing)
        self._rooms = Rooms(snapshot, instances, wanted)

    def give(self, asks: Mapping[RunId, Ask], met: Mapping[Family, Extremes]) -> dict[RunId, str]:
        """Do it.

        Args:
            asks: What contenders ask for, by their ids.
            met: What the jobs are like that set the prices.

        Returns:
            Why those have no place that have none, by their ids.
        """
        utility = Utility(self._config.utility)
        found = [(it, asks[it.id]) for it in self._choosing if it.id in asks and not it.fixed]
        queued = in_order(found, self._config.order, utility)
        allocator, free = self._allocator(met, utility)
        given = self._chosen([ask for _, ask in queued], allocator, free)
        refused = self._seated({ask.name: one for one, ask in queued}, given)
        for one in self._choosing:
            if one.id not in asks and not self._seats.has(one):
                self._seats.on(one, self._types(one))
        for it in given:
            free = taken(free, it.allocation.takes)
        return refused | {
            one.id: _why(ask, allocator, free)
            for one, ask in queued
            if not self._seats.has(one) and one.id not in refused
        }

    def _allocator(
        self, met: Mapping[Family, Extremes], utility: Utility
    ) -> tuple[Allocator, Free]:
        """What finds allocations in this round, and what is free at first."""
        config, servers = self._config, self._rooms.servers
        known = kinds(servers)
        prices = price_ranges(met, self._rooms.capacity(), config.eta)
        candidate = Candidate(config.candidate)
        allocator = Allocator(known, prices, utility, config.communication_ppm, candidate)
        return allocator, free_of(servers, known)

    def _chosen(self, asks: Sequence[Ask], allocator: Allocator, free: Free) -> list[Given]:
        refused = Refused(self._config.refused)
        given = allocate(asks, allocator, free, self._config.branches, refused)
        if given or not self._is_idle():
            return given
        # Whoever pays nowhere would wait for ever beside an idle fleet.
        return allocate(asks, allocator, free, 1, Refused.FILLS)[:1]

    def _seated(self, queued: Mapping[str, Contender], given: Sequence[Given]) -> dict[RunId, str]:
        """Give those their places that were chosen; returns why some have none after all."""
        homes = {it.ask.name: self._rooms.home(queued[it.ask.name]) for it in given}
        takes = [(it.ask.name, it.allocation.takes) for it in given]
        places, late = seats(takes, self._rooms.servers, homes), list[Contender]()
        for name, where in places.items():
            if not self._rooms.put(queued[name], where):
                late.append(queued[name])
        # There are GPUs for these, but not enough of all else on the same server.
        return {one.id: _NO_ROOM for one in late if not self._seats.on(one, self._types(one))}

    def _is_idle(self) -> bool:
        return all(server.free == server.kind.capacity for server in self._rooms.servers)

    def _types(self, one: Contender) -> list[Family]:
        """The types of the fleet, those first on which a contender ends first."""
        slow = float("inf")
        return sorted(self._fleet.machines, key=lambda it: (one.alone_ms.get(it, slow), it))


def _why(ask: Ask, allocator: Allocator, free: Free) -> str:
    found = allocator.find(ask, allocator.shape(ask), free)
    if found is None:
        return _NO_ROOM
    return _TOO_DEAR if found.payoff <= 0 else _BEHIND


def _sheets(snapshot: Snapshot) -> dict[Family, Gpu]:
    """The GPUs of the types of which a data sheet is known."""
    offered = (*snapshot.catalog, *(view.offering for view in snapshot.instances))
    return {it.type.family: it.type.gpu for it in offered if it.type.gpu is not None}


def _digest(snapshot: Snapshot, contenders: Sequence[Contender]) -> str:
    return digest([*(it.id for it in contenders), *(it.id for it in snapshot.instances)])


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PRESETS)
    time_shares: bool = True

    def forking(self, config: Any) -> Forking | None:
        """How jobs are forked; see `Config.forks`."""
        assert isinstance(config, Config)
        if not config.forks:
            return None
        return Forking(1000 * (config.round_gap_s or config.lease_s))

    def reads(self, config: Any) -> tuple[str, ...]:
        """The optional keys of job files that it reads."""
        assert isinstance(config, Config)
        return ("batch_size", "dataset_size", "model_size") if config.first_rates else ()

    def build(self, config: Any) -> HadarPublished:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return HadarPublished(config)


POLICY = _PolicySpec()
"""Policy `hadar_published`: prices by what is in use, and a dynamic programme over the queue."""
