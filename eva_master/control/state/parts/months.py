"""Sums of owners in a calendar month, and what users were told of limits of a month."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from eva_master.control.state.parts.partition_tally import part_since
from eva_master.model.accounting.months import MonthCharge, MonthLevel
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.changes import Deferred, Documents
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import Exact, Millis

_PREFIX = "month_of_owner/"
"""Of the names of documents."""
_NONE = MonthCharge()


class OwnerMonths:
    """Charges of each owner's jobs in the calendar month of the last booking.

    Sums of earlier months are dropped with the first booking of another one.

    Args:
        documents: Where documents are put whose sums have changed.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._sums: dict[str, MonthCharge] = {}
        self._seen: Mapping[str, MonthCharge] | None = None
        self._month = Millis(0), Millis(0)
        """The calendar month of the last booking, and the next one."""

    def spend(self, owner: str, charged: int, since: Millis, until: Millis) -> None:
        """Count what an owner's jobs were charged for a stretch of time."""
        if not self._month[0] <= until < self._month[1]:
            self._month = month_of(until)
        month, sums = self._month[0], self._sums.get(owner, _NONE)
        if month < sums.month_ms:
            return
        before = sums.charged if month == sums.month_ms else 0
        sums = MonthCharge(month, Exact(before + part_since(month, charged, since, until)))
        self._sums[owner] = sums
        self._documents[_PREFIX + owner] = partial(_document, sums)
        self._seen = None

    def totals(self) -> Mapping[str, MonthCharge]:
        """The sums as they are now, by owner."""
        if self._seen is None:
            self._seen = dict(self._sums)
        return self._seen

    def restore(self, documents: Mapping[str, Json]) -> None:
        """Restore the sums from the journal; an older one has none, and opens with zeros."""
        self._sums = {
            name.removeprefix(_PREFIX): MonthCharge(
                Millis(int(str(document["month_ms"]))), Exact(int(str(document["charged"])))
            )
            for name, document in documents.items()
            if name.startswith(_PREFIX) and isinstance(document, dict)
        }
        self._seen = None


def _document(sums: MonthCharge) -> Json:
    return {"month_ms": int(sums.month_ms), "charged": str(sums.charged)}


@dataclass(frozen=True, slots=True)
class MonthLevels:
    """The levels of parties with limits of a month that users were told, as the journal has them.

    Attributes:
        by_party: The level of each party, by its kind and name.
    """

    by_party: Mapping[str, MonthLevel] = field(default_factory=dict)

    @property
    def documents(self) -> Mapping[str, Deferred]:
        """The document in which the journal keeps them."""
        return {"month_levels": self.to_json}

    def to_json(self) -> Json:
        """The document of the journal."""
        return {
            key: {"month_ms": int(of.month_ms), "most": of.most, "percent": of.percent}
            for key, of in self.by_party.items()
        }

    @classmethod
    def from_json(cls, document: Json) -> MonthLevels:
        """The levels of a document; none of one that is damaged."""
        if not isinstance(document, dict):
            return cls()
        return cls(
            {
                key: MonthLevel(Millis(entry["month_ms"]), entry["most"], entry["percent"])
                for key, entry in cast("dict[str, dict[str, int]]", document).items()
            }
        )
