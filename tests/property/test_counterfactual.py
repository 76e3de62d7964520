"""Under no packing, what jobs are charged is what they would have cost without packing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.measure import ledger
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, Price, RunId, Workload
from tests.drawing import drawn

FAMILIES = tuple(map(Family, ("gpu", "new", "old")))


def offering(family: str, size: int, price: int) -> Offering:
    gpus = size if family == "gpu" else 0
    kind = InstanceType(
        f"{family}.{size}",
        Family(family),
        Resources(gpus, size * 4_000, size * 8_192),
        acquisition_ms=7_000,
        setup_ms=31_000,
    )
    return Offering(kind, Price(price))


@st.composite
def catalogs(draw: st.DrawFn) -> tuple[Offering, ...]:
    prices = st.integers(10_000, 4_000_000)
    return tuple(offering(family, size, draw(prices)) for family in FAMILIES for size in (1, 2))


@st.composite
def tasks(draw: st.DrawFn) -> TaskSpec:
    """A task that runs on some families, and states its rates on some of these."""
    families = sorted(draw(st.sets(st.sampled_from(FAMILIES), min_size=1)))
    size = draw(st.integers(1, 2))
    demand = tuple(
        (family, Resources(size if family == "gpu" else 0, size * 4_000, 1_024))
        for family in families
    )
    stated = draw(st.sets(st.sampled_from(families)))
    rates = st.integers(1, 1_000 * MILLION)
    throughput = tuple((family, draw(rates)) for family in sorted(stated))
    return TaskSpec(Workload("w"), Program("true"), demand, throughput)


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    kind = draw(st.sampled_from(JobKind))
    members = tuple(draw(st.lists(tasks(), min_size=1, max_size=3)))
    return JobSpec("j", "me", members, kind=kind, duration_ms=draw(st.integers(60_000, 9_000_000)))


def lived(catalog: tuple[Offering, ...], specs: list[JobSpec]) -> SimulatedCluster:
    """Let jobs run to their ends on a cluster on which starts and stops take no time."""
    cluster = SimulatedCluster(
        catalog,
        NO_PACKING.build(NO_PACKING.config()),
        delays=EqualDelays(fetch_ms=0, start_ms=0, stop_ms=0),
        work_of=lambda _run: Work(total_ms=2_400_000.0, steps_per_s=0.0),
    )
    for number, spec in enumerate(specs):
        cluster.submit(replace(spec, name=f"j{number}"))
    assert cluster.run(cluster.quiet)
    return cluster


@drawn(30)
@given(catalogs(), st.lists(jobs(), min_size=1, max_size=3))
def test_what_is_charged_is_the_counterfactual_but_for_boots(
    catalog: tuple[Offering, ...], specs: list[JobSpec]
) -> None:
    cluster = lived(catalog, specs)
    state = cluster.state
    bill = ledger.bill(state, cluster.timeline.now())
    for job in state.jobs:
        boots = sum(_boot(cluster, run.id) for run in state.members(job))
        assert bill.jobs[job].charged == bill.jobs[job].alone - boots
    # Every instance's time is on somebody's account, or idle.
    assert bill.charged == bill.idle + sum(account.charged for account in bill.jobs.values())


def _boot(cluster: SimulatedCluster, run: RunId) -> int:
    """What the boot of the instance that a task run was alone on cost, from the cloud's records."""
    ((_, place),) = cluster.state.runs[run].places
    instance = cluster.state.instances[place]
    assert instance.ready_ms is not None
    assert instance.up_ms is not None
    return instance.offering.price * (instance.ready_ms - instance.up_ms)
