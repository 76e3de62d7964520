"""Facts learned of spot pools and of how long jobs take, as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from eva_master.learning.estimate import Estimate
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.pools import Pool, SpotPools
from eva_master.learning.market.spot_market import pool_of
from eva_master.learning.runtimes import OwnerTimes
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import Voice, split
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.arithmetic.fixed_point import exp_of_ppm
from eva_master.model.ids import MILLION, Family, Millis, Workload
from eva_master.model.records import Instance
from eva_master.ports.learned import LearnedTime, WatchedPool
from eva_master.ports.reading import LearnedTables, Measured


def learned_tables(known: Knowledge, resolved: Resolved, voice: Voice | None) -> LearnedTables:
    """Tables for users: see `ReadModel.learned_tables`."""
    standalone: dict[tuple[Workload, Family, str], Measured] = {}
    interference: dict[tuple[Workload, tuple[str, ...], str], tuple[int, Measured | None]] = {}
    delays: dict[tuple[str, str, str], Measured] = {
        (kind.value, name, ""): estimate for (kind, name), estimate in known.delays.known.items()
    }
    if voice is not None:
        _put_others(standalone, interference, known.of(voice), resolved, voice)
    for owner in known.voices if voice is None else (voice,):
        lessons = known.of(owner)
        for (workload, family), rate in lessons.standalone.rates.items():
            standalone[workload, family, owner] = rate
        for entry, ppm in lessons.throughput.observed:
            beside = tuple(_neighbour(name, named=voice is None) for name in entry[1])
            interference[entry[0], beside, owner] = ppm, lessons.evidence.get(entry)
        for (kind, name), estimate in lessons.delays.known.items():
            delays[kind.value, name, owner] = estimate
    return LearnedTables(standalone, interference, delays)


def _put_others(
    standalone: dict[tuple[Workload, Family, str], Measured],
    interference: dict[tuple[Workload, tuple[str, ...], str], tuple[int, Measured | None]],
    own: Lessons,
    resolved: Resolved,
    voice: Voice,
) -> None:
    """Add figures of others that plans reckon with for a voice's jobs."""
    seen = {
        (entry[0], tuple(sorted(split(other)[0] for other in entry[1])))
        for entry, _ in own.throughput.observed
    }
    for (label, family), rate in resolved.standalone.measured:
        name = split(label)[0]
        if resolved.label(voice, name) == label and (name, family) not in own.standalone.rates:
            standalone[name, family, ""] = Estimate(rate, Millis(0), 0)
    for (label, others), ppm in resolved.throughput.observed:
        name = split(label)[0]
        if any(split(other)[1] is not None for other in others):
            continue  # of a certain owner's
        if resolved.label(voice, name) == label and (name, others) not in seen:
            interference[name, others, ""] = ppm, None


def _neighbour(name: Workload, *, named: bool) -> str:
    """A neighbour's workload as users see it: nobody but operators learns whose it is."""
    workload, owner = split(name)
    if owner is None:
        return workload
    return f"{workload} of {owner}" if named else f"{workload} of another owner"


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
