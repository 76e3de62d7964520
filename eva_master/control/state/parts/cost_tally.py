"""Running sums of what types of instances and owners of jobs cost, of so many at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from eva_master.model.accounting.totals import CostTotals
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import Exact

MOST_NAMES = 1_000
"""So many types, and so many owners, are kept apart."""
REST = ""
"""The name of what is of none that is kept apart."""
_NONE = CostTotals()


class CostTally:
    """Sums by name that follow accounts; what is forgotten stays in them.

    However many names there ever were, so many are kept apart at most. If there is one more, that
    to which nothing was booked for longest joins the rest. So the sums of all names and of the
    rest are the whole. A document of the journal has one name; a name takes the document of the
    one for which it came.

    Args:
        prefix: Of the names of documents.
        most: So many names.
    """

    def __init__(self, prefix: str, most: int = MOST_NAMES) -> None:
        self._prefix, self._most = prefix, most
        # The last to which something was booked stands last.
        self._sums: dict[str, CostTotals] = {}
        self._rest = _NONE
        self._slots: dict[str, int] = {}
        self._unwritten: dict[str, None] = {}
        self._seen: Mapping[str, CostTotals] | None = None

    def account(self, name: str, charged: int, idle: int = 0, alone: int = 0) -> None:
        """Book further amounts to a name."""
        more = CostTotals(Exact(charged), Exact(idle), Exact(alone))
        self._seen = None
        if name == REST:
            self._rest += more
            return
        sums = self._sums.pop(name, None)
        if sums is None:
            self._slots[name] = self._free_slot()
        self._sums[name] = more if sums is None else sums + more
        self._unwritten[name] = None

    def _free_slot(self) -> int:
        if len(self._sums) < self._most:
            return len(self._sums)
        oldest = next(iter(self._sums))
        self._rest += self._sums.pop(oldest)
        self._unwritten.pop(oldest, None)
        return self._slots.pop(oldest)

    def totals(self) -> Mapping[str, CostTotals]:
        """The sums as they are now, by name."""
        if self._seen is None:
            rest = {} if self._rest == _NONE else {REST: self._rest}
            self._seen = {**self._sums, **rest}
        return self._seen

    def restore(self, documents: Mapping[str, Json], whole: CostTotals) -> None:
        """Restore the sums from the journal.

        Args:
            documents: The documents of the journal, those of `take_documents` among them. An older
                journal has none: the sums of the accounts restored so far are kept.
            whole: The sums over everything.
        """
        documents_by_slot = {
            int(name.removeprefix(self._prefix)): document
            for name, document in documents.items()
            if name.startswith(self._prefix) and isinstance(document, dict)
        }
        if documents_by_slot:
            self._slots = {
                str(documents_by_slot[slot]["name"]): slot for slot in sorted(documents_by_slot)
            }
            self._sums = {
                name: _read(documents_by_slot[slot]) for name, slot in self._slots.items()
            }
            self._unwritten = {}
        named = sum(self._sums.values(), _NONE)
        self._rest = CostTotals(
            Exact(whole.charged - named.charged),
            Exact(whole.idle - named.idle),
            Exact(whole.alone - named.alone),
        )
        self._seen = None

    def take_documents(self) -> dict[str, Callable[[], Json]]:
        """The documents of the names whose sums changed since the last call, by their own names."""
        changed, self._unwritten = self._unwritten, {}
        return {
            f"{self._prefix}{self._slots[name]}": partial(_document, name, self._sums[name])
            for name in changed
        }


def _document(name: str, sums: CostTotals) -> Json:
    """The sums of a name; exact amounts are decimal strings, as in the tables."""
    amounts = {"charged": sums.charged, "idle": sums.idle, "alone": sums.alone}
    return {"name": name, **{what: str(amount) for what, amount in amounts.items() if amount}}


def _read(document: Mapping[str, Json]) -> CostTotals:
    def amount(what: str) -> Exact:
        return Exact(int(str(document.get(what, 0))))

    return CostTotals(amount("charged"), amount("idle"), amount("alone"))
