"""Experiments on a fleet of owned servers of several GPU types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from eva_lab.simulator.cluster.attempt_log import Occupancy
from eva_lab.simulator.results.fleet_bound import fleet_bound
from eva_lab.simulator.results.metrics import RunRecord, SimulationOutcome
from eva_lab.simulator.scenario.fleet import Servers, fleet_nodes
from eva_master.adapters.catalog.gpus import GPUS, parse_gpu
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.trace import Trace
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family, JobId, Price, RunId, run_id

_SPANS = 400
"""Number of points of a curve over time."""
_PARTS = 10
"""The GPUs are nearly all held if at most one of so many is not."""

FamilyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]


class ServersSection(BaseModel):
    """Servers of one GPU type.

    Attributes:
        servers: How many.
        gpus: Of each; beside each GPU there is a vCPU with 1 GiB, which is what a task of a trace
            of `kind: gpus` takes.
        usd_per_hour: The price of a server.
        gpu: Model of the GPUs, as in a catalog; by default the one that the type is named after.
            The model matters where jobs do not state how fast they are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int = Field(ge=1, le=10_000)
    gpus: int = Field(default=4, ge=1, le=64)
    usd_per_hour: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    gpu: Annotated[int, BeforeValidator(parse_gpu)] = 0


FleetSection = Annotated[Mapping[FamilyName, ServersSection], Field(min_length=1, max_length=64)]
"""The servers by their GPU type, which is their family."""


def nodes_of(fleet: Mapping[str, ServersSection]) -> tuple[OwnedNode, ...]:
    """The owned nodes that an experiment's file states."""
    named = {name.lower(): bandwidth for name, bandwidth in GPUS.items()}
    return fleet_nodes(
        [
            Servers(
                Family(name),
                of.servers,
                of.gpus,
                Price(round(of.usd_per_hour * MILLION)),
                of.gpu or named.get(name, 0),
            )
            for name, of in fleet.items()
        ]
    )


def awaited(trace: Trace, round_gap_ms: int) -> Trace:
    """The trace with jobs a round later, so that the first plan for them sees the whole fleet.

    A plan is made when the nodes join, and the next one is a round later at the earliest.
    """
    jobs = (replace(job, arrival_ms=job.arrival_ms + round_gap_ms) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def fleet_figures(
    outcome: SimulationOutcome,
    trace: Trace,
    fleet: Mapping[str, ServersSection],
    round_gap_ms: int | None = None,
) -> dict[str, float]:
    """The figures of a run on a fleet.

    Args:
        outcome: Outcome of a run with a record.
        trace: Trace of the run.
        fleet: On what.
        round_gap_ms: From one plan to the next at least, if it is known.

    Returns:
        By name; the total time from the first arrival, the mean and median times to completion, the
        bound of the first, how often a task of a job moved on average, in which share of the rounds
        anything changed, which share of the GPUs' time tasks held (`used`), and for which part of
        the time they held nine of ten GPUs (`nearly_full`).
    """
    jobs = outcome.record.jobs
    first_ms, last_ms = _ends(outcome.record)
    total_h = (last_ms - first_ms) / MILLIS_PER_HOUR
    figures = {
        "total_h": total_h,
        "mean_h": fmean(job.jct_ms for job in jobs) / MILLIS_PER_HOUR,
        "median_h": median(job.jct_ms for job in jobs) / MILLIS_PER_HOUR,
        "moves_per_job": fmean(job.moves / job.tasks for job in jobs),
    }
    figures |= _use(outcome.record, trace, fleet)
    if round_gap_ms:
        figures["changed_rounds"] = _changed_rounds(outcome.record, round_gap_ms)
    if (least := fleet_bound(trace, nodes_of(fleet))) is not None:
        bound_h = least.bound_ms / MILLIS_PER_HOUR
        figures |= {"bound_h": bound_h, "over_bound": total_h / bound_h}
    return figures


def _ends(record: RunRecord) -> tuple[int, int]:
    """When the first job arrived, and when the last one ended."""
    jobs = record.jobs
    return min(job.submitted_ms for job in jobs), max(job.finished_ms for job in jobs)


def _changed_rounds(record: RunRecord, round_gap_ms: int) -> float:
    """In which share of the rounds a task was started or stopped for another one.

    Rounds are equal parts of the time from the first arrival to the last end, whether a plan was
    asked for in each of them or not. A start is a change; a task's end is none.
    """
    first_ms, last_ms = _ends(record)
    rounds = -(-(last_ms - first_ms) // round_gap_ms)
    last_of = {
        occupancy.run: occupancy.attempt
        for occupancy in sorted(record.occupancies, key=lambda occupancy: occupancy.attempt)
    }
    changes = [occupancy.from_ms for occupancy in record.occupancies]
    changes += [
        occupancy.to_ms
        for occupancy in record.occupancies
        if occupancy.attempt < last_of[occupancy.run]
    ]
    changed = {min((at - first_ms) // round_gap_ms, rounds - 1) for at in changes}
    return len(changed) / max(rounds, 1)


def _use(record: RunRecord, trace: Trace, fleet: Mapping[str, ServersSection]) -> dict[str, float]:
    """How far tasks held the GPUs from the first arrival to the last end."""
    all_gpus = sum(of.servers * of.gpus for of in fleet.values())
    first_ms, last_ms = _ends(record)
    changes: Counter[int] = Counter()
    for occupancy, _, gpus in _held(record, trace, fleet):
        changes[max(occupancy.from_ms, first_ms)] += gpus
        changes[min(occupancy.to_ms, last_ms)] -= gpus
    busy_ms = full_ms = held = 0
    before_ms = first_ms
    for at_ms in sorted(changes):
        busy_ms += held * (at_ms - before_ms)
        full_ms += (at_ms - before_ms) if _PARTS * held >= (_PARTS - 1) * all_gpus else 0
        held, before_ms = held + changes[at_ms], at_ms
    span_ms = max(last_ms - first_ms, 1)
    return {"used": busy_ms / (span_ms * all_gpus), "nearly_full": full_ms / span_ms}


def fleet_curves(
    outcome: SimulationOutcome, trace: Trace, fleet: Mapping[str, ServersSection]
) -> dict[str, Any]:
    """How many GPUs of each type tasks hold over time, from the first arrival to the last end.

    Args:
        outcome: Outcome of a run with a record.
        trace: Trace of the run.
        fleet: On what.

    Returns:
        Under ``gpus``: ``hours``, the middles of equal spans of time; ``types``, the mean of each
        span by type; ``there``, how many GPUs of each type there are.
    """
    record = outcome.record
    first_ms, last_ms = _ends(record)
    edges = np.linspace(first_ms, last_ms, _SPANS + 1)
    width = max(last_ms - first_ms, 1) / _SPANS
    held = {name: np.zeros(_SPANS) for name in fleet}
    for occupancy, family, gpus in _held(record, trace, fleet):
        # The time held before each edge, differentiated: the time held in each span.
        held[family] += gpus * np.diff(np.clip(edges, occupancy.from_ms, occupancy.to_ms)) / width
    hours = (edges[:-1] + edges[1:] - 2 * first_ms) / 2 / MILLIS_PER_HOUR
    return {
        "gpus": {
            "hours": hours.round(4).tolist(),
            "types": {family: gpus.round(4).tolist() for family, gpus in held.items()},
            "there": {name: of.servers * of.gpus for name, of in fleet.items()},
        }
    }


def _held(
    record: RunRecord, trace: Trace, fleet: Mapping[str, ServersSection]
) -> Iterator[tuple[Occupancy, Family, int]]:
    """The time of each attempt on a server, of which type that is and how many GPUs it held."""
    families = {node.name: node.offering.type.family for node in nodes_of(fleet)}
    demands = _demands(record, trace, list(dict.fromkeys(families.values())))
    for occupancy in record.occupancies:
        family = families[occupancy.instance]
        yield occupancy, family, demands[occupancy.run, family]


def _demands(
    record: RunRecord, trace: Trace, families: Sequence[Family]
) -> Mapping[tuple[RunId, Family], int]:
    """How many GPUs each task run takes on each type that can have it."""
    of_trace = {job.id: job for job in trace.jobs}
    resolved = lru_cache(None)(lambda task: tuple(task.resolved(families)))
    return {
        (run_id(JobId(job.id), index), family): demand.gpus
        for job in record.jobs
        for index, task in enumerate(of_trace[job.name].tasks)
        for family, demand in resolved(task)
    }
