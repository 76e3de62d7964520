"""Counts calls of functions: work that is the same on every machine."""

from __future__ import annotations

import cProfile
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Calls:
    """Calls of functions in the blocks of `counting`.

    Python's own profiler counts, which is compiled: a hook in Python takes several times as long as
    the work that it counts.

    Args:
        builtins: Whether those of functions in C count too.
        below: A part of the paths of files whose functions alone count; empty for all.
    """

    def __init__(self, *, builtins: bool = False, below: str = "") -> None:
        self._profile = cProfile.Profile(builtins=builtins)
        self._below = below

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls of a block."""
        self._profile.enable()
        try:
            yield
        finally:
            self._profile.disable()

    @property
    def made(self) -> int:
        """How many calls there were so far."""
        return sum(row.callcount for row in self._profile.getstats() if self._counts(row.code))

    def _counts(self, code: CodeType | str) -> bool:
        if isinstance(code, str):  # a function in C
            return not self._below
        return self._below in code.co_filename
