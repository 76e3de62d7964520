"""Local search for the configuration that costs least: compiled where that is to be had.

Both ways decide the same, see `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from eva_master.packing.compiled.library import library
from eva_master.packing.local_search import reference
from eva_master.packing.local_search.kernel import KernelSearch, small_enough
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search_start import SearchResult, SearchStart


def search(start: SearchStart, loads: LoadCache, seed: Sequence[int], trials: int) -> SearchResult:
    """Improve a configuration until the trials are made, or nothing better is to be expected.

    Args:
        start: The configuration.
        loads: Prices loads, and has the budget.
        seed: Of the random choices.
        trials: How often something is taken apart at most.
    """
    width = reference.CHOICE_DRAWS + reference.ORDER_DRAWS
    draws = np.random.default_rng(list(seed)).random((trials, width))
    kernel = compiled()
    if kernel is not None and small_enough(start, loads):
        return kernel(start, loads, draws)
    return reference.search(start, loads, draws.tolist())


@cache
def compiled() -> KernelSearch | None:
    """The compiled search, `None` where there is none for this system."""
    opened = library()
    return None if opened is None else KernelSearch(opened)
