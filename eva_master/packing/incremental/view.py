"""Following long tables, and views of a snapshot, of which a few change from round to round.

A table is a sorted tuple of rows that is never changed but replaced, and the new one shares most of
its rows with the one before. So what differs is found by comparing identities, and what is derived
from a table follows the rows that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeVar

R = TypeVar("R", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")

_VERSIONS_KEPT = 4
"""More than one: what a user asks about may be of another cluster than what is planned."""

_FOLLOWED = 32
"""So many changes are followed one by one, at a comparison of all rows in all; any others are found
by sets of identities."""
_STEPS = ((1, 1), (0, 1), (1, 0))
"""Rows removed and added where a row is replaced, new or gone."""


def changes(before: Sequence[R], after: Sequence[R]) -> tuple[list[R], list[R]]:
    """The removed rows and the new rows of a version against another.

    Args:
        before: Rows of the earlier version, no row twice.
        after: Rows of the later version, no row twice; rows in both have the same order.
    """
    gone, fresh = list[R](), list[R]()
    for _ in range(_FOLLOWED):
        head = next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))
        before, after = before[head:], after[head:]
        step = next((step for step in _STEPS if _meet(before, after, step)), None)
        if step is None:
            break
        removed, added = step
        gone.extend(before[:removed])
        fresh.extend(after[:added])
        before, after = before[removed:], after[added:]
    gone.extend(_beyond(before, after))
    fresh.extend(_beyond(after, before))
    equal = set(gone).intersection(fresh)
    if not equal:
        return gone, fresh
    return [row for row in gone if row not in equal], [row for row in fresh if row not in equal]


def _meet(before: Sequence[R], after: Sequence[R], step: tuple[int, int]) -> bool:
    """Whether both versions go on with the same row after some rows that differ."""
    removed, added = step
    return removed < len(before) and added < len(after) and before[removed] is after[added]


def _beyond(rows: Sequence[R], others: Sequence[R]) -> list[R]:
    """The rows that are none of the others, by identity."""
    ids = set(map(id, rows)).difference(map(id, others))
    return list(compress(rows, map(ids.__contains__, map(id, rows)))) if ids else []


def replaced(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """The views of a snapshot that a later one lacks, and those of the later one alone.

    Views are compared by identity. One that is in both snapshots is in neither list, as long as
    both are sorted by id; else it may be in both lists.

    Args:
        before: Views of the earlier snapshot.
        after: Views of the later one.
    """
    gone, fresh = list[Any](), list[Any]()
    views: Sequence[Any] = before
    place, most = 0, len(before)
    for view in after:
        if place < most and views[place] is view:
            place += 1
            continue
        name: Any = view.id  # type: ignore[attr-defined]
        while place < most and views[place] is not view and views[place].id <= name:
            gone.append(views[place])
            place += 1
        if place < most and views[place] is view:
            place += 1
        else:
            fresh.append(view)
    gone.extend(before[place:])
    return gone, fresh


Compare = Callable[[tuple[T, ...], tuple[T, ...]], tuple[list[T], list[T]]]
"""Finds the rows of one version that another one lacks, and those that it has instead."""


class IncrementalView(Generic[T, V]):
    """A value derived from a table, updated from one version to the next.

    The memory of earlier versions makes no difference to the values.

    Args:
        nothing: The value of an empty table.
        step: Function that derives the value of a version from that of another one, the version's
            rows, its removed rows and its new rows. The function changes none of these.
        compare: Function that finds removed rows and new rows, `changes` or `replaced`.
    """

    def __init__(
        self,
        nothing: V,
        step: Callable[[V, tuple[T, ...], list[T], list[T]], V],
        compare: Compare[T] = changes,
    ) -> None:
        self._step, self._compare = step, compare
        self._last: tuple[tuple[tuple[T, ...], V], ...] = (((), nothing),)

    def of(self, rows: tuple[T, ...]) -> V:
        """The value of a version."""
        last = self._last
        for version, value in last:
            if version is rows:
                return value
        before, value = last[0]
        gone, new = self._compare(before, rows)
        if gone or new:
            value = self._step(value, rows, gone, new)
        # One assignment, so that threads may share this.
        self._last = ((rows, value), *last[: _VERSIONS_KEPT - 1])
        return value
