"""Experiments on a fleet of owned servers of several GPU types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from eva_master.adapters.catalog.gpus import GPUS, parse_gpu
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.ids import MILLION, MILLIS_PER_HOUR, Family, Price
from eva_master.model.trace import Trace
from eva_master.simulation.results.fleet_bound import fleet_bound
from eva_master.simulation.results.metrics import Outcome
from eva_master.simulation.scenario.fleet import Servers, fleet_nodes

FamilyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]


class ServersSection(BaseModel):
    """Servers of one GPU type.

    Attributes:
        servers: How many.
        gpus: Of each; beside each GPU there is a vCPU with 1 GiB, which is what a task of a trace
            of `kind: gpus` takes.
        usd_per_hour: The price of a server.
        gpu: What GPUs they are, as in a catalog; by default those that the type is named after. It
            matters where jobs do not state how fast they are.
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
    """The same jobs a round later, so that the first plan for them sees the whole fleet.

    A plan is made when the nodes join, and the next one is a round later at the earliest.
    """
    jobs = (replace(job, arrival_ms=job.arrival_ms + round_gap_ms) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def fleet_figures(
    outcome: Outcome, trace: Trace, fleet: Mapping[str, ServersSection]
) -> dict[str, float]:
    """The figures of a run on a fleet.

    Args:
        outcome: Of a run with a record.
        trace: What was run.
        fleet: On what.

    Returns:
        By name; the total time from the first arrival, the mean time to completion, the bound of
        the former, and how often a task of a job moved on average.
    """
    jobs = outcome.record.jobs
    first_ms = min(job.submitted_ms for job in jobs)
    total_h = (max(job.finished_ms for job in jobs) - first_ms) / MILLIS_PER_HOUR
    found = {
        "total_h": total_h,
        "mean_h": fmean(job.jct_ms for job in jobs) / MILLIS_PER_HOUR,
        "moves_per_job": fmean(job.moves / job.tasks for job in jobs),
    }
    if (least := fleet_bound(trace, nodes_of(fleet))) is not None:
        bound_h = least.bound_ms / MILLIS_PER_HOUR
        found |= {"bound_h": bound_h, "over_bound": total_h / bound_h}
    return found
