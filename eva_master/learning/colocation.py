"""The co-location throughput table (Eva, section 4.3): what it holds and how it is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import ThroughputTable
from eva_wire.values.ids import MILLION, Workload

Key = tuple[Workload, tuple[Workload, ...]]
"""A task's workload, and the sorted workloads of the others on its instance."""

V = TypeVar("V", bound=Any)
"""Millionths: an integer, or an array of them."""

DEFAULT_PPM = 950_000
"""Throughput of a pair that was never seen together, in millionths."""


def key(workload: Workload, others: Iterable[Workload]) -> Key:
    """The entry of a task that shares its instance with `others`."""
    return workload, tuple(sorted(others))


def recorded(table: ThroughputTable, entry: Key) -> int | None:
    """Throughput observed for exactly this multiset, in millionths; `None` if none was."""
    index = _place(table, entry)
    if index < len(table.observed) and table.observed[index][0] == entry:
        return table.observed[index][1]
    return None


def _place(table: ThroughputTable, entry: Key) -> int:
    """Where an entry is, or would be."""
    return bisect_left(table.observed, (entry, 0))


def times(value: V, ppm: V) -> V:
    """Slow a throughput down by another one, rounding down to a millionth.

    Args:
        value: A throughput in millionths, or an array of them.
        ppm: The part of it that remains, in millionths, or an array of such parts.
    """
    slowed: V = value * ppm // MILLION
    return slowed


def power(ppm: V, tasks: int) -> V:
    """Throughput beside so many tasks (at least one) of one workload, by its pairwise value."""
    value = ppm
    for _ in range(tasks - 1):
        value = times(value, ppm)
    return value


def estimated(pairs: Iterable[tuple[int, int]]) -> int:
    """Estimate a task's throughput beside others that it was never seen with, in millionths.

    The pairwise value of each other workload is raised to the number of its tasks, and these
    powers are multiplied, rounding down to a millionth after every multiplication.

    Args:
        pairs: Pairwise value and number of tasks of each other workload, in the order of the
            workloads' names.
    """
    value = MILLION
    for ppm, tasks in pairs:
        value = times(value, ppm if tasks == 1 else power(ppm, tasks))
    return value


def throughput_beside(
    look_up: Callable[[Key], int | None], entry: Key, default_ppm: int = DEFAULT_PPM
) -> int:
    """Normalised throughput of a task beside others (Eva, section 4.3), in millionths.

    A task on its own runs at one million. A multiset that was observed has its recorded value. Any
    other is `estimated` by pairs.

    Args:
        look_up: Finds what was observed for an entry, `None` if nothing was.
        entry: See `key`.
        default_ppm: Pairwise value of workloads that were never seen together.
    """
    workload, others = entry
    seen = look_up(entry) if others else MILLION
    if seen is not None:
        return seen
    pairs = []
    for other, tasks in groupby(others):
        pair = look_up((workload, (other,)))
        pairs.append((default_ppm if pair is None else pair, sum(1 for _ in tasks)))
    return estimated(pairs)


def lookup(table: ThroughputTable, entry: Key, default_ppm: int = DEFAULT_PPM) -> int:
    """Ask a table for a task's throughput beside others, see `throughput_beside`."""
    return throughput_beside(partial(recorded, table), entry, default_ppm)


def observe(table: ThroughputTable, entry: Key, ppm: int) -> ThroughputTable:
    """Record a normalised throughput; it replaces what was recorded for the entry before.

    Args:
        table: Stays as it is.
        entry: See `key`; a task on its own (no others) teaches nothing and is ignored.
        ppm: In millionths; held between 1 and one million.
    """
    value, before = max(1, min(MILLION, ppm)), recorded(table, entry)
    if not entry[1] or before == value:
        return table
    index = _place(table, entry)
    after = index + (before is not None)
    return ThroughputTable((*table.observed[:index], (entry, value), *table.observed[after:]))


def forget(table: ThroughputTable, entry: Key) -> ThroughputTable:
    """The table without an entry."""
    if recorded(table, entry) is None:
        return table
    index = _place(table, entry)
    return ThroughputTable((*table.observed[:index], *table.observed[index + 1 :]))


def table_from_json(data: Json) -> ThroughputTable:
    """Read the journal's first form: a list of [workload, [others], millionths].

    Raises:
        ValueError: The data has another form.
    """
    if not isinstance(data, list):
        raise ValueError("a co-location table is a list")
    entries: dict[Key, int] = {}
    for row in data:
        match row:
            case [str(workload), list(others), int(ppm)]:
                entries[key(Workload(workload), (Workload(str(o)) for o in others))] = ppm
            case _:
                raise ValueError(f"not an entry of a co-location table: {row!r}")
    return ThroughputTable(tuple(sorted(entries.items())))
