"""Tells versions of what was learned apart, at the cost of what has changed between them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from eva_master.packing.incremental.view import IncrementalView


def digest_view() -> IncrementalView[object, int]:
    """Follows a table with the sum of a mark per row: equal tables have equal sums."""
    return IncrementalView[object, int](0, _marked)


def _marked(total: int, _: Sequence[object], gone: Sequence[object], new: Sequence[object]) -> int:
    """The sum of the marks of all rows: those alone are needed that changed."""
    return total - sum(map(_mark, gone)) + sum(map(_mark, new))


def _mark(entry: object) -> int:
    """A number that hardly any other entry has."""
    return int.from_bytes(hashlib.sha256(repr(entry).encode()).digest()[:6], "big")
