"""Converts what was learned to a message; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from operator import itemgetter

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.learning.voices.names import Voice, plain, voice_of
from eva_master.model.job import different
from eva_master.ports.reading import Measured, ReadModel
from eva_wire.values.ids import MILLION, Family, Millis, Workload

_Rated = tuple[Workload, Family, str]
"""A workload, a family, and the owner whose jobs were measured or state the rate."""


def view(model: ReadModel, voice: Voice | None, now: Millis) -> pb.Learned:
    """Everything learned up to `now`, and what active jobs state about their workloads.

    Args:
        model: Where it is looked up.
        voice: Owner or tenant that asks; `None` for an operator, who may see all of it.
        now: The time.
    """
    tables = model.learned_tables(voice)
    return pb.Learned(
        standalone=_standalone(model, tables.standalone, voice),
        interference=[
            pb.Interference(
                workload=workload,
                others=others,
                throughput_ppm=ppm,
                owner=owner,
                **_evidence(evidence),
            )
            for (workload, others, owner), (ppm, evidence) in sorted(
                tables.interference.items(), key=itemgetter(0)
            )
        ],
        delays=[
            pb.LearnedDelay(
                kind=kind,
                name=name,
                delay_ms=estimate.value,
                measurements=estimate.samples,
                measured_ms=estimate.at_ms,
                owner=owner,
            )
            for (kind, name, owner), estimate in sorted(tables.delays.items(), key=itemgetter(0))
        ],
        now_ms=now,
        pools=[
            pb.LearnedPool(
                name=watched_pool.name,
                there=watched_pool.there,
                since_ms=watched_pool.since_ms,
                began=watched_pool.began,
                seen_ms=watched_pool.seen_ms,
                tries=watched_pool.tries,
                retry_ms=watched_pool.retry_ms,
                stays_ppm=watched_pool.stays_ppm,
            )
            for watched_pool in model.watched_pools(now)
        ],
    )


def times(model: ReadModel, owner: str, now: Millis) -> pb.LearnedTimes:
    """Run times learned up to `now`, of one owner or, if empty, of all."""
    return pb.LearnedTimes(
        estimates=model.estimates.value,
        times=[
            pb.LearnedTime(
                owner=learned_time.owner,
                feature=learned_time.feature,
                value=learned_time.value,
                median_ms=learned_time.median_ms,
                spread=_deviation(learned_time.between_ppm),
                spread_within=_deviation(learned_time.within_ppm),
                error=_deviation(learned_time.error_ppm),
                jobs=learned_time.jobs,
                tasks=learned_time.tasks,
                ended_ms=learned_time.at_ms,
            )
            for learned_time in model.learned_times(owner)
        ],
        now_ms=now,
    )


def _deviation(variance_ppm: int) -> float:
    return sqrt(variance_ppm / MILLION)


def _evidence(estimate: Measured | None) -> dict[str, int]:
    return {
        "windows": estimate.samples if estimate else 0,
        "measured_ms": estimate.at_ms if estimate else 0,
    }


def _standalone(
    model: ReadModel, measured: Mapping[_Rated, Measured], voice: Voice | None
) -> list[pb.StandaloneRate]:
    stated = _stated(model, voice)
    return [
        _rate(key, measured.get(key), stated.get(key, 0)) for key in sorted({*measured, *stated})
    ]


def _rate(key: _Rated, measured: Measured | None, stated: int) -> pb.StandaloneRate:
    workload, family, owner = key
    return pb.StandaloneRate(
        workload=workload,
        family=family,
        rate=measured.value / MILLION if measured else 0,
        **_evidence(measured),
        stated=stated / MILLION,
        owner=owner,
    )


def _stated(model: ReadModel, voice: Voice | None) -> dict[_Rated, int]:
    """Standalone rates of active jobs' files; where jobs disagree, that of the newest."""
    return {
        (plain(task.workload), family, owner): rate
        for job in model.active.values()
        if voice in (None, owner := voice_of(job.spec))
        for task in different(job.spec.tasks)
        for family, rate in task.throughput
    }
