"""The reasons of a plan, in dollars. They are kept with the round and shown by ``eva explain``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eva_master.model.values import quick, replace
from eva_wire.values.ids import MILLIS_PER_HOUR, InstanceId, JobId, RunId

Where = InstanceId | int
"""Id of a live instance, or key of a new one in the plan."""


@quick
@dataclass(frozen=True, slots=True)
class Occupant:
    """Contribution of a task run to the value of its instance.

    Attributes:
        reservation_micro_usd_per_hour: Price of the cheapest offering that hosts it alone; on a
            family where it runs at another speed, times that speed.
        throughput_ppm: Expected throughput beside the others, in millionths of the standalone
            throughput.
        value_micro_usd_per_hour: Its throughput-normalised reservation price (TNRP): the
            reservation price less slowdowns. Negative if it slows a gang down by more than it is
            worth.
        profiled: Whether it is kept alone until its standalone throughput has been measured.
    """

    run: RunId
    reservation_micro_usd_per_hour: int
    throughput_ppm: int
    value_micro_usd_per_hour: int
    profiled: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Hosting:
    """An instance that the plan keeps or buys.

    Attributes:
        type: Name of the instance type.
        value_micro_usd_per_hour: The sum of its occupants' values. The instance pays off if it is
            at least the price.
        occupants: By id.
    """

    on: Where
    type: str
    price_micro_usd_per_hour: int
    value_micro_usd_per_hour: int
    occupants: tuple[Occupant, ...]

    def adopted(self, names: Mapping[int, InstanceId], dropped: Collection[RunId]) -> Hosting:
        """See `Reasons.adopted`."""
        if isinstance(self.on, str) and not dropped:
            return self
        occupants = tuple(occupant for occupant in self.occupants if occupant.run not in dropped)
        return replace(self, on=_name(self.on, names), occupants=occupants)


@dataclass(frozen=True, slots=True)
class Move:
    """A running task run that moves to another instance.

    Attributes:
        cost_micro_usd: Its migration cost: what its room on both instances costs while it is
            checkpointed and started.
    """

    run: RunId
    source: InstanceId
    target: Where
    cost_micro_usd: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Moves that depend on each other: one needs the room that another leaves, or a gang moves.

    The saving of one of several such moves is not defined; that of all together is exact.

    Attributes:
        saved_micro_usd_per_hour: Value less price of the instances concerned, compared with moving
            nothing.
        cost_micro_usd: Cost of the moves, of gang members that stop with them, and of new instances
            while they boot, compared with moving nothing.
    """

    moves: tuple[Move, ...]
    saved_micro_usd_per_hour: int
    cost_micro_usd: int

    @property
    def break_even_ms(self) -> int | None:
        """The time after which the saving exceeds the cost; `None` if it never does."""
        if self.cost_micro_usd <= 0:
            return 0
        if self.saved_micro_usd_per_hour <= 0:
            return None
        return -(-self.cost_micro_usd * MILLIS_PER_HOUR // self.saved_micro_usd_per_hour)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A configuration that the policy considered.

    Attributes:
        kind: ``keep``, ``partial`` or ``full``.
        savings_micro_usd_per_hour: S, value less price over all instances.
        migration_micro_usd: M, the cost of changing to it.
        moves: Number of running task runs that would move.
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
        classes: Number of task classes, whose tasks are interchangeable.
        tasks: Number of placed tasks.
        instances: Number of instances that hold them.
        horizon_ms: D̂, the expected duration of the configuration.
        events_per_hour: λ, the rate of arrivals and ends of jobs.
        full_share: p, the share of events that led to a full reconfiguration.
        lower_bound_micro_usd_per_hour: A lower bound of the price of any configuration for the same
            tasks; `None` if unknown.
        optimizer: How the configuration was built: ``greedy``, ``lp`` or ``auto``.
        columns: Number of columns in the LPs that were solved in this round.
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
    """The reasons of a whole plan.

    Attributes:
        hostings: One for every instance that holds a task, live ones first.
        exchanges: Every move is in one of them.
        weighing: `None` from a policy that does not choose between alternatives.
    """

    hostings: tuple[Hosting, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    weighing: Weighing | None = None

    def merged_with(self, other: Reasons, keys: Mapping[int, int]) -> Reasons:
        """Merge these reasons with those of a plan for another part of the cluster.

        Args:
            other: Reasons of the other plan, whose weighing takes precedence.
            keys: New keys of the other plan's new instances.
        """
        hostings = (replace(hosting, on=_rekeyed(hosting.on, keys)) for hosting in other.hostings)
        exchanges = (
            replace(
                exchange,
                moves=tuple(
                    replace(move, target=_rekeyed(move.target, keys)) for move in exchange.moves
                ),
            )
            for exchange in other.exchanges
        )
        every = (*self.hostings, *hostings)
        return Reasons(
            tuple(sorted(every, key=lambda it: isinstance(it.on, int))),
            (*self.exchanges, *exchanges),
            other.weighing or self.weighing,
        )

    def adopted(self, names: Mapping[int, InstanceId], dropped: Collection[RunId]) -> Reasons:
        """The reasons for the adopted part of a plan. Its figures remain those of the plan.

        Args:
            names: Ids of the new instances by key. Instances without an id were not launched.
            dropped: Task runs whose placement was not adopted.
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
            hostings=tuple(hosting for hosting in hostings if hosting.occupants),
            exchanges=tuple(exchange for exchange in exchanges if exchange.moves),
        )


def _rekeyed(where: Where, keys: Mapping[int, int]) -> Where:
    return keys[where] if isinstance(where, int) else where


def _name(where: Where, names: Mapping[int, InstanceId]) -> Where:
    return names.get(where, where) if isinstance(where, int) else where


@dataclass(frozen=True, slots=True)
class Handed:
    """A priority that a job has from another one.

    Attributes:
        priority: The priority.
        by: The job of that priority which waits for this one, directly or through others.
    """

    priority: int
    by: JobId

    @property
    def words(self) -> str:
        """The priority for users, and its origin."""
        return f"priority {self.priority:,}, handed on by {self.by}"
