"""Reasons of plans as messages; pure functions."""

from __future__ import annotations

from collections.abc import Collection

from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.model.accounting.money import split
from eva_master.model.ids import RunId
from eva_master.model.planning.reasons import Exchange, Hosting, Weighing, Where


def hosts(one: Hosting, runs: Collection[RunId]) -> bool:
    """Whether any of these task runs is on the instance."""
    return any(occupant.run in runs for occupant in one.occupants)


def hosting(one: Hosting) -> pb.Hosting:
    """An instance, its price split as the bill splits it."""
    price = one.price_micro_usd_per_hour
    shares = split(price, [occupant.reservation_micro_usd_per_hour for occupant in one.occupants])
    return pb.Hosting(
        instance=_name(one.on),
        type=one.type,
        price_micro_usd_per_hour=price,
        value_micro_usd_per_hour=one.value_micro_usd_per_hour,
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
