"""Sets how often Python searches for cyclic garbage."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 200_000, 20, 100
"""New objects between searches of the young, and searches of the younger between older ones."""


def spare_lasting_values() -> None:
    """Make the cycle collector search young objects seldom and old ones hardly ever.

    Records, snapshots and plans have no cycles: reference counts free them. With Python's default
    thresholds, half of a round for 100,000 tasks goes into searches that find nothing. Objects that
    exist already are never searched again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
