"""Running sums of costs by name, such as those of types of instances or owners of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from eva_master.model.accounting.totals import NO_COSTS, CostTotals
from eva_master.model.changes import Documents
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import Exact

MOST_NAMES = 1_000
"""So many types, owners, workloads and labels are kept apart."""
MOST_DAYS = 400
REST = ""
"""The name of what is of none that is kept apart."""


def idle_longest(names: Sequence[str]) -> str:
    """The name to which nothing was booked for longest."""
    return names[0]


def earliest(names: Sequence[str]) -> str:
    """The first of some dates."""
    return min(names)


def idle_longest_of_commonest_key(names: Sequence[str]) -> str:
    """Of labels, that of the key with most values to which nothing was booked for longest.

    So a key with another value for each job leaves the sums of other keys alone.
    """
    keys = [name.partition("=")[0] for name in names]
    commonest, _ = Counter(keys).most_common(1)[0]
    return names[keys.index(commonest)]


class CostTally:
    """Sums by name that follow accounts; what is forgotten stays in them.

    However many names there ever were, so many are kept apart at most. If there is one more, one
    joins the rest. So the sums of all names and of the rest are the whole. A document of the
    journal has one name; a name takes the document of the one for which it came.

    Args:
        documents: Where documents are put whose sums have changed.
        prefix: Of the names of documents.
        most: So many names.
        leaves: Chooses the name that joins the rest of all, the new one last and the others by the
            time of their last booking.
        rest: Whether the sums of the rest are kept. Where a cost counts for several names, or for
            none, there is no such sum.
    """

    def __init__(
        self,
        documents: Documents,
        prefix: str,
        most: int = MOST_NAMES,
        leaves: Callable[[Sequence[str]], str] = idle_longest,
        *,
        rest: bool = True,
    ) -> None:
        self._documents, self._keeps_rest = documents, rest
        self._prefix, self._most, self._leaves = prefix, most, leaves
        # The last to which something was booked stands last.
        self._sums: dict[str, CostTotals] = {}
        self._rest = NO_COSTS
        self._slots: dict[str, str] = {}
        """The document of each name."""
        self._seen: Mapping[str, CostTotals] | None = None

    def account(self, name: str, charged: int, idle: int = 0, alone: int = 0) -> None:
        """Book further amounts to a name."""
        self.add(name, CostTotals(Exact(charged), Exact(idle), Exact(alone)))

    def add(self, name: str, more: CostTotals) -> None:
        """Book further costs to a name."""
        self._seen = None
        if name not in self._sums and (name == REST or not self._take_slot(name)):
            self._rest += more
            return
        sums = self._sums[name] = self._sums.pop(name, NO_COSTS) + more
        self._documents[self._slots[name]] = partial(_document, name, sums)

    def _take_slot(self, name: str) -> bool:
        """Give a new name a document; returns whether it has one, and does not join the rest."""
        if len(self._sums) < self._most:
            self._slots[name] = f"{self._prefix}{len(self._sums)}"
            return True
        leaver = self._leaves([*self._sums, name])
        if leaver == name:
            return False
        self._rest += self._sums.pop(leaver)
        self._slots[name] = self._slots.pop(leaver)
        return True

    def totals(self) -> Mapping[str, CostTotals]:
        """The sums as they are now, by name."""
        if self._seen is None:
            rest = {REST: self._rest} if self._keeps_rest and self._rest != NO_COSTS else {}
            self._seen = {**self._sums, **rest}
        return self._seen

    def restore(self, documents: Mapping[str, Json], whole: CostTotals) -> None:
        """Restore the sums from the journal.

        Args:
            documents: The documents of the journal. An older journal has none of these sums: those
                of the accounts restored so far are kept.
            whole: The sums over everything.
        """
        ours = {
            int(name.removeprefix(self._prefix)): document
            for name, document in documents.items()
            if name.startswith(self._prefix) and isinstance(document, dict)
        }
        if ours:
            for slot in self._slots.values():
                self._documents.pop(slot, None)
            self._slots = {str(ours[at]["name"]): f"{self._prefix}{at}" for at in sorted(ours)}
            self._sums = {str(ours[at]["name"]): _read(ours[at]) for at in sorted(ours)}
        named = sum(self._sums.values(), NO_COSTS)
        self._rest = CostTotals(
            Exact(whole.charged - named.charged),
            Exact(whole.idle - named.idle),
            Exact(whole.alone - named.alone),
        )
        self._seen = None


def _document(name: str, sums: CostTotals) -> Json:
    """The sums of a name; exact amounts are decimal strings, as in the tables."""
    amounts = {"charged": sums.charged, "idle": sums.idle, "alone": sums.alone}
    return {"name": name, **{what: str(amount) for what, amount in amounts.items() if amount}}


def _read(document: Mapping[str, Json]) -> CostTotals:
    def amount(what: str) -> Exact:
        return Exact(int(str(document.get(what, 0))))

    return CostTotals(amount("charged"), amount("idle"), amount("alone"))
