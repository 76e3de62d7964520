"""What was learned, as a message to users; pure, called in the control loop's thread."""

from __future__ import annotations

from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.control.state.store import State
from eva_master.learning.estimate import Estimate
from eva_master.model.ids import MILLION, Family, Millis, Workload


def view(state: State, now: Millis) -> pb.Learned:
    """All that was learned as of `now`, and what active jobs state of their workloads."""
    known = state.learned
    return pb.Learned(
        standalone=_standalone(state),
        interference=[
            pb.Interference(
                workload=workload,
                others=others,
                throughput_ppm=ppm,
                **_evidence(known.evidence.get((workload, others))),
            )
            for (workload, others), ppm in known.throughput.observed
        ],
        delays=[
            pb.LearnedDelay(
                kind=kind.value,
                name=name,
                delay_ms=estimate.value,
                measurements=estimate.samples,
                measured_ms=estimate.at_ms,
            )
            for (kind, name), estimate in sorted(known.delays.known.items())
        ],
        now_ms=now,
    )


def _evidence(estimate: Estimate | None) -> dict[str, int]:
    return {
        "windows": estimate.samples if estimate else 0,
        "measured_ms": estimate.at_ms if estimate else 0,
    }


def _standalone(state: State) -> list[pb.StandaloneRate]:
    measured = state.standalone.rates
    stated = _stated(state)
    return [
        _rate(key, measured.get(key), stated.get(key, 0)) for key in sorted({*measured, *stated})
    ]


def _rate(
    key: tuple[Workload, Family], measured: Estimate | None, stated: int
) -> pb.StandaloneRate:
    workload, family = key
    return pb.StandaloneRate(
        workload=workload,
        family=family,
        rate=measured.value / MILLION if measured else 0,
        **_evidence(measured),
        stated=stated / MILLION,
    )


def _stated(state: State) -> dict[tuple[Workload, Family], int]:
    """Standalone rates of active jobs' files; where jobs disagree, that of the newest."""
    return {
        (task.workload, family): rate
        for job in state.active
        for task in state.jobs[job].spec.tasks
        for family, rate in task.throughput
    }
