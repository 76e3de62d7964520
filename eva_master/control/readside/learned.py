"""Facts learned of spot pools and of how long jobs take, as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from eva_master.learning.market.pools import Pool, SpotPools
from eva_master.learning.market.spot_market import pool_of
from eva_master.learning.runtimes import OwnerTimes
from eva_master.model.arithmetic.fixed_point import exp_of_ppm
from eva_master.model.ids import MILLION, Millis
from eva_master.model.records import Instance
from eva_master.ports.learned import LearnedTime, WatchedPool


def watched_pools(known: SpotPools, live: Iterable[Instance], now: Millis) -> list[WatchedPool]:
    """Spot pools, by name.

    Args:
        known: What was seen of them.
        live: The instances that are there.
        now: The time.
    """
    held = {pool_of(it.offering) for it in live if it.up_ms is not None}
    pools = ((Pool(*name.split("@", 1)), it) for name, it in sorted(known.spells.items()))
    return [
        WatchedPool(
            str(pool),
            it.there,
            it.since_ms,
            it.began,
            it.seen_ms,
            it.tries,
            it.retry_ms,
            round(MILLION * known.stays(pool, now, held=it.there and pool in held)),
        )
        for pool, it in pools
    ]


def learned_times(known: Mapping[str, OwnerTimes], owner: str) -> list[LearnedTime]:
    """How long jobs took, by owner and feature.

    Args:
        known: By owner.
        owner: Whose alone; empty for all.
    """
    return [
        LearnedTime(
            owner=name,
            feature=feature.value,
            value=value,
            median_ms=exp_of_ppm(it.log),
            between_ppm=it.between,
            within_ppm=it.within,
            error_ppm=it.error,
            jobs=it.jobs,
            tasks=it.tasks,
            at_ms=it.at_ms,
        )
        for name in sorted(known if not owner else known.keys() & {owner})
        for (feature, value), it in sorted(known[name].spreads.items(), key=itemgetter(0))
    ]
