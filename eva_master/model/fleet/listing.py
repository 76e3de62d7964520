"""Answers of the cloud about what it sells, as the journal has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eva_master.model.catalog import Attached, Catalog, Gpu, InstanceType, Offering, Purchase
from eva_master.model.resources import Resources
from eva_wire.values.ids import Millis

_TIMES, _ROWS = "catalog_listing", "catalog"
"""Names of the documents: when the cloud is asked, and the offerings that it named last."""


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """When the cloud said what it sells, and when it is asked next.

    Attributes:
        asked_ms: When it said so last; `None` if it never did.
        next_ms: When it is asked next.
        failures: How often it has been asked since then without an answer.
        error: Why it does not answer; empty if it does.
        catalog: The offerings of which users were told last; none if nothing was written down yet.
    """

    asked_ms: Millis | None = None
    next_ms: Millis = Millis(0)
    failures: int = 0
    error: str = ""
    catalog: Catalog = ()

    @property
    def documents(self) -> Mapping[str, Callable[[], Any]]:
        """The documents in which the journal keeps it; that of the offerings is the long one."""
        return {_TIMES: _Times(self), _ROWS: _Rows(self.catalog)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CatalogListing:
        """The listing of the journal's documents; an empty one if they are damaged."""
        times, rows = values.get(_TIMES), values.get(_ROWS)
        if not isinstance(times, dict) or not isinstance(rows, list):
            return cls()
        try:
            return cls(**times, catalog=tuple(map(_offering, rows)))
        except (TypeError, ValueError, LookupError, AttributeError):
            return cls()


@dataclass(frozen=True, slots=True)
class _Times:
    """Makes the short document."""

    listing: CatalogListing

    def __call__(self) -> dict[str, Any]:
        listing = self.listing
        return {
            "asked_ms": listing.asked_ms,
            "next_ms": listing.next_ms,
            "failures": listing.failures,
            "error": listing.error,
        }


@dataclass(frozen=True, slots=True)
class _Rows:
    """Makes the long document; equal for equal offerings, so that it is written when they change.

    Offerings on the spot market have prices that change all the time.
    """

    catalog: Catalog

    def __call__(self) -> list[dict[str, Any]]:
        return [asdict(offering) for offering in self.catalog]


def _offering(row: Any) -> Offering:
    kind = row["type"]
    machine = InstanceType(
        **{
            **kind,
            "capacity": Resources(**kind["capacity"]),
            "gpu": kind["gpu"] and Gpu(**kind["gpu"]),
        }
    )
    purchase, attached = Purchase(row["purchase"]), Attached(**row["attached"])
    return Offering(**{**row, "type": machine, "purchase": purchase, "attached": attached})
