"""Price per hour of instances, in micro-dollars: of those billed now, or of all that count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from eva_master.model.catalog import Offering
from eva_wire.values.ids import Millis


class Priced(Protocol):
    """The record of an instance, so far as its price goes."""

    @property
    def offering(self) -> Offering:
        """The offering, with the present price."""
        ...

    @property
    def up_ms(self) -> Millis | None:
        """When the cloud began to bill it."""
        ...


def billed_per_hour(instances: Iterable[Priced]) -> int:
    """Price per hour of the instances that are billed at this moment."""
    return sum(instance.offering.price for instance in instances if instance.up_ms is not None)


def counted_per_hour(instances: Iterable[Priced]) -> int:
    """Price per hour that counts towards budgets: that of booting and ending instances too."""
    return sum(instance.offering.price for instance in instances)
