"""What was observed of tasks in company, indexed once for all rounds.

From round to round a few values of the table change and few entries are new, and of its thousands
of entries a round needs some dozens. So which entries there are is remembered between rounds, and a
value is looked up when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eva_master.model.ids import Workload
from eva_master.model.snapshot import ThroughputTable

Entry = tuple[Workload, tuple[Workload, ...]]
"""Whose throughput it is, and the sorted workloads of the others."""
Names = tuple[Workload, ...]

_KEPT = 65_536
"""Entries whose names are remembered, most of them no longer in any table."""
_TABLES = 4


class _Index:
    """The entries that were ever seen, by what is asked for.

    Attributes:
        entries: All of them.
        pairs: Those of one neighbour.
        of: Those that a workload is in.
        arrivals: By who is there, who may join such that there is an entry, and that.
    """

    def __init__(self) -> None:
        self.entries: set[Entry] = set()
        self.pairs: list[Entry] = []
        self.of: dict[Workload, list[Entry]] = {}
        self.arrivals: dict[Names, list[tuple[Workload, Entry]]] = {}

    def add(self, entry: Entry) -> None:
        """Take note of one entry more."""
        workload, others = entry
        self.entries.add(entry)
        if not others:
            return  # a task on its own teaches nothing
        if len(others) == 1:
            self.pairs.append(entry)
        whole = tuple(sorted((workload, *others)))
        for place, name in enumerate(whole):
            if place and whole[place - 1] == name:
                continue
            self.of.setdefault(name, []).append(entry)
            before = (*whole[:place], *whole[place + 1 :])
            self.arrivals.setdefault(before, []).append((name, entry))


class Observed:
    """One table.

    Args:
        table: What was observed.
        index: Knows all of its entries, and others.
    """

    def __init__(self, table: ThroughputTable, index: _Index) -> None:
        self.table = table
        self.values: Mapping[Entry, int] = dict(table.observed)
        self._index = index

    def mentions(self, workload: Workload) -> bool:
        """Whether a workload was seen in company."""
        return any(entry in self.values for entry in self._index.of.get(workload, ()))

    def pairs(self) -> Iterator[tuple[Workload, Workload, int]]:
        """Throughput of a workload beside one task of another."""
        for entry in self._index.pairs:
            ppm = self.values.get(entry)
            if ppm is not None:
                yield entry[0], entry[1][0], ppm

    def arrivals(self, present: Names) -> Iterator[tuple[Workload, Workload, int]]:
        """What was observed of sets that a company becomes by one more task.

        Args:
            present: The workloads that are there, sorted.

        Yields:
            The newcomer's workload, whose throughput it is, and that.
        """
        for newcomer, entry in self._index.arrivals.get(present, ()):
            ppm = self.values.get(entry)
            if ppm is not None:
                yield newcomer, entry[0], ppm


class _Tables:
    """The last few tables."""

    def __init__(self) -> None:
        self._index = _Index()
        self._last: tuple[Observed, ...] = ()

    def of(self, table: ThroughputTable) -> Observed:
        """The table, indexed."""
        for known in self._last:
            if known.table is table or known.table == table:
                return known
        index = self._index
        if len(index.entries) > _KEPT:
            index = self._index = _Index()
        found = Observed(table, index)
        for entry in found.values.keys() - index.entries:
            index.add(entry)
        self._last = (found, *self._last[: _TABLES - 1])
        return found


_TABLES_SEEN = _Tables()


def observed(table: ThroughputTable) -> Observed:
    """A table, indexed; that of an equal table where there was one of late."""
    return _TABLES_SEEN.of(table)
