"""The rounds of Hadar as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.model.catalog import Gpu
from eva_master.model.fleet.forking import Forking
from eva_master.model.planning.plan import Again, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_policies.hadar_published.branches import Given, Refused, allocate
from eva_policies.hadar_published.config import NAME, PRESETS, Config
from eva_policies.hadar_published.find_alloc import Allocator, Candidate
from eva_policies.hadar_published.memory import Memory, digest, joined
from eva_policies.hadar_published.prices import Extremes, extremes, price_ranges
from eva_policies.hadar_published.queue import ask_of, in_order
from eva_policies.hadar_published.requests import GpuRequest, Utility
from eva_policies.hadar_published.rooms import FreeServers
from eva_policies.hadar_published.servers import Free, free_of, kinds, seats, taken
from eva_wire.values.ids import Family, Millis, RunId

_NO_ROOM = "the GPUs that it needs are not free"
_TOO_DEAR = "the GPUs that are free cost more than it is worth now"
_BEHIND = "others earn more"


class HadarPublished(FleetPolicy[Config]):
    """Prices GPUs by how many of a server are in use, and admits whoever earns more than it pays.

    In each round a dynamic programme goes through the queue and chooses who is admitted, so that
    the sum of their payoffs is large.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Allot the fleet's room anew, or only free room; see `Config.replan`."""
        config, memory_before = self._config, Memory.read(memory, self._config)
        fleet, contenders = self._contenders.of(snapshot, 1000 * config.lease_s)
        crowded = any(not contender.seated for contender in contenders)
        rested = "" if crowded else _digest(snapshot, contenders)
        stay = config.replan == "arrivals" or (rested and rested == memory_before.rested)
        choosing = [
            contender
            for contender in contenders
            if contender.chooses and not (stay and contender.seated)
        ]
        sheets = _sheets(snapshot) if config.first_rates else None
        now, asks = snapshot.now_ms, dict[RunId, GpuRequest]()
        for contender in contenders:
            ask = ask_of(
                contender,
                fleet.machines,
                now,
                memory_before.sizes.get(contender.job.id, 0.0),
                sheets,
            )
            if ask is not None:
                asks[contender.id] = ask
        met = extremes(asks.values(), Utility(config.utility), config.horizon_s)
        before = memory_before.extremes if config.remember_prices else {}
        sizes: dict[str, float] = {}
        for contender in contenders:
            if contender.id in asks:
                sizes[contender.job.id] = max(
                    asks[contender.id].size, sizes.get(contender.job.id, 0.0)
                )
        kept = Memory(joined(before, met, fleet.machines), sizes, rested)
        instances = open_instances(snapshot, self._cache)
        turn = _RoundAllotment(config, snapshot, instances, fleet, choosing)
        why = turn.give(asks, kept.extremes)
        plan = turn_plan(snapshot, instances, contenders, why, explained=config.explained)
        if crowded and config.replan == "every_round":
            plan = replace(plan, again=Again(Millis(snapshot.now_ms + 1000 * config.lease_s)))
        if not config.remember_prices:
            kept = replace(kept, extremes={})
        return plan, kept.written(config)


class _RoundAllotment:
    """Allots free room in one round.

    Args:
        config: Settings.
        snapshot: The cluster.
        instances: Its instances.
        fleet: The fleet to allot.
        choosing: Contenders whose places are decided; they lose their present ones.
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
        for contender in choosing:
            if contender.fixed:
                # The rest of a partly placed gang comes before others.
                self._seats.on(contender, self._types(contender))
        wanted = sum(len(contender.runs) for contender in choosing)
        self._rooms = FreeServers(snapshot, instances, wanted)

    def give(
        self, asks: Mapping[RunId, GpuRequest], met: Mapping[Family, Extremes]
    ) -> dict[RunId, str]:
        """Allot the room to contenders.

        Args:
            asks: Asks of contenders, by their ids.
            met: Extremes of the jobs that set the prices.

        Returns:
            Reasons of contenders without a place, by their ids.
        """
        utility = Utility(self._config.utility)
        asking = [
            (contender, asks[contender.id])
            for contender in self._choosing
            if contender.id in asks and not contender.fixed
        ]
        queued = in_order(asking, self._config.order, utility)
        allocator, free = self._allocator(met, utility)
        given = self._chosen([ask for _, ask in queued], allocator, free)
        refused = self._seated({ask.name: contender for contender, ask in queued}, given)
        for contender in self._choosing:
            if contender.id not in asks and not self._seats.has(contender):
                self._seats.on(contender, self._types(contender))
        for grant in given:
            free = taken(free, grant.allocation.takes)
        return refused | {
            contender.id: _why(ask, allocator, free)
            for contender, ask in queued
            if not self._seats.has(contender) and contender.id not in refused
        }

    def _allocator(
        self, met: Mapping[Family, Extremes], utility: Utility
    ) -> tuple[Allocator, Free]:
        """The allocator of this round, and the free GPUs at first."""
        config, servers = self._config, self._rooms.servers
        server_kinds = kinds(servers)
        prices = price_ranges(met, self._rooms.capacity(), config.eta)
        candidate = Candidate(config.candidate)
        allocator = Allocator(server_kinds, prices, utility, config.communication_ppm, candidate)
        return allocator, free_of(servers, server_kinds)

    def _chosen(self, asks: Sequence[GpuRequest], allocator: Allocator, free: Free) -> list[Given]:
        refused = Refused(self._config.refused)
        given = allocate(asks, allocator, free, self._config.branches, refused)
        if given or not self._is_idle():
            return given
        # A job that pays nowhere would wait for ever beside an idle fleet.
        return allocate(asks, allocator, free, 1, Refused.FILLS)[:1]

    def _seated(self, queued: Mapping[str, Contender], given: Sequence[Given]) -> dict[RunId, str]:
        """Seat the chosen contenders; return why some have no place after all."""
        homes = {grant.ask.name: self._rooms.home(queued[grant.ask.name]) for grant in given}
        takes = [(grant.ask.name, grant.allocation.takes) for grant in given]
        places, late = seats(takes, self._rooms.servers, homes), list[Contender]()
        for name, where in places.items():
            if not self._rooms.put(queued[name], where):
                late.append(queued[name])
        # The chosen servers have the GPUs, but not all other resources on the same server.
        return {
            contender.id: _NO_ROOM
            for contender in late
            if not self._seats.on(contender, self._types(contender))
        }

    def _is_idle(self) -> bool:
        return all(server.free == server.kind.capacity for server in self._rooms.servers)

    def _types(self, one: Contender) -> list[Family]:
        """The types of the fleet, those first on which a contender ends first."""
        slow = float("inf")
        return sorted(self._fleet.machines, key=lambda it: (one.alone_ms.get(it, slow), it))


def _why(ask: GpuRequest, allocator: Allocator, free: Free) -> str:
    allocation = allocator.find(ask, allocator.shape(ask), free)
    if allocation is None:
        return _NO_ROOM
    return _TOO_DEAR if allocation.payoff <= 0 else _BEHIND


def _sheets(snapshot: Snapshot) -> dict[Family, Gpu]:
    """GPUs of the types with a known data sheet."""
    offered = (*snapshot.catalog, *(view.offering for view in snapshot.instances))
    return {
        offering.type.family: offering.type.gpu
        for offering in offered
        if offering.type.gpu is not None
    }


def _digest(snapshot: Snapshot, contenders: Sequence[Contender]) -> str:
    return digest(
        [*(contender.id for contender in contenders), *(view.id for view in snapshot.instances)]
    )


def _forking(config: Config) -> Forking | None:
    """How jobs are forked; see `Config.forks`."""
    if not config.forks:
        return None
    return Forking(1000 * (config.round_gap_s or config.lease_s))


def _reads(config: Config) -> tuple[str, ...]:
    """The optional keys of job files that it reads."""
    return ("batch_size", "dataset_size", "model_size") if config.first_rates else ()


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=HadarPublished,
    presets=PRESETS,
    time_shares=True,
    forking=_forking,
    reads=_reads,
)
"""Policy `hadar_published`: prices by what is in use, and a dynamic programme over the queue."""
