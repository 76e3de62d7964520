"""Observed throughput of tasks beside others, indexed once for all rounds.

From round to round a few values of the table change and few entries are new, and of its thousands
of entries a round needs some dozens. So the index of entries is kept between rounds, the table's
values are updated, and a value is looked up on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.incremental.view import IncrementalView
from eva_wire.values.ids import Workload

Entry = tuple[Workload, tuple[Workload, ...]]
"""The workload whose throughput it is, and the sorted workloads of the others."""
Names = tuple[Workload, ...]
Row = tuple[Entry, int]

_ENTRIES_INDEXED = 65_536
"""Entries whose names are remembered, most of them no longer in any table."""


class _Index:
    """Index of all entries ever seen.

    Attributes:
        entries: All of them.
        of: The entries that a workload is part of.
        arrivals: By the workloads present: each newcomer that would complete an entry, with that
            entry.
    """

    def __init__(self) -> None:
        self.entries: set[Entry] = set()
        self.of: dict[Workload, list[Entry]] = {}
        self.arrivals: dict[Names, list[tuple[Workload, Entry]]] = {}

    def add(self, entry: Entry) -> None:
        """Index one more entry."""
        workload, others = entry
        self.entries.add(entry)
        if not others:
            return  # a task on its own teaches nothing
        whole = tuple(sorted((workload, *others)))
        for place, name in enumerate(whole):
            if place and whole[place - 1] == name:
                continue
            self.of.setdefault(name, []).append(entry)
            before = (*whole[:place], *whole[place + 1 :])
            self.arrivals.setdefault(before, []).append((name, entry))


class ObservationIndex:
    """Index of one co-location table.

    Args:
        table: The observed throughput.
        values: The table's values by entry.
        pairs: Throughput of a workload beside one task of another.
        index: An index that contains all of the table's entries, and others.
    """

    def __init__(
        self,
        table: ThroughputTable,
        values: Mapping[Entry, int],
        pairs: Mapping[Workload, Mapping[Workload, int]],
        index: _Index,
    ) -> None:
        self.table = table
        self.values = values
        self.pairs = pairs
        self._index = index

    def mentions(self, workload: Workload) -> bool:
        """Whether the workload was observed beside others."""
        return any(entry in self.values for entry in self._index.of.get(workload, ()))

    def arrivals(self, present: Names) -> Iterator[tuple[Workload, Workload, int]]:
        """Observed throughput in sets that a task set becomes by one more task.

        Args:
            present: The workloads of the task set, sorted.

        Yields:
            The newcomer's workload, the workload observed, and its throughput in millionths.
        """
        for newcomer, entry in self._index.arrivals.get(present, ()):
            ppm = self.values.get(entry)
            if ppm is not None:
                yield newcomer, entry[0], ppm

    def after(self, rows: tuple[Row, ...], gone: list[Row], new: list[Row]) -> ObservationIndex:
        """The index of the next version of the table, see `incremental.IncrementalView`."""
        values = dict(self.values)
        for entry, _ in gone:
            del values[entry]
        values.update(new)
        touched = {entry[0] for entry, _ in (*gone, *new) if len(entry[1]) == 1}
        pairs = {workload: dict(self.pairs.get(workload, {})) for workload in touched}
        for (workload, others), _ in gone:
            if len(others) == 1:
                del pairs[workload][others[0]]
        for (workload, others), ppm in new:
            if len(others) == 1:
                pairs[workload][others[0]] = ppm
        index = self._index
        if len(index.entries) > _ENTRIES_INDEXED:
            index, new = _Index(), list(rows)
        for entry, _ in new:
            if entry not in index.entries:
                index.add(entry)
        return ObservationIndex(ThroughputTable(rows), values, {**self.pairs, **pairs}, index)


def observations_view() -> IncrementalView[Row, ObservationIndex]:
    """Follows a table with its index."""
    return IncrementalView[Row, ObservationIndex](
        ObservationIndex(ThroughputTable(), {}, {}, _Index()),
        lambda before, *rest: before.after(*rest),
    )
