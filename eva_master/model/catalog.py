"""What can be bought: instance types, and the offerings that sell them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.ids import Family, Millis, OfferingId, Price
from eva_master.model.resources import Resources


class Purchase(StrEnum):
    """How an instance is paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine shape, the same in every zone.

    Attributes:
        name: Such as ``c7i.2xlarge``.
        family: The part of the name before the dot; demands are stated per family.
        capacity: What tasks may use of it.
        setup_ms: Expected time from up to worker registered.
        acquisition_ms: Expected time from request to up.
    """

    name: str
    family: Family
    capacity: Resources
    acquisition_ms: int = 0
    setup_ms: int = 0


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type on sale in one zone under one purchase option.

    Attributes:
        type: The machine.
        price: Micro-dollars per hour.
        zone: Where; the local cloud has the one zone ``local``.
        purchase: On demand or spot.
        limit: At most so many at a time, `None` for no limit: a fixed cluster is a cloud
            whose offerings are limited.
        unavailable_until: Not to be launched before this time, after the cloud said that it
            has no capacity; `None` when available.
        minimum_ms: The shortest time that is billed (60 s on EC2).
    """

    type: InstanceType
    price: Price
    zone: str = "local"
    purchase: Purchase = Purchase.ON_DEMAND
    limit: int | None = None
    unavailable_until: Millis | None = None
    minimum_ms: int = 0

    @property
    def id(self) -> OfferingId:
        """Type, zone and purchase option, which together name an offering."""
        return OfferingId(f"{self.type.name}@{self.zone}/{self.purchase}")

    def available(self, now: Millis) -> bool:
        """Whether a launch may be tried at `now`; the limit is the planner's to count."""
        return self.unavailable_until is None or self.unavailable_until <= now


Catalog = tuple[Offering, ...]
