"""Forecast for the spot instances that a job may run on, from observations of pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from eva_master.learning.market.pools import SpotPool, SpotPools
from eva_master.learning.market.survival import AGES_MS
from eva_master.packing.deadlines.table import SpotForecast
from eva_wire.values.ids import MILLION

_AGES_MS = tuple((start + stop) // 2 for start, stop in pairwise((0, *AGES_MS, 2 * AGES_MS[-1])))
"""One for each class of age."""
MIDDLE_AGE_MS = AGES_MS[len(AGES_MS) // 2]
"""The age of what nobody watched."""
_FINER = 1
"""Rates make a difference if they differ by this root of two; a table serves for all alike."""
_PRICE_STEP_PPM = MILLION // 50
_SMALLEST, _LARGEST = 1e-4, 1e4


def outlook(known: SpotPools, pools: Sequence[SpotPool], price_ppm: int) -> SpotForecast:
    """Forecast for a set of pools, any of which will do.

    Args:
        known: Observations of the pools.
        pools: At least one.
        price_ppm: Spot price, in millionths of the on-demand price.
    """
    loss = (sum(known.loss_at(pool, age) for pool in pools) / len(pools) for age in _AGES_MS)
    back = (sum(known.return_at(pool, age) for pool in pools) for age in _AGES_MS)
    shares = [known.there_share(pool) for pool in pools]
    # When a pool runs dry, the alternatives are the other pools.
    rest = (shares[:place] + shares[place + 1 :] for place in range(len(shares)))
    others = [1 - math.prod(1 - part for part in share) for share in rest]
    return SpotForecast(
        _rounded(price_ppm),
        tuple(map(_rounded_rate, loss)),
        tuple(map(_rounded_rate, back)),
        round(20 * sum(others) / len(others)) * (MILLION // 20),
    )


def _rounded(price_ppm: int) -> int:
    return max(1, round(price_ppm / _PRICE_STEP_PPM) * _PRICE_STEP_PPM)


def _rounded_rate(rate: float) -> float:
    bounded = min(_LARGEST, max(_SMALLEST, rate))
    return float(2 ** (round(_FINER * math.log2(bounded)) / _FINER))
