"""Compiled loops, where numba is installed.

An optional extra (``eva-scheduler[fast]``): it is never needed, and the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def best() -> Callable[..., tuple[int, int, int]] | None:
    """`packing.compiled.best`, `None` without numba; imported only now, as that takes a while."""
    try:
        from eva_master.packing.greedy import numba_kernel
    except ImportError:
        return None
    found: Callable[..., tuple[int, int, int]] = numba_kernel.best
    return found
