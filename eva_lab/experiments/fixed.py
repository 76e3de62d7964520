"""Experiments on a fixed cluster, where short and long tasks wait for room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eva_lab.simulator.results.metrics import RunRecord
from eva_lab.simulator.results.short_tasks import short_tasks
from eva_lab.simulator.scenario.fixed_cluster import FixedCluster
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection, ShortSection
from eva_master.app.sections.building import policy_config
from eva_master.model.trace import Trace
from eva_master.packing.elastic.fixed import built
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.text.quantities import Duration
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Price, RunId, job_of

_BINS = 400
_QUANTILES = 200


class ClusterSection(BaseModel):
    """A cluster of so many servers of one slot each, in place of a catalog.

    Attributes:
        servers: All of them.
        short: Servers for short tasks alone, N, at most; policies for short jobs have the option
            `slots` for it. All others are always there.
        usd_per_hour: The price of a server on demand.
        spot_ratio: How many times as much it costs as a transient one, r.
        provisioning: From the request of a server until it runs tasks.
        slots_per_node: So many of the servers that are always there are one machine.
        cutoff: A job is short, in tables and figures, if its tasks take less on average.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int = Field(ge=1, le=100_000)
    short: int = Field(default=0, ge=0)
    usd_per_hour: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    spot_ratio: float = Field(default=3.0, ge=1, le=1_000, allow_inf_nan=False)
    provisioning: Annotated[Duration, Field(ge=0)] = 120_000
    slots_per_node: int = Field(default=1, ge=1, le=10_000)
    cutoff: Annotated[Duration, Field(gt=0)] = 90_000

    @property
    def fixed(self) -> FixedCluster:
        """The servers, with their prices in integers."""
        return FixedCluster(
            servers=self.servers,
            short=self.short,
            price=Price(round(self.usd_per_hour * MILLION)),
            spot_ratio=self.spot_ratio,
            provisioning_ms=self.provisioning,
            slots_per_node=self.slots_per_node,
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A policy for short jobs, with its options, in front of another one.

    Attributes:
        below_ms: Which jobs are short.
    """

    front: str
    front_options: Mapping[str, Any]
    back: str
    back_options: Mapping[str, Any]
    below_ms: int

    def policy(self) -> Policy:
        """Make both.

        Raises:
            EvaError: There is no such policy, preset or option.
        """
        shares = policies()[OnePolicySection(name=self.front).name].shares
        parts = _one(self.front, self.front_options), _one(self.back, self.back_options)
        return Splitter.of_short(*parts, self.below_ms, shares=shares)


def _one(name: str, options: Mapping[str, Any]) -> Policy:
    section = OnePolicySection(name=name, options={"explained": False, **options})
    kind = policies()[section.name]
    return built(kind, policy_config(section, kind))


def short_problem(short: ShortSection, cluster: ClusterSection | None) -> str:
    """The problem of a policy for short jobs; empty if there is none.

    Args:
        short: The policy, with its options.
        cluster: The fixed cluster, if there is one.
    """
    if short.name not in policies():
        return f"there is no policy {short.name!r}"
    try:
        config = policy_config(short, policies()[short.name])
    except ValidationError as error:
        return "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
    except EvaError as error:
        return error.message
    budget = getattr(config, "budget", None)
    if cluster is not None and budget is not None:
        transient = cluster.fixed.price / cluster.spot_ratio
        if budget < transient:
            return (
                f"budget_usd_per_hour {config.budget_usd_per_hour:g} buys no transient server, "
                f"which costs {transient / MILLION:g} dollars per hour"
            )
    published = getattr(config, "resize", "") == "published"
    if cluster is None or not published or not config.transient_share_ppm:
        return ""
    shared, steady = cluster.servers - cluster.short, getattr(config, "steady_slots", 0)
    most = shared / (shared + steady)
    if config.threshold_ppm / MILLION < most:
        return ""
    return (
        f"threshold_ppm {config.threshold_ppm:,} is never exceeded: long tasks on all {shared:,} "
        f"shared servers are {most:.5f} of them and the {steady:,} that stay for short ones"
    )


def figures_of(record: RunRecord, trace: Trace, cluster: ClusterSection) -> dict[str, float]:
    """The figures of short and long tasks, and of transient servers.

    Args:
        record: Record of a run.
        trace: Trace of the run.
        cluster: On what.

    Returns:
        By name; waits are seconds.
    """
    figures = short_tasks(record, short_jobs(trace, cluster.cutoff))
    waits = {
        f"{kind}_wait_{name}": value
        for kind, of in (("short", figures.short), ("long", figures.long))
        for name, value in (
            ("mean_s", of.mean_s),
            ("p50_s", of.p50_s),
            ("p90_s", of.p90_s),
            ("p99_s", of.p99_s),
            ("max_s", of.max_s),
        )
    }
    return {
        **waits,
        "short_tasks": float(figures.short.tasks),
        "long_tasks": float(figures.long.tasks),
        "transients_mean": figures.transients_mean,
        "transients_normalised": figures.transients_mean / cluster.spot_ratio,
        "transients_peak": float(figures.transients_peak),
        "transient_life_mean_h": figures.life_mean_h,
        "transient_life_max_h": figures.life_max_h,
        "reruns": float(figures.reruns),
    }


def saved_share(normalised: float, cluster: ClusterSection, share: float) -> float:
    """Which part of the servers on demand is saved that transient ones replace; 0 if none are.

    Args:
        normalised: How many servers on demand the transient ones cost as much as, on average.
        cluster: On what.
        share: Of the servers for short tasks, those that are replaced.
    """
    replaced = cluster.short * share
    return 1 - normalised / replaced if replaced else 0.0


def replaced_share(pair: Pair) -> float:
    """Which share of the servers for short tasks is replaced by transient ones; 0 if none is."""
    section = OnePolicySection(name=pair.front, options=dict(pair.front_options))
    config = policy_config(section, policies()[section.name])
    return float(getattr(config, "transient_share_ppm", 0) / MILLION)


def short_jobs(trace: Trace, cutoff_ms: int) -> frozenset[str]:
    """The names of the jobs whose tasks take less than the cut-off on average."""
    return frozenset(job.id for job in trace.jobs if job.duration_ms < cutoff_ms)


def curves_of(record: RunRecord, trace: Trace, cutoff_ms: int) -> dict[str, Any]:
    """Waits of short tasks as quantiles, and what is up and held over time.

    Args:
        record: Record of a run.
        trace: Trace of the run.
        cutoff_ms: Which jobs are short.
    """
    short = short_jobs(trace, cutoff_ms)
    names = {job.id: job.name for job in record.jobs}
    arrivals = {job.id: job.submitted_ms for job in record.jobs}
    starts: dict[RunId, int] = {}
    long_spans: list[tuple[int, int]] = []
    for occupancy in record.occupancies:
        if names[job_of(occupancy.run)] in short:
            starts[occupancy.run] = min(
                occupancy.from_ms, starts.get(occupancy.run, occupancy.from_ms)
            )
        else:
            long_spans.append((occupancy.from_ms, occupancy.to_ms))
    waits = [(at - arrivals[job_of(run)]) / 1000 for run, at in starts.items()]
    end = max((job.submitted_ms for job in record.jobs), default=1) or 1
    spot = [
        (instance.up_ms, instance.gone_ms)
        for instance in record.instances
        if instance.purchase == "spot"
    ]
    edges = np.linspace(0, end, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2 / MILLIS_PER_HOUR
    return {
        "short_wait_s": [] if not waits else _rounded(_quantiles(waits)),
        "hours": _rounded(middles),
        "transients": _rounded(_mean_count(spot, edges)),
        "long_tasks": _rounded(_mean_count(long_spans, edges)),
    }


def _quantiles(values: list[float]) -> np.ndarray[Any, Any]:
    quantiles: np.ndarray[Any, Any] = np.quantile(values, np.linspace(0, 1, _QUANTILES + 1))
    return quantiles


def _mean_count(spans: list[tuple[int, int]], edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many spans there are on average between each two edges."""
    covered = np.zeros(len(edges))
    for begin, end in spans:
        covered += np.clip(edges, begin, end)
    means: np.ndarray[Any, Any] = np.diff(covered) / np.diff(edges)
    return means


def _rounded(values: np.ndarray[Any, Any]) -> list[float]:
    return [round(float(value), 3) for value in values]
