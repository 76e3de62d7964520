"""Carries out one run, in any process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import pvariance
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eva_lab.experiments import learned
from eva_lab.experiments.fixed import (
    ClusterSection,
    Pair,
    curves_of,
    figures_of,
    replaced_share,
    saved_share,
)
from eva_lab.experiments.fleet import awaited, fleet_curves, fleet_figures, nodes_of
from eva_lab.experiments.packing import packed
from eva_lab.experiments.runs import Result, Run, code_version
from eva_lab.experiments.schema import PolicyEntry
from eva_lab.experiments.tenant_worlds import world_figures, world_tenants
from eva_lab.partitions import division, policy_of, with_tenants
from eva_lab.runs import NO_PACKING, Chosen, named_policy, prepared, truth_of
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.cluster.supply.fault_injector import Faults
from eva_lab.simulator.cluster.truth import Truth
from eva_lab.simulator.results.dags import WatchedDags
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.market_bound import market_bound
from eva_lab.simulator.results.metrics import InstanceFigures, SimulationOutcome
from eva_lab.simulator.results.run_times import WatchedEstimates
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.tenants import tenancy_of
from eva_lab.traces.spot.files import read_market
from eva_master.adapters.catalog import load_catalog
from eva_master.app.sections.base import ShortSection
from eva_master.app.sections.building import all_lend, all_pack
from eva_master.learning.voices.resolution import by_name
from eva_master.model.catalog import Catalog
from eva_master.model.fleet.market import Market
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.model.trace import Trace
from eva_wire import VERSION
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Workload, base_of

_BINS = 400
"""Number of points of a curve over time."""
_QUANTILES = 200

Floats = npt.NDArray[np.float64]


def execute(run: Run) -> Result:
    """Carry out a run.

    Returns:
        Its result, as `eva_lab.experiments.runs.Results.keep` takes it; with ``error``
        instead of ``figures`` if it could not be carried out.
    """
    start = time.perf_counter()
    result: Result = {"digest": run.digest, "definition": run.definition}
    try:
        if run.planner:
            result["figures"] = _packed(run)
        else:
            result |= _reference(run) if run.policy is None else _simulated(run, run.policy)
    except EvaError as error:
        result["error"] = f"{error.message} ({error.hint})" if error.hint else error.message
    return result | {
        "made": {
            "wall_s": time.perf_counter() - start,
            "version": VERSION,
            "code": code_version(),
        }
    }


def _packed(run: Run) -> dict[str, float]:
    catalog = load_catalog(run.catalog.file, run.catalog.only)
    return packed(run.recipe, run.seed, catalog, run.planner)


def _reference(run: Run) -> Result:
    world = _world(run)
    if world.market is None:
        bound = reference_bound(world.trace, world.catalog)
    else:
        bound = market_bound(world.trace, world.catalog, world.market)
    return {"figures": {"cost_usd": bound / MILLIS_PER_HOUR / MILLION}}


class _World(NamedTuple):
    """The cluster that jobs run on."""

    trace: Trace
    catalog: Catalog
    nodes: tuple[OwnedNode, ...]
    market: Market | None


def _world(run: Run) -> _World:
    catalog = load_catalog(run.catalog.file, run.catalog.only, spot=True)
    nodes: tuple[OwnedNode, ...] = ()
    if run.cluster is not None:
        catalog, nodes = run.cluster.fixed.catalog, run.cluster.fixed.nodes
    if run.fleet is not None:
        catalog, nodes = (), nodes_of(run.fleet)
    market = None
    if run.market is not None:
        market = read_market(run.market.file, catalog).began_at(run.market.offset)
    trace = run.recipe.trace(run.seed, catalog)
    if run.spot is not None:
        trace = trace.using_spot(run.spot)
    if market is not None:
        catalog = market.offered(catalog)
    if trace.nodes:
        catalog, nodes = (), trace.nodes
    return _World(trace, catalog, nodes, market)


def _setup(run: Run, entry: PolicyEntry) -> Setup:
    trace, catalog, nodes, market = _world(run)
    everything = Setup(
        trace if run.fleet is None else awaited(trace, run.round_gap_ms),
        catalog,
        named_policy(NO_PACKING)[0],
        nodes=nodes,
        market=market,
        spot_choice=run.spot_choice,
        tenancy=tenancy_of(trace),
        round_gap_ms=run.round_gap_ms,
        truth=truth_of(run.interference.file, run.interference.pairwise),
        accounting=Accounting(run.accounting),
        durations=run.stated_durations,
        estimates=Estimates(run.estimates),
        faults=Faults(
            refusals=run.faults.refusals,
            failures_per_hour=run.faults.failures,
            interruptions=1.0 if market is None else 0.0,
            noise=run.faults.noise,
        ),
        seed=run.fault_seed,
        keep_record=True,
        stopwatch=time.perf_counter,
    )
    setup = prepared(Chosen(entry.spec, entry.options), everything)
    if entry.section is not None:
        policy, gap_s = policy_of(entry.section, everything)
        whole = replace(
            setup.partitions.whole, packs=all_pack(entry.section), lends=all_lend(entry.section)
        )
        partitions = replace(setup.partitions, whole=whole)
        setup = replace(setup, policy=policy, round_gap_s=gap_s, partitions=partitions)
    if run.tenants:
        setup = with_tenants(dict(run.tenants), setup)
    if trace.nodes:
        setup = replace(setup, round_gap_s=run.round_s)
    elif run.cluster is not None or run.fleet is not None:
        setup = _on_fixed(setup, entry)
    return division(dict(run.partitions))(setup, None) if run.partitions else setup


def _simulated(run: Run, entry: PolicyEntry) -> Result:
    setup = _setup(run, entry)
    cluster, trace, watched = run.cluster, setup.trace, None
    dags = WatchedDags(setup.policy, trace.jobs)
    if _recurs(run, trace):
        watched = WatchedEstimates(dags, trace.jobs)
        setup, cluster = replace(setup, policy=watched), None
    simulation = Simulation(setup)
    outcome = simulation.run()
    if trace.nodes:
        of_world = world_tenants(outcome, trace, simulation.standings, run.round_s)
        outcome = replace(outcome, tenants=of_world)
    planning = {f"planning_{name}": value for name, value in asdict(outcome.planning).items()}
    return {
        "figures": outcome.row()
        | planning
        | _of_partitions(outcome)
        | _of_deadlines(outcome)
        | _of_tenants(outcome)
        | ({} if run.fleet is None else fleet_figures(outcome, trace, run.fleet, run.round_gap_ms))
        | (world_figures(outcome, trace, simulation, run.round_s) if trace.nodes else {})
        | ({} if cluster is None else _short_figures(cluster, entry, outcome, trace))
        | ({} if watched is None else _learned_figures(run, watched, dags, outcome, trace)),
        **({"tenants": [asdict(tenant) for tenant in of]} if (of := outcome.tenants) else {}),
        "curves": {
            "uptime_h": _quantiles(
                [instance.gone_ms - instance.up_ms for instance in outcome.record.instances]
            ),
            "jct_h": _quantiles([job.jct_ms for job in outcome.record.jobs]),
            "instances": over_time(outcome.record.instances),
            **({} if run.fleet is None else fleet_curves(outcome, trace, run.fleet)),
            **({} if cluster is None else curves_of(outcome.record, trace, cluster.cutoff)),
            **({} if watched is None else learned.curves_of(watched, trace)),
        },
        "learned": _learned(by_name(simulation.cluster.state.learned.voices), setup.truth),
    }


def _short_figures(
    cluster: ClusterSection, entry: PolicyEntry, outcome: SimulationOutcome, trace: Trace
) -> dict[str, float]:
    figures = figures_of(outcome.record, trace, cluster)
    share = 0.0 if entry.short is None else replaced_share(_pair(entry, entry.short))
    if share:
        figures["saved_share"] = saved_share(figures["transients_normalised"], cluster, share)
    return figures


def _recurs(run: Run, trace: Trace) -> bool:
    """Whether a run is about learned run times, and not about room for short jobs."""
    entry, cluster = run.policy, run.cluster
    short = entry is not None and entry.short is not None
    room = short or run.partitions or (cluster is not None and cluster.short)
    return bool(trace.past) and not room


def _learned_figures(
    run: Run, watched: WatchedEstimates, dags: WatchedDags, outcome: SimulationOutcome, trace: Trace
) -> dict[str, float]:
    mode, stated, record = Estimates(run.estimates), run.stated_durations, outcome.record
    figures = learned.figures_of(watched, record, trace, mode, stated=stated)
    return figures | learned.figures_of_dags(dags, record, trace, mode, stated=stated)


def _on_fixed(setup: Setup, entry: PolicyEntry) -> Setup:
    """A setup that plans whenever something happens, with the policy for short jobs."""
    if entry.short is None:
        return replace(setup, round_gap_s=None)
    return replace(setup, policy=_pair(entry, entry.short).policy(), round_gap_s=None)


def _pair(entry: PolicyEntry, short: ShortSection) -> Pair:
    front = f"{short.name}:{short.preset}" if short.preset else short.name
    return Pair(front, short.options, entry.spec, entry.options, short.below)


def _of_tenants(outcome: SimulationOutcome) -> dict[str, float]:
    """Revenue of all tenants, and how unevenly it is spread; empty where none has a quota."""
    alphas = [tenant.alpha for tenant in outcome.tenants if tenant.alpha is not None]
    if not alphas:
        return {}
    revenue = sum(tenant.value_usd for tenant in outcome.tenants)
    return {"revenue": revenue, "alpha_variance": pvariance(alphas)}


def _of_deadlines(outcome: SimulationOutcome) -> dict[str, float]:
    """How many jobs missed theirs, and by how much at most; nothing where none has any."""
    due = outcome.deadlines
    return {} if due is None else {"missed": due.missed, "late_max_h": due.late_max_h}


def _of_partitions(outcome: SimulationOutcome) -> dict[str, float]:
    """The figures of each partition, as ``PARTITION/FIGURE``."""
    return {
        f"{partition.partition}/{name}": value
        for partition in outcome.partitions
        for name, value in asdict(partition).items()
        if name != "partition"
    }


def _quantiles(durations_ms: Sequence[int]) -> list[float]:
    """Evenly spaced quantiles in hours, smallest and largest included."""
    if not durations_ms:
        return []
    hours = np.array(durations_ms) / MILLIS_PER_HOUR
    return _rounded(np.quantile(hours, np.linspace(0, 1, _QUANTILES + 1)))


def over_time(instances: Sequence[InstanceFigures]) -> dict[str, Any]:
    """Mean number of running instances of each type, in equal spans of time."""
    end = max((instance.gone_ms for instance in instances), default=1)
    edges = np.linspace(0, end, _BINS + 1)
    counts: dict[str, Floats] = {}
    for instance in instances:
        series = counts.setdefault(instance.type, np.zeros(_BINS))
        # The time up before each edge, differentiated: the time up in each span.
        series += np.diff(np.clip(edges, instance.up_ms, instance.gone_ms)) / (end / _BINS)
    hours = (edges[:-1] + edges[1:]) / 2 / MILLIS_PER_HOUR
    return {
        "hours": _rounded(hours),
        "types": {name: _rounded(series) for name, series in sorted(counts.items())},
    }


def _learned(table: ThroughputTable, truth: Truth) -> list[dict[str, Any]]:
    """The learned and the true interference of pairs, by base workload."""
    ratios: dict[tuple[Workload, Workload], list[int]] = {}
    for (workload, others), ppm in table.observed:
        if len(others) == 1:
            ratios.setdefault((base_of(workload), base_of(others[0])), []).append(ppm)
    return [
        {
            "workload": subject,
            "beside": other,
            "learned": sum(seen) / len(seen) / MILLION,
            "true": truth(subject, (other,)),
            "classes": len(seen),
        }
        for (subject, other), seen in sorted(ratios.items())
    ]


def _rounded(values: Floats) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
