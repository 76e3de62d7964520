"""The catalog: instance types, and the offerings that sell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.resources import Resources
from eva_master.model.values import alike, replace
from eva_wire.values.ids import MILLION, Family, Millis, OfferingId, Price


class Purchase(StrEnum):
    """The purchase option: how an instance is paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"
    """A machine of the operator's own, which is neither launched nor terminated."""


NO_ZONE = "local"
"""The zone of offerings that have none: they go with every zone."""
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
        sized_disk: Whether an instance gets as much disk as its first tasks need, up to that of
            `capacity`; see `with_disk`.
    """

    name: str
    family: Family
    capacity: Resources
    acquisition_ms: int = 0
    setup_ms: int = 0
    architecture: str = "x86_64"
    gpu_bandwidth: int = 0
    gpu: Gpu | None = None
    sized_disk: bool = False

    @property
    def boot_ms(self) -> int:
        """Expected time from the request until tasks may run."""
        return self.acquisition_ms + self.setup_ms


@dataclass(frozen=True, slots=True)
class Attached:
    """A volume and an address, which the cloud bills beside an instance for as long as it is there.

    Attributes:
        root_gib: Size of the volume, less the disk that tasks state.
        disk_gib: Disk that tasks state, see `with_disk`.
        gib_month: Price of a GiB of volume for a month of 730 hours, in micro-dollars.
        address: Price of a public IPv4 address per hour; 0 for an instance without one.
    """

    root_gib: int = 0
    disk_gib: int = 0
    gib_month: int = 0
    address: int = 0

    def __bool__(self) -> bool:
        return self != NOTHING_ATTACHED

    @property
    def volume(self) -> int:
        """Price of the volume per hour, in whole micro-dollars."""
        month = (self.root_gib + self.disk_gib) * self.gib_month
        return (month + HOURS_A_MONTH // 2) // HOURS_A_MONTH

    @property
    def price(self) -> int:
        """Price of everything attached per hour."""
        return self.volume + self.address


HOURS_A_MONTH = 730
"""AWS's own figure for prices by the month."""
NOTHING_ATTACHED = Attached()


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type on sale in one zone under one purchase option.

    Attributes:
        type: The machine.
        price: Micro-dollars per hour, for the instance and all that is attached to it.
        zone: Availability zone; `NO_ZONE` for the local cloud.
        purchase: On demand or spot.
        limit: How many may exist at a time, `None` for no limit. A fixed cluster is a cloud whose
            offerings are limited.
        unavailable_until: Time before which it is not launched, after the cloud said that it has no
            capacity; `None` when available.
        minimum_ms: The shortest time that is billed (60 s on EC2).
        why_unavailable: The cloud's message for the user; empty when available.
        interruptions_ppm: Expected interruptions by the cloud per hour and instance, in millionths;
            0 for never.
        by_disk: Whether it stands only for instances with a disk of this size, see `told_apart`.
        attached: A volume and an address, whose price is a part of `price`.
        gb_between_zones: Micro-dollars for a GB to or from another zone, each way; 0 if unknown.
    """

    type: InstanceType
    price: Price
    zone: str = NO_ZONE
    purchase: Purchase = Purchase.ON_DEMAND
    limit: int | None = None
    unavailable_until: Millis | None = None
    minimum_ms: int = 0
    why_unavailable: str = ""
    interruptions_ppm: int = 0
    by_disk: bool = False
    attached: Attached = NOTHING_ATTACHED
    gb_between_zones: int = 0

    @property
    def machine_price(self) -> Price:
        """Price of the instance alone per hour, as the cloud lists or quotes it."""
        return Price(self.price - self.attached.price)

    @property
    def id(self) -> OfferingId:
        """The offering's id, made of type, zone and purchase option."""
        # Faster than an f-string; it is called for each instance in each round.
        if self.by_disk:
            disk = str(self.type.capacity.disk_mib)
            return OfferingId(
                self.type.name + "+" + disk + "MiB@" + self.zone + "/" + self.purchase
            )
        return OfferingId(self.type.name + "@" + self.zone + "/" + self.purchase)

    def available(self, now: Millis) -> bool:
        """Whether a launch may be tried at `now`. The planner counts the limit."""
        return self.unavailable_until is None or self.unavailable_until <= now


def ids_of(offerings: Iterable[Offering]) -> list[OfferingId]:
    """Ids of offerings, of which thousands of instances share a few: each object's is made once."""
    ids: dict[int, OfferingId] = {}
    return [ids.get(id(sold)) or ids.setdefault(id(sold), sold.id) for sold in offerings]


def quoted_at(offering: Offering, machine_price: int) -> Offering:
    """An offering whose instance alone has another price; what is attached costs as before."""
    return replace(offering, price=Price(machine_price + offering.attached.price))


def with_attached(offering: Offering, attached: Attached) -> Offering:
    """An offering of the same instance with other things attached."""
    price = Price(offering.machine_price + attached.price)
    return replace(offering, price=price, attached=attached)


def with_disk(offering: Offering, mib: int) -> Offering:
    """An offering as an instance is launched of it: with so much disk for tasks, in whole GiB.

    An offering whose instances have a given disk is returned as it is.
    """
    if not offering.type.sized_disk:
        return offering
    capacity = offering.type.capacity
    whole = min(-(-mib // _GIB_MIB) * _GIB_MIB, capacity.disk_mib)
    sized = replace(offering.type, capacity=replace(capacity, disk_mib=whole))
    return at_price_with_disk(replace(offering, type=sized), whole)


def at_price_with_disk(offering: Offering, mib: int) -> Offering:
    """An offering at the price with so much disk for tasks; its capacity stays."""
    return with_attached(offering, replace(offering.attached, disk_gib=-(-mib // _GIB_MIB)))


def as_planned(offering: Offering) -> Offering:
    """The offering of a live instance at the price that plans compare: without the tasks' disk.

    A task's disk costs the same wherever the task is, so it is no reason for a place.
    """
    if not offering.attached.disk_gib:
        return offering
    return with_attached(offering, replace(offering.attached, disk_gib=0))


def told_apart(offering: Offering) -> Offering:
    """The offering of a live instance by the size of its disk, which others may have otherwise.

    A policy takes instances of one offering for equal, and those that it launches have any disk.
    """
    return replace(offering, by_disk=True) if offering.type.sized_disk else offering


def sold_as(offering: Offering) -> OfferingId:
    """The id in the catalog of an offering that is told apart by its disk, or of any other."""
    return replace(offering, by_disk=False).id if offering.by_disk else offering.id


_GIB_MIB = 1_024
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
    counts: Counter[OfferingId] = Counter()
    for offering, count in alike(offerings):
        counts[offering.id] += count
    return counts


Catalog = tuple[Offering, ...]


def on_demand_price(catalog: Catalog, offering: Offering) -> Price | None:
    """Price on demand of a spot offering's type: in its zone, else in the cheapest zone.

    The price includes what is attached to the offering.

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
        candidate.zone: Price(candidate.machine_price + offering.attached.price)
        for candidate in catalog
        if candidate.purchase is Purchase.ON_DEMAND and candidate.type.name == offering.type.name
    }
    return prices.get(offering.zone, min(prices.values(), default=None))
