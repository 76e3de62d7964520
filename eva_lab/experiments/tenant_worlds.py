"""Worlds of tenants: what their figures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import pvariance

from eva_lab.runs import NO_PACKING, Chosen, named_policy, options_of, prepared
from eva_lab.simulator.results import fairness
from eva_lab.simulator.results.borrowing import borrowers
from eva_lab.simulator.results.metrics import SimulationOutcome, TenantFigures
from eva_lab.simulator.results.revenue import values_of
from eva_lab.simulator.results.revenue_bound import revenue_bound
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.simulator.scenario.tenants import tenancy_of
from eva_master.model.tenants.tenancy import NOTHING_YET, TenantBenefit
from eva_master.model.trace import Trace, TraceTenant
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

_TWIN = "astraea"
"""The policy of tenants that are alone: it serves each by what waiting costs."""
_WITHOUT_END = 1_000_000
"""Slots after which a clock of batches may begin anew."""
_NEAR_USD = 0.01
"""Two tenants' money differs by rounding up to here."""


@dataclass(frozen=True, slots=True)
class Money:
    """A tenant's revenue, in dollars.

    Attributes:
        value: Worth of its jobs by the end of the hours in which they ended.
        paid: To others. earned: From others.
        alone: Worth that its jobs would have had on its own servers.
    """

    value: float
    paid: float
    earned: float
    received: float
    given: float
    alone: float

    @property
    def net(self) -> float:
        """Value and income less payments."""
        return self.value - self.paid + self.earned + self.received - self.given


def world_setup(
    trace: Trace, policy: str, options: Mapping[str, object], round_s: int | None
) -> Setup:
    """The simulation of a world.

    Args:
        trace: Of the world.
        policy: The policy's name, and maybe its preset.
        options: Of the policy.
        round_s: There are plans at multiples of it; `None` for whenever something happens.
    """
    idle, _ = named_policy(NO_PACKING)
    everything = Setup(
        trace, (), idle, nodes=trace.nodes, tenancy=tenancy_of(trace), keep_record=True
    )
    chosen = prepared(Chosen(policy, {**_of_network(trace, policy), **options}), everything)
    return replace(chosen, round_gap_s=round_s)


def _of_network(trace: Trace, policy: str) -> dict[str, object]:
    """Facts of a world for a policy that plans with parameter servers."""
    network, options = trace.network, options_of(policy)
    if network is None or "ps_per_server" not in options:
        return {}
    return {
        "worker_mbps": max(1, round(network.worker_kbps / 1000)),
        "ps_mbps": max(1, round(network.ps_kbps / 1000)),
        "ps_per_server": min((count for _, count in network.servers), default=0),
        "horizon_slots": _WITHOUT_END,  # as printed
    }


def world_figures(
    outcome: SimulationOutcome, trace: Trace, simulation: Simulation, round_s: int | None
) -> dict[str, float]:
    """The figures of a run of a world.

    Args:
        outcome: Outcome of a run with a record.
        trace: Trace of the run.
        simulation: That made it.
        round_s: At multiples of which there were plans.
    """
    accounts = money_of(outcome, trace, simulation.standings, round_s)
    revenue, bound = sum(account.value for account in accounts.values()), bound_of(trace)
    jobs = outcome.record.jobs
    last_ms, first_ms = max(job.finished_ms for job in jobs), min(job.submitted_ms for job in jobs)
    alphas = alphas_of(trace, accounts)
    short = [account.net / account.alone - 1 for account in accounts.values() if account.alone > 0]
    return {
        "revenue": revenue,
        "bound": bound,
        "share": revenue / bound if bound else 0.0,
        "worse_off": sum(account.net < account.alone - _NEAR_USD for account in accounts.values()),
        "least_gain": min(short, default=0.0),
        "borrowed_jobs": len(borrowers(outcome.record, trace)),
        "paid": sum(account.paid for account in accounts.values()),
        "earned": sum(account.earned for account in accounts.values()),
        "alpha_variance": pvariance(alphas.values()) if alphas else 0.0,
        "total_h": (last_ms - first_ms) / MILLIS_PER_HOUR,
    }


def world_tenants(
    outcome: SimulationOutcome,
    trace: Trace,
    standings: Mapping[str, TenantBenefit],
    round_s: int | None,
) -> tuple[TenantFigures, ...]:
    """The figures of each tenant of a world, their money as `world_figures` has it."""
    accounts = money_of(outcome, trace, standings, round_s)
    alphas = alphas_of(trace, accounts)
    return tuple(
        replace(
            tenant,
            value_usd=accounts[tenant.tenant].value,
            gain_usd=accounts[tenant.tenant].net,
            alpha=alphas.get(tenant.tenant),
        )
        for tenant in outcome.tenants
        if tenant.tenant in accounts
    )


def money_of(
    outcome: SimulationOutcome,
    trace: Trace,
    standings: Mapping[str, TenantBenefit],
    round_s: int | None,
) -> dict[str, Money]:
    """The revenue of each tenant of a world; one without jobs may have earned."""
    values, alone = _by_tenant(outcome, trace), alone_of(trace, round_s)
    money_by_tenant = {}
    for tenant in sorted(alone):
        so_far = standings.get(tenant, NOTHING_YET)
        money_by_tenant[tenant] = Money(
            values.get(tenant, 0.0),
            so_far.paid / MILLION / MILLIS_PER_HOUR,
            so_far.earned / MILLION / MILLIS_PER_HOUR,
            so_far.received / MILLION,
            so_far.given / MILLION,
            alone[tenant],
        )
    return money_by_tenant


def alphas_of(trace: Trace, accounts: Mapping[str, Money]) -> dict[str, float]:
    """How fair revenue is by tenant: its part of all gains over its part of the cluster; 1 is fair.

    The part of the cluster is the mean of those of workers and of parameter servers. Tenants
    without jobs are left out.
    """
    present = {job.tenant for job in trace.jobs}
    parts = {
        tenant.name: _part(trace, tenant) for tenant in trace.tenants if tenant.name in present
    }
    return fairness.alphas_of({name: money.net for name, money in accounts.items()}, parts)


def _part(trace: Trace, tenant: TraceTenant) -> float:
    gpus = sum(node.offering.type.capacity.gpus for node in trace.nodes)
    parts = [sum(count for _, count in tenant.quota) / gpus]
    if trace.network is not None and (every := sum(ps for _, ps in trace.network.servers)):
        own = sum(ps for node, ps in trace.network.servers if node in set(tenant.nodes))
        parts.append(own / every)
    return sum(parts) / len(parts)


@lru_cache(maxsize=8)
def bound_of(trace: Trace) -> float:
    """The bound of every policy's revenue, in dollars."""
    return revenue_bound(trace)


@lru_cache(maxsize=8)
def alone_of(trace: Trace, round_s: int | None) -> Mapping[str, float]:
    """The worth of each tenant's jobs if it is alone on its own servers, in dollars."""
    worths = {}
    for tenant in trace.tenants:
        jobs = tuple(job for job in trace.jobs if job.tenant == tenant.name)
        nodes = tuple(node for node in trace.nodes if node.name in set(tenant.nodes))
        if not jobs or not nodes:
            worths[tenant.name] = 0.0
            continue
        own = replace(trace, jobs=jobs, nodes=nodes, tenants=(tenant,))
        outcome = Simulation(world_setup(own, _TWIN, {}, round_s)).run()
        worths[tenant.name] = _by_tenant(outcome, own)[tenant.name]
    return worths


def _by_tenant(outcome: SimulationOutcome, trace: Trace) -> dict[str, float]:
    values = values_of(outcome.record.jobs, trace)
    dollars: dict[str, float] = {}
    for job in trace.jobs:
        dollars[job.tenant] = dollars.get(job.tenant, 0.0) + values[job.id] / MILLION
    return dollars
