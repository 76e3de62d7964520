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
        family: What demands are stated for: the part of the name before the dot, or what
            `spot_family` makes of it.
        capacity: What tasks may use of it.
        setup_ms: Expected time from up to worker registered.
        acquisition_ms: Expected time from request to up.
        architecture: Of its CPUs, in EC2's words.
    """

    name: str
    family: Family
    capacity: Resources
    acquisition_ms: int = 0
    setup_ms: int = 0
    architecture: str = "x86_64"


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
        why_unavailable: What the cloud said, in words for the user; empty when available.
        interruptions_ppm: How often the cloud takes such an instance back, in millionths of a
            time per hour; 0 for never.
    """

    type: InstanceType
    price: Price
    zone: str = "local"
    purchase: Purchase = Purchase.ON_DEMAND
    limit: int | None = None
    unavailable_until: Millis | None = None
    minimum_ms: int = 0
    why_unavailable: str = ""
    interruptions_ppm: int = 0

    @property
    def id(self) -> OfferingId:
        """Type, zone and purchase option, which together name an offering."""
        # Not an f-string: the fastest way to put them together, for each instance in each round.
        return OfferingId(self.type.name + "@" + self.zone + "/" + self.purchase)

    def available(self, now: Millis) -> bool:
        """Whether a launch may be tried at `now`; the limit is the planner's to count."""
        return self.unavailable_until is None or self.unavailable_until <= now


_SPOT = "/spot"


def spot_family(family: Family) -> Family:
    """The family of spot instances of a family's types.

    They are one of their own since not every task may run on them: it is a matter of which families
    a task has a demand on, like any other.
    """
    return Family(base_family(family) + _SPOT)


def base_family(family: Family) -> Family:
    """The part of a type's name before the dot, however the instance is paid for."""
    return Family(family.removesuffix(_SPOT))


def is_spot(family: Family) -> bool:
    """Whether a family is one of spot instances."""
    return family.endswith(_SPOT)


Catalog = tuple[Offering, ...]
