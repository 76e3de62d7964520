"""A deadline that is refused cannot be kept: alone in its cluster the job takes longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.features.deadlines.refusing import refusal
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import Catalog
from eva_master.model.job import Deadline, JobSpec
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB, JobState
from tests.drawing import drawn
from tests.fakes.jobs import job, offering

SECOND = 1_000
SCALING = ((1, 1_000_000), (2, 1_900_000), (3, 2_700_000), (4, 3_750_000))

limits = st.one_of(st.none(), st.integers(1, 3))
counts = st.one_of(st.just(10**15), st.integers(1, 4))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    """Up to three types, of which the first holds every task."""
    made = []
    for cpus in draw(st.lists(st.sampled_from((4, 8, 16)), min_size=1, max_size=3, unique=True)):
        sold = offering(cpus, cpus * 50_000, limit=draw(limits))
        boot_ms = draw(st.integers(0, 120)) * SECOND
        made.append(replace(sold, type=replace(sold.type, acquisition_ms=0, setup_ms=boot_ms)))
    return tuple(made)


@st.composite
def specs(draw: st.DrawFn, name: str, gangs: int) -> JobSpec:
    """A gang of few, an elastic one, or an array."""
    minutes = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(("gang", "elastic", "array")))
    if kind == "array":
        cpus = draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
        more = {"concurrency": draw(st.one_of(st.none(), st.integers(1, 3)))}
        return job(name, *cpus, minutes=minutes, array=True, **more)
    size = draw(st.integers(1, gangs))
    if kind == "elastic":
        cpus = [draw(st.integers(1, 4))] * 4
        return job(name, *cpus, minutes=minutes, least=1, scaling=SCALING)
    return job(name, *[draw(st.integers(1, 4))] * size, minutes=minutes)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Catalog, Limits, list[JobSpec]]:
    """A small cluster, and a job behind up to two others."""
    catalog = draw(catalogs())
    bounds = Limits(
        instances=draw(counts), instances_per_user=draw(counts), instances_per_job=draw(counts)
    )
    chain: list[JobSpec] = []
    for number in range(draw(st.integers(1, 3))):
        before = [JobId(f"j{it}-{it + 1}") for it in range(number) if draw(st.booleans())]
        spec = draw(specs(f"j{number}", 1))
        chain.append(with_values(spec, {"depends_on": tuple(before)}))
    return catalog, bounds, chain


@pytest.mark.parametrize("policy", ["eva", "no_packing"])
@drawn(15)
@given(world=worlds(), start_s=st.integers(0, 40), hint=st.booleans())
def test_no_job_that_is_refused_could_have_made_it(
    policy: str, world: tuple[Catalog, Limits, list[JobSpec]], start_s: int, hint: bool
) -> None:
    catalog, bounds, chain = world
    kind = policies()[policy]
    cluster = SimulatedCluster(
        catalog,
        kind.build(kind.config()),
        settings=Settings(limits=bounds, launch_ms=start_s * SECOND),
        delays=EqualDelays(fetch_ms=0, start_ms=start_s * SECOND, stop_ms=1_000, report_ms=5_000),
    )
    for spec in chain:
        cluster.submit(with_values(spec, {"launch_ms": start_s * SECOND if hint else None}))
    state, name = cluster.state, JobId(f"{chain[-1].name}-{len(chain)}")
    assert cluster.run(lambda: len(state.jobs) == len(chain))
    asked_ms = cluster.timeline.now()
    refused_ms = _longest_refused_ms(cluster, state.jobs[name].spec)

    assert cluster.run(lambda: all(it.state in TERMINAL_JOB for it in state.jobs.values()))

    over = state.jobs[name]
    assert over.state is JobState.SUCCEEDED
    assert over.finished_ms is not None
    assert refused_ms < over.finished_ms - asked_ms


def _longest_refused_ms(cluster: SimulatedCluster, spec: JobSpec) -> int:
    """The farthest deadline, in milliseconds, that is refused at present."""
    low, high = 0, 100_000_000
    now, settings = cluster.timeline.now(), cluster.machine.settings
    while low + 1 < high:
        middle = (low + high) // 2
        due = replace(spec, deadline=Deadline(within_ms=middle))
        refused = refusal(cluster.state, due, now, settings) is not None
        low, high = (middle, high) if refused else (low, middle)
    return low
