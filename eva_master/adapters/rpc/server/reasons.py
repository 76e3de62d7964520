"""Reasons of plans as messages; pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.arithmetic.money import split
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.changes import Round
from eva_master.model.planning.fleet_outlook import FleetOutlook
from eva_master.model.planning.reasons import Exchange, Hosting, Weighing, Where
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Family, RunId
from eva_wire.values.states import InstanceState


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines of one type: how many, and the GPUs that they have together."""

    number: int = 0
    gpus: int = 0


def machines(model: ReadModel) -> Mapping[Family, Machines]:
    """The machines that take tasks, by type."""
    by_family: dict[Family, Machines] = {}
    for instance in model.live.values():
        if instance.state is InstanceState.READY:
            kind = instance.offering.type
            counted = by_family.get(kind.family, Machines())
            gpus = counted.gpus + kind.capacity.gpus
            by_family[kind.family] = Machines(counted.number + 1, gpus)
    return by_family


def hosts(one: Hosting, runs: Collection[RunId]) -> bool:
    """Whether any of these task runs is on the instance."""
    return any(occupant.run in runs for occupant in one.occupants)


def fleet(record: Round, machines: Mapping[Family, Machines]) -> pb.FleetOutlook | None:
    """A round's outlook on a fleet of several types; `None` if it has none.

    Args:
        record: The round.
        machines: The machines that are there now, by type.
    """
    outlook = FleetOutlook.of(record.figures)
    if outlook is None:
        return None
    none = Machines()
    return pb.FleetOutlook(
        round=record.number,
        at_ms=record.at_ms,
        bound_ms=outlook.bound_ms,
        expected_ms=outlook.end_ms,
        types=[
            pb.TypeWorth(
                type=name,
                worth_ppm=part,
                machines=machines.get(Family(name), none).number,
                gpus=machines.get(Family(name), none).gpus,
            )
            for name, part in outlook.worth_ppm
        ],
    )


def billed(offering: Offering | None) -> int | None:
    """Price billed for a spot instance, in micro-dollars per hour; `None` for others."""
    spot = offering is not None and offering.purchase is Purchase.SPOT
    return offering.price if offering is not None and spot else None


def hosting(one: Hosting, billed_price: int | None = None) -> pb.Hosting:
    """An instance, its price split as the bill splits it.

    Args:
        one: The instance as a plan has it.
        billed_price: Billed price of a spot instance.
    """
    price = one.price_micro_usd_per_hour
    shares = split(price, [occupant.reservation_micro_usd_per_hour for occupant in one.occupants])
    return pb.Hosting(
        instance=_name(one.on),
        type=one.type,
        price_micro_usd_per_hour=price,
        value_micro_usd_per_hour=one.value_micro_usd_per_hour,
        billed_micro_usd_per_hour=billed_price,
        occupants=[
            pb.Occupant(
                task=occupant.run,
                reservation_micro_usd_per_hour=occupant.reservation_micro_usd_per_hour,
                throughput_ppm=occupant.throughput_ppm,
                value_micro_usd_per_hour=occupant.value_micro_usd_per_hour,
                share_micro_usd_per_hour=share,
                profiled=occupant.profiled,
            )
            for occupant, share in zip(one.occupants, shares, strict=True)
        ],
    )


def exchange(one: Exchange) -> pb.Exchange:
    """Convert an exchange, moves that depend on each other, to a message."""
    return pb.Exchange(
        moves=[
            pb.Move(
                task=move.run,
                source=move.source,
                target=_name(move.target),
                cost_micro_usd=move.cost_micro_usd,
            )
            for move in one.moves
        ],
        saved_micro_usd_per_hour=one.saved_micro_usd_per_hour,
        cost_micro_usd=one.cost_micro_usd,
        break_even_ms=one.break_even_ms,
    )


def weighing(one: Weighing | None) -> pb.Weighing | None:
    """How a round's configuration was chosen."""
    if one is None:
        return None
    return pb.Weighing(
        chosen=one.chosen,
        alternatives=[
            pb.Alternative(
                kind=each.kind,
                savings_micro_usd_per_hour=each.savings_micro_usd_per_hour,
                migration_micro_usd=each.migration_micro_usd,
                moves=each.moves,
            )
            for each in one.alternatives
        ],
        horizon_ms=one.horizon_ms,
        events_per_hour=one.events_per_hour,
        full_share=one.full_share,
        cost_micro_usd_per_hour=one.cost_micro_usd_per_hour,
        lower_bound_micro_usd_per_hour=one.lower_bound_micro_usd_per_hour,
        optimizer=one.optimizer,
        columns=one.columns,
        classes=one.classes,
        tasks=one.tasks,
        instances=one.instances,
    )


def _name(where: Where) -> str:
    return where if isinstance(where, str) else ""
