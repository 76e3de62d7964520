"""Makes offerings from instance types: zones, discounts and the spot market."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.adapters.catalog.snapshot import CatalogSnapshot
from eva_master.model.catalog import (
    Catalog,
    InstanceType,
    Offering,
    Purchase,
    base_family,
    quoted_at,
    spot_family,
    with_attached,
)
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Price

_MINIMUM_MS = 60_000
"""EC2 bills by the second and a minute at least: instances with Linux (aws.amazon.com/ec2/pricing/
on-demand), gp3 volumes (aws.amazon.com/ebs/pricing) and public IPv4 addresses (aws.amazon.com/vpc/
pricing)."""
_GB_BETWEEN_ZONES = 10_000
"""A cent for a GB into another zone and one out of it, says EC2's page of on-demand prices, under
"Data Transfer within the same AWS Region"."""


@dataclass(frozen=True, slots=True)
class TypeFilter:
    """The types to consider. An empty field does not restrict them.

    Attributes:
        names: Types or families.
        architectures: Architectures as EC2 names them.
        gpus: Whether they must have GPUs; `None` for either.
        max_price: Micro-dollars per hour, on demand and before discounts.
    """

    names: Sequence[str] | None = None
    architectures: Sequence[str] | None = None
    gpus: bool | None = None
    max_price: int | None = None

    def admits(self, machine: InstanceType, price: int) -> bool:
        """Whether a type is to be considered."""
        named = self.names is None or not {machine.name, base_family(machine.family)}.isdisjoint(
            self.names
        )
        return (
            named
            and (self.architectures is None or machine.architecture in self.architectures)
            and (self.gpus is None or (machine.capacity.gpus > 0) is self.gpus)
            and (self.max_price is None or price <= self.max_price)
        )


@dataclass(frozen=True, slots=True)
class PurchaseTerms:
    """How an account buys instances.

    Attributes:
        zones: Where to launch; a type that is known not to be sold in one is not offered there.
        discounts_ppm: Discount on the on-demand price in millionths, by type or family, for savings
            plans and reserved capacity. A type's own takes precedence over its family's.
        spot_life_ms: How long a spot instance is expected to live; `None` for no spot instances.
        private_zones: Zones in which instances get no public address, so that they pay for none.
    """

    zones: Sequence[str]
    discounts_ppm: Mapping[str, int] = field(default_factory=dict)
    spot_life_ms: int | None = None
    private_zones: Sequence[str] = ()

    def price(self, machine: InstanceType, listed: int) -> Price:
        """The on-demand price that the account pays for an instance."""
        family = base_family(machine.family)
        off = self.discounts_ppm.get(machine.name, self.discounts_ppm.get(family, 0))
        return discounted(listed, off)


def on_sale(
    types: Catalog, snapshot: CatalogSnapshot | None, choice: TypeFilter, terms: PurchaseTerms
) -> Catalog:
    """The offerings of all types in all zones.

    Args:
        types: One offering of each type, at its listed price.
        snapshot: Zones and spot prices of types; `None` if unknown.
        choice: Which types to consider.
        terms: How the account buys.
    """
    return tuple(
        offering
        for type_ in types
        if choice.admits(type_.type, type_.price)
        for offering in _in_zones(type_, snapshot, terms)
    )


def _in_zones(
    one: Offering, snapshot: CatalogSnapshot | None, terms: PurchaseTerms
) -> Iterator[Offering]:
    sold = None if snapshot is None else snapshot.types.get(one.type.name)
    for zone in terms.zones:
        if sold is not None and zone not in sold.zones:
            continue
        zoned = replace(one, zone=zone, minimum_ms=_MINIMUM_MS, gb_between_zones=_GB_BETWEEN_ZONES)
        if zone in terms.private_zones:
            zoned = with_attached(zoned, replace(zoned.attached, address=0))
        yield quoted_at(zoned, terms.price(one.type, one.machine_price))
        spot = None if sold is None else sold.spot.get(zone)
        if spot is not None and terms.spot_life_ms is not None:
            yield as_spot(zoned, Price(spot), terms.spot_life_ms)


def as_spot(one: Offering, price: Price, life_ms: int) -> Offering:
    """Return the offering's type as an offering of the spot market.

    Args:
        one: The type on demand.
        price: Price of the instance alone on the spot market.
        life_ms: How long such an instance is expected to live.
    """
    return replace(
        quoted_at(one, price),
        type=replace(one.type, family=spot_family(one.type.family)),
        purchase=Purchase.SPOT,
        interruptions_ppm=MILLION * MILLIS_PER_HOUR // life_ms,
    )


def discounted(listed: int, off_ppm: int) -> Price:
    """A price less a discount in millionths; something is always to be paid."""
    return Price(max(1, listed * (MILLION - off_ppm) // MILLION))
