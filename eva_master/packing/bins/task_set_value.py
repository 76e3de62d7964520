"""Throughput-normalised reservation prices of few tasks, one instance at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eva_master.learning.colocation import lookup
from eva_master.model.ids import MILLION, CopyId, Workload
from eva_master.model.job import JobKind
from eva_master.model.planning.reasons import Tenant
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.bins.open_instances import Rooms

Throughput = Callable[[Workload, tuple[Workload, ...]], int]
"""Normalised throughput of a task beside others, in millionths; these are sorted."""


class Learned:
    """A `Throughput` by what was observed; remembers its answers while the table is the same.

    Args:
        default_ppm: Of a pair that was never seen together, in millionths.
    """

    def __init__(self, default_ppm: int) -> None:
        self._default_ppm = default_ppm
        self._table = ThroughputTable()
        self._known: dict[tuple[Workload, tuple[Workload, ...]], int] = {}

    def beside(self, table: ThroughputTable) -> Throughput:
        """What a table says."""
        if table is not self._table:
            self._table, self._known = table, {}
        known = self._known

        def throughput(workload: Workload, others: tuple[Workload, ...]) -> int:
            entry = workload, others
            found = known.get(entry)
            if found is None:
                found = known[entry] = lookup(table, entry, self._default_ppm)
            return found

        return throughput


class Tnrp:
    """What copies are worth together, section 4.3 and 4.4 of the Eva paper.

    The slowdown of one member is charged for its whole gang.

    Args:
        rooms: The copies.
        throughput: How they slow each other down.
    """

    def __init__(self, rooms: Rooms, throughput: Throughput) -> None:
        self._rooms = rooms
        self._throughput = throughput
        self._mates: dict[str, int] = {}

    def of(self, copies: Iterable[CopyId], family: int) -> int:
        """TNRP of copies on one instance, in millionths of micro-dollars per hour.

        Args:
            copies: Everyone on it.
            family: The number of its family.
        """
        return sum(value for _, _, _, value in self._each(list(copies), family))

    def tenants(self, rooms: Rooms, row: int) -> tuple[Tenant, ...]:
        """What the copies on a row are worth, by id; an `outcome.Tenants`."""
        each = self._each(sorted(rooms.residents[row]), rooms.family(row))
        return tuple(
            Tenant(copy, worth, ppm, (value + MILLION // 2) // MILLION)
            for copy, worth, ppm, value in each
        )

    def charge(self, copy: CopyId, family: int) -> int:
        """The reservation price of all that slows down with a copy, in micro-dollars per hour."""
        rooms = self._rooms
        kind = rooms.kind(copy)
        job = rooms.jobs[rooms.copies[copy].job]
        if job.kind is not JobKind.GANG or len(job.copies) == 1:
            return kind.worth[family]
        if job.id not in self._mates:
            self._mates[job.id] = sum(rooms.kind(mate).price for mate in job.copies)
        return self._mates[job.id] + kind.worth[family] - kind.price

    def _each(self, copies: Sequence[CopyId], family: int) -> list[tuple[CopyId, int, int, int]]:
        """Of every copy what it is worth alone, how fast it is, and its TNRP in millionths."""
        rooms = self._rooms
        if len(copies) == 1:
            worth = rooms.kind(copies[0]).worth[family]
            return [(copies[0], worth, MILLION, worth * MILLION)]
        workloads = [rooms.copies[copy].task.workload for copy in copies]
        everyone = sorted(workloads)
        found = []
        for copy, workload in zip(copies, workloads, strict=True):
            index = everyone.index(workload)
            ppm = self._throughput(workload, (*everyone[:index], *everyone[index + 1 :]))
            worth = rooms.kind(copy).worth[family]
            value = worth * MILLION - (MILLION - ppm) * self.charge(copy, family)
            found.append((copy, worth, ppm, value))
        return found
