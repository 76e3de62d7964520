"""Why a plan is as it is, in dollars: kept with the round and shown by ``eva explain``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from eva_master.model.ids import MILLIS_PER_HOUR, InstanceId, RunId

Where = InstanceId | int
"""A live instance, or a new one by its key in the plan."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a task run adds to the value of its instance.

    Attributes:
        reservation_micro_usd_per_hour: Price of the cheapest offering that hosts it alone; on a
            family where it runs at another speed, times that speed.
        throughput_ppm: Expected beside the others, in millionths of the throughput alone.
        value_micro_usd_per_hour: Its TNRP: what is left of the reservation price once slowdowns
            are charged. Negative where it holds up a gang by more than it is worth.
        profiled: It is kept alone until its standalone throughput has been measured.
    """

    run: RunId
    reservation_micro_usd_per_hour: int
    throughput_ppm: int
    value_micro_usd_per_hour: int
    profiled: bool = False


@dataclass(frozen=True, slots=True)
class Hosting:
    """An instance that the plan keeps or buys.

    Attributes:
        type: Name of the instance type.
        value_micro_usd_per_hour: The sum of its tenants' values. It pays if this is no less
            than the price.
        tenants: By id.
    """

    on: Where
    type: str
    price_micro_usd_per_hour: int
    value_micro_usd_per_hour: int
    tenants: tuple[Tenant, ...]

    def adopted(self, names: Mapping[int, InstanceId], dropped: Collection[RunId]) -> Hosting:
        """See `Reasons.adopted`."""
        if isinstance(self.on, str) and not dropped:
            return self
        tenants = tuple(one for one in self.tenants if one.run not in dropped)
        return replace(self, on=_name(self.on, names), tenants=tenants)


@dataclass(frozen=True, slots=True)
class Move:
    """A running task run that is to run elsewhere.

    Attributes:
        cost_micro_usd: What it holds idle at both ends while it is checkpointed and started.
    """

    run: RunId
    source: InstanceId
    target: Where
    cost_micro_usd: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Moves that hang together: each needs the room that another leaves, or its gang moves.

    What one of several moves saves by itself is not defined, what all of them save is exact.

    Attributes:
        saved_micro_usd_per_hour: Value less price of the instances concerned, above what it
            would be if nothing moved.
        cost_micro_usd: Moves, gang members that stop along, and new instances while they come
            up; above what not moving costs.
    """

    moves: tuple[Move, ...]
    saved_micro_usd_per_hour: int
    cost_micro_usd: int

    @property
    def break_even_ms(self) -> int | None:
        """After which time it has paid for itself; `None` if it never does."""
        if self.cost_micro_usd <= 0:
            return 0
        if self.saved_micro_usd_per_hour <= 0:
            return None
        return -(-self.cost_micro_usd * MILLIS_PER_HOUR // self.saved_micro_usd_per_hour)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A configuration that was considered.

    Attributes:
        kind: ``keep``, ``partial`` or ``full``.
        savings_micro_usd_per_hour: S, value less price over all instances.
        migration_micro_usd: M, what it costs to get there.
        moves: Running task runs that would move.
    """

    kind: str
    savings_micro_usd_per_hour: int
    migration_micro_usd: int
    moves: int


@dataclass(frozen=True, slots=True)
class Weighing:
    """How the round's configuration was chosen.

    Attributes:
        chosen: Kind of the alternative that was adopted.
        cost_micro_usd_per_hour: Price and the value of the throughput lost to interference.
        classes: Of tasks that no decision tells apart.
        tasks: That have a place.
        instances: That hold them.
        horizon_ms: D̂, how long the configuration is expected to last.
        events_per_hour: λ, arrivals and ends of jobs.
        full_share: p, the share of events that led to a full reconfiguration.
        lower_bound_micro_usd_per_hour: What no scheduler can pay less than for the same tasks;
            `None` if it is not known.
        optimizer: How sets of tasks were made: ``greedy``, ``lp`` or ``auto``.
        columns: In the LPs that were solved in this round.
    """

    chosen: str
    alternatives: tuple[Alternative, ...]
    cost_micro_usd_per_hour: int
    classes: int
    tasks: int
    instances: int
    horizon_ms: int = 0
    events_per_hour: float = 0.0
    full_share: float = 0.0
    lower_bound_micro_usd_per_hour: int | None = None
    optimizer: str = ""
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a plan is as it is.

    Attributes:
        hostings: Of every instance that holds a task, live ones first.
        exchanges: Of every move.
        weighing: `None` from a policy that has nothing to choose between.
    """

    hostings: tuple[Hosting, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    weighing: Weighing | None = None

    def adopted(self, names: Mapping[int, InstanceId], dropped: Collection[RunId]) -> Reasons:
        """The reasons for the part of a plan that was adopted; its figures stay the plan's.

        Args:
            names: What the new instances are called; those without a name were not launched.
            dropped: Task runs that the plan placed and that are not placed after all.
        """
        hostings = tuple(
            hosting.adopted(names, dropped)
            for hosting in self.hostings
            if hosting.on in names or isinstance(hosting.on, str)
        )
        exchanges = (
            replace(
                exchange,
                moves=tuple(
                    replace(move, target=_name(move.target, names))
                    for move in exchange.moves
                    if move.run not in dropped
                ),
            )
            for exchange in self.exchanges
        )
        return replace(
            self,
            hostings=tuple(hosting for hosting in hostings if hosting.tenants),
            exchanges=tuple(exchange for exchange in exchanges if exchange.moves),
        )


def _name(where: Where, names: Mapping[int, InstanceId]) -> Where:
    return names.get(where, where) if isinstance(where, int) else where
