"""The catalog: instance types, and the offerings that sell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.resources import Resources
from eva_master.model.values import alike
from eva_wire.values.ids import MILLION, Family, Millis, OfferingId, Price


class Purchase(StrEnum):
    """The purchase option: how an instance is paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"
    """A machine of the operator's own, which is neither launched nor terminated."""


SLOWEST_PCIE, FASTEST_PCIE = 3, 6
"""Generations of the PCIe bus of which something is known."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its data sheet.

    Attributes:
        gflops: Peak of dense half-precision operations, with tensor cores where there are any, in
            thousand millions a second; in single precision where it has no other.
        memory_gib: Its memory.
        pcie: The generation of the PCIe bus that it hangs on.
    """

    gflops: int
    memory_gib: int
    pcie: int = SLOWEST_PCIE


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine shape, the same in every zone.

    Attributes:
        name: Name as EC2 writes it, such as ``c7i.2xlarge``.
        family: The key of demands: the part of the name before the dot, or its `spot_family`.
        capacity: The resources that tasks may use.
        setup_ms: Expected time from running to the registration of its worker.
        acquisition_ms: Expected time from the request until it runs.
        architecture: Architecture of its CPUs, as EC2 names it.
        gpu_bandwidth: Memory bandwidth of one of its GPUs by the maker's data sheet, in GB/s; 0 if
            it is not known, or there is none.
        gpu: Further figures of the GPU's data sheet, where the operator also states its PCIe bus;
            else `None`.
    """

    name: str
    family: Family
    capacity: Resources
    acquisition_ms: int = 0
    setup_ms: int = 0
    architecture: str = "x86_64"
    gpu_bandwidth: int = 0
    gpu: Gpu | None = None

    @property
    def boot_ms(self) -> int:
        """Expected time from the request until tasks may run."""
        return self.acquisition_ms + self.setup_ms


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type on sale in one zone under one purchase option.

    Attributes:
        type: The machine.
        price: Micro-dollars per hour.
        zone: Availability zone; the local cloud has the one zone ``local``.
        purchase: On demand or spot.
        limit: How many may exist at a time, `None` for no limit. A fixed cluster is a cloud whose
            offerings are limited.
        unavailable_until: Time before which it is not launched, after the cloud said that it has no
            capacity; `None` when available.
        minimum_ms: The shortest time that is billed (60 s on EC2).
        why_unavailable: The cloud's message for the user; empty when available.
        interruptions_ppm: Expected interruptions by the cloud per hour and instance, in millionths;
            0 for never.
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
        """The offering's id, made of type, zone and purchase option."""
        # Faster than an f-string; it is called for each instance in each round.
        return OfferingId(self.type.name + "@" + self.zone + "/" + self.purchase)

    def available(self, now: Millis) -> bool:
        """Whether a launch may be tried at `now`. The planner counts the limit."""
        return self.unavailable_until is None or self.unavailable_until <= now


_SPOT = "/spot"


def spot_price(on_demand: Price, price: int | None, part_ppm: int) -> Price:
    """Price of a spot instance per hour, at least a micro-dollar.

    Args:
        on_demand: The price of its type on demand.
        price: Micro-dollars per hour; `None` where it is stated as a part of `on_demand`.
        part_ppm: That part, in millionths; used if `price` is `None`.
    """
    return Price(max(1, on_demand * part_ppm // MILLION if price is None else price))


def spot_family(family: Family) -> Family:
    """The family of spot instances of a family's types.

    Spot instances have families of their own, since not every task may run on them: a task may run
    on the families that it states a demand for.
    """
    return Family(base_family(family) + _SPOT)


def base_family(family: Family) -> Family:
    """The part of a type's name before the dot, however the instance is paid for."""
    return Family(family.removesuffix(_SPOT))


def is_spot(family: Family) -> bool:
    """Whether a family is one of spot instances."""
    return family.endswith(_SPOT)


def tally(offerings: Iterable[Offering]) -> Counter[OfferingId]:
    """How many of some offerings have each id."""
    every = list(offerings)
    counts: Counter[OfferingId] = Counter()
    for offering, count in alike(every, map(id, every)):
        counts[offering.id] += count
    return counts


Catalog = tuple[Offering, ...]


def on_demand_price(catalog: Catalog, offering: Offering) -> Price | None:
    """Price on demand of a spot offering's type: in its zone, else in the cheapest zone.

    Args:
        catalog: All offerings.
        offering: The spot offering.

    Returns:
        Micro-dollars per hour; `None` if the type is not on sale on demand, or the offering is not
        spot.
    """
    if offering.purchase is not Purchase.SPOT:
        return None
    prices = {
        candidate.zone: candidate.price
        for candidate in catalog
        if candidate.purchase is Purchase.ON_DEMAND and candidate.type.name == offering.type.name
    }
    return prices.get(offering.zone, min(prices.values(), default=None))
