"""How often Python searches for garbage in cycles."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 200_000, 20, 100
"""New objects between searches of the young, and searches of the younger between older ones."""


def spare_lasting_values() -> None:
    """Have the cycle collector look at young objects seldom and at old ones hardly ever.

    Records, snapshots and plans are values without cycles: they go when nobody refers to them any
    more. With Python's own thresholds half of a round for 100,000 tasks goes into searches among
    them that find nothing. What exists already is never searched again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
