"""Reservation price: what a task costs on an instance of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, Millis
from eva_master.model.resources import Resources

Demand = tuple[tuple[Family, Resources], ...]
"""Demand per family, as in `TaskSpec.demand`."""


def cheapest_first(offerings: Iterable[Offering]) -> tuple[Offering, ...]:
    """Sort offerings by price; equal prices by offering id."""
    return tuple(sorted(offerings, key=lambda offering: (offering.price, offering.id)))


def purchasable(offering: Offering, now: Millis) -> bool:
    """Whether at least one instance of the offering may exist and may be launched now."""
    return offering.available(now) and offering.limit != 0


def hosts(offering: Offering, demand: Demand) -> bool:
    """Whether an empty instance of the offering holds a task with this demand."""
    family = offering.type.family
    need = next((need for name, need in demand if name == family), None)
    return need is not None and need.fits(offering.type.capacity)


def reservation(demand: Demand, offerings: Sequence[Offering]) -> Offering | None:
    """Find the offering that sets a task's reservation price.

    Args:
        demand: The task's demand per family; each offering is tried with its family's demand.
        offerings: In order of preference, see `cheapest_first`.

    Returns:
        The first offering that hosts the task alone, `None` if there is none.
    """
    return next((offering for offering in offerings if hosts(offering, demand)), None)
