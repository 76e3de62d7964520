"""Offerings as rows and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from eva_client.cli.views.grid import Grid
from eva_master.model.catalog import Offering, base_family
from eva_wire.values.ids import MILLION


def shape(offering: Offering) -> dict[str, object]:
    """One offering as ``--json`` prints it."""
    machine = offering.type
    return {
        "type": machine.name,
        "family": base_family(machine.family),
        "zone": offering.zone,
        "purchase": offering.purchase.value,
        "price_usd_per_hour": offering.price / MILLION,
        "volume_usd_per_hour": offering.attached.volume / MILLION,
        "address_usd_per_hour": offering.attached.address / MILLION,
        "architecture": machine.architecture,
        "gpus": machine.capacity.gpus,
        "cpus": machine.capacity.milli_cpus / 1000,
        "memory_mib": machine.capacity.memory_mib,
        "interruptions_per_hour": offering.interruptions_ppm / MILLION,
        "limit": offering.limit,
    }


def table(offerings: Sequence[Offering]) -> Grid:
    """A table of offerings. Zones with otherwise equal offerings share a row."""
    shown = Grid(
        *("TYPE", "PURCHASE", "CPUS", "MEMORY", "GPUS", "ARCH", "PRICE", "ZONES"),
        right=("CPUS", "MEMORY", "GPUS", "PRICE"),
        notes=("ZONES",),
        drop=("ARCH",),
    )
    rows: dict[tuple[str, ...], list[str]] = {}
    for offering in offerings:
        machine = offering.type
        row: tuple[str, ...] = (
            machine.name,
            offering.purchase.value,
            f"{machine.capacity.milli_cpus / 1000:g}",
            f"{round(machine.capacity.memory_mib / 1024, 1):g} GiB",
            str(machine.capacity.gpus or "-"),
            machine.architecture,
            f"${offering.price / MILLION:.4f}/h",
        )
        rows.setdefault(row, []).append(offering.zone)
    for row, zones in rows.items():
        shown.add_row(*row, _short(zones))
    return shown


def _short(zones: list[str]) -> str:
    """Zones of one region in short: ``us-east-1a b c``."""
    first, *rest = sorted(zones)
    return " ".join([first, *(zone.removeprefix(first[:-1]) for zone in rest)])
