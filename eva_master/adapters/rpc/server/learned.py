"""Converts what was learned to a message; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from operator import itemgetter

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.ids import MILLION, Family, Millis, Workload
from eva_master.model.job import different
from eva_master.ports.reading import Measured, ReadModel


def view(model: ReadModel, now: Millis) -> pb.Learned:
    """Everything learned up to `now`, and what active jobs state about their workloads."""
    known = model.learned_tables()
    return pb.Learned(
        standalone=_standalone(model, known.standalone),
        interference=[
            pb.Interference(
                workload=workload,
                others=others,
                throughput_ppm=ppm,
                **_evidence(known.evidence.get((workload, others))),
            )
            for workload, others, ppm in known.interference
        ],
        delays=[
            pb.LearnedDelay(
                kind=kind,
                name=name,
                delay_ms=estimate.value,
                measurements=estimate.samples,
                measured_ms=estimate.at_ms,
            )
            for (kind, name), estimate in sorted(known.delays.items(), key=itemgetter(0))
        ],
        now_ms=now,
        pools=[
            pb.LearnedPool(
                name=one.name,
                there=one.there,
                since_ms=one.since_ms,
                began=one.began,
                seen_ms=one.seen_ms,
                tries=one.tries,
                retry_ms=one.retry_ms,
                stays_ppm=one.stays_ppm,
            )
            for one in model.watched_pools(now)
        ],
    )


def times(model: ReadModel, owner: str, now: Millis) -> pb.LearnedTimes:
    """What was learned of run times up to `now`, of one owner or, if empty, of all."""
    return pb.LearnedTimes(
        estimates=model.estimates.value,
        times=[
            pb.LearnedTime(
                owner=one.owner,
                feature=one.feature,
                value=one.value,
                median_ms=one.median_ms,
                spread=_deviation(one.between_ppm),
                spread_within=_deviation(one.within_ppm),
                error=_deviation(one.error_ppm),
                jobs=one.jobs,
                tasks=one.tasks,
                ended_ms=one.at_ms,
            )
            for one in model.learned_times(owner)
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
    model: ReadModel, measured: Mapping[tuple[Workload, Family], Measured]
) -> list[pb.StandaloneRate]:
    stated = _stated(model)
    return [
        _rate(key, measured.get(key), stated.get(key, 0)) for key in sorted({*measured, *stated})
    ]


def _rate(
    key: tuple[Workload, Family], measured: Measured | None, stated: int
) -> pb.StandaloneRate:
    workload, family = key
    return pb.StandaloneRate(
        workload=workload,
        family=family,
        rate=measured.value / MILLION if measured else 0,
        **_evidence(measured),
        stated=stated / MILLION,
    )


def _stated(model: ReadModel) -> dict[tuple[Workload, Family], int]:
    """Standalone rates of active jobs' files; where jobs disagree, that of the newest."""
    return {
        (task.workload, family): rate
        for job in model.active.values()
        for task in different(job.spec.tasks)
        for family, rate in task.throughput
    }
