"""Facts learned of spot pools and of how long jobs take, as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from eva_master.learning.estimate import MeasuredEstimate
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.pools import SpotPool, SpotPools
from eva_master.learning.market.spot_market import pool_of
from eva_master.learning.runtimes import OwnerTimes
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import Voice, split
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.arithmetic.fixed_point import exp_of_ppm
from eva_master.model.records import Instance
from eva_master.ports.learned import LearnedTime, WatchedPool
from eva_master.ports.reading import LearnedTables, Measured
from eva_wire.values.ids import MILLION, Family, Millis, Workload


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
            standalone[name, family, ""] = MeasuredEstimate(rate, Millis(0), 0)
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
        known: Observations of the pools.
        live: The live instances.
        now: The time.
    """
    held = {pool_of(instance.offering) for instance in live if instance.up_ms is not None}
    pools = ((SpotPool(*name.split("@", 1)), spell) for name, spell in sorted(known.spells.items()))
    return [
        WatchedPool(
            str(pool),
            spell.there,
            spell.since_ms,
            spell.began,
            spell.seen_ms,
            spell.tries,
            spell.retry_ms,
            round(MILLION * known.stays(pool, now, held=spell.there and pool in held)),
        )
        for pool, spell in pools
    ]


def learned_times(known: Mapping[str, OwnerTimes], owner: str) -> list[LearnedTime]:
    """Learned run times, by owner and feature.

    Args:
        known: Learned run times by owner.
        owner: The only owner to include; empty for all.
    """
    return [
        LearnedTime(
            owner=name,
            feature=feature.value,
            value=value,
            median_ms=exp_of_ppm(spread.log),
            between_ppm=spread.between,
            within_ppm=spread.within,
            error_ppm=spread.error,
            jobs=spread.jobs,
            tasks=spread.tasks,
            at_ms=spread.at_ms,
        )
        for name in sorted(known if not owner else known.keys() & {owner})
        for (feature, value), spread in sorted(known[name].spreads.items(), key=itemgetter(0))
    ]
