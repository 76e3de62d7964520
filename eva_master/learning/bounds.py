"""A bound on what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from eva_master.learning.estimate import MeasuredEstimate

ENTRIES_KEPT = 4_096
"""Entries of one kind. Labels are the users', who may use a new one for every job."""

K = TypeVar("K")


def bounded(
    entries: Mapping[K, MeasuredEstimate], limit: int = ENTRIES_KEPT
) -> Mapping[K, MeasuredEstimate]:
    """The entries without the one measured longest ago, if there are more than the limit.

    Callers add one entry at a time, so removing one is enough.
    """
    if len(entries) <= limit:
        return entries
    return without_oldest(entries)


def without_oldest(entries: Mapping[K, MeasuredEstimate]) -> Mapping[K, MeasuredEstimate]:
    """Entries without the one that was measured longest ago; there is at least one."""
    oldest = min(entries, key=lambda key: (entries[key].at_ms, str(key)))
    return {key: estimate for key, estimate in entries.items() if key != oldest}
