"""Quotas in simulated clusters: nobody begins beyond one, nobody waits for one in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import ElasticGang, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price, Workload
from eva_wire.values.states import TERMINAL_JOB, JobState
from tests.drawing import drawn

FAMILIES = (Family("v100"), Family("k80"))
NODES = 3
GPUS = 4


def offering(family: Family) -> Offering:
    capacity = Resources(GPUS, 32_000, 262_144)
    kind = InstanceType(f"{family}.x", family, capacity, acquisition_ms=1_000, setup_ms=1_000)
    return Offering(kind, Price(1_000_000), limit=NODES)


CATALOG = tuple(map(offering, FAMILIES))

jobs = st.builds(
    lambda tenant, families, gpus, tasks, gang, least, minutes: _job(
        tenant, families, gpus, tasks=tasks, gang=gang, least=least, minutes=minutes
    ),
    st.sampled_from(["vision", "speech"]),
    st.sampled_from([FAMILIES, FAMILIES[:1], FAMILIES[1:]]),
    st.integers(0, 2),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.integers(1, 30),
)
quotas = st.fixed_dictionaries(
    {
        tenant: st.fixed_dictionaries(
            {"v100": st.integers(1, 6), "k80": st.integers(0, 6), "*": st.integers(7, 9)}
        )
        for tenant in ("vision", "speech")
    }
)


def _job(
    tenant: str,
    families: tuple[Family, ...],
    gpus: int,
    *,
    tasks: int,
    gang: bool,
    least: bool,
    minutes: int,
) -> JobSpec:
    need = Resources(gpus, 1_000, 1_024)
    task = TaskSpec(Workload("w"), Program("x"), tuple((it, need) for it in sorted(families)))
    return JobSpec(
        name="j",
        owner=tenant,
        tenant=tenant,
        kind=JobKind.GANG if gang else JobKind.ARRAY,
        tasks=(task,) * tasks,
        duration_ms=minutes * 60_000,
        elastic=ElasticGang(least=1 if gang and least else None),
    )


class Watched:
    """A cluster with quotas, of which every step is looked at."""

    def __init__(self, policy: str, stated: Mapping[str, Mapping[str, int]]) -> None:
        self.stated = stated
        tenancy = Tenancy({name: quota_of(of) for name, of in stated.items()})
        made, _ = named_policy(policy)
        self.world = SimulatedCluster(CATALOG, made, settings=Settings(tenancy=tenancy))
        self.beyond = 0

    def held(self, tenant: str) -> Counter[str]:
        """The GPUs of those that take room, as the agents have them."""
        state, found = self.world.state, Counter[str]()
        for run in state.runs.values():
            if run.instance is not None and state.jobs[run.job].spec.tenant == tenant:
                family = state.instances[run.instance].offering.type.family
                found[family] += dict(state.task(run).demand)[family].gpus
        return found

    def look(self) -> None:
        for tenant, of in self.stated.items():
            held = self.held(tenant)
            spilt = sum(max(0, count - of.get(name, 0)) for name, count in held.items())
            assert spilt <= of["*"], (tenant, held)

    def all_over(self) -> bool:
        self.look()
        state = self.world.state
        return self.world.quiet() and all(it.state in TERMINAL_JOB for it in state.jobs.values())


@pytest.mark.parametrize("policy", ["eva", "fifo", "hadar", "slearn"])
@drawn(6)
@given(st.lists(st.tuples(jobs, st.integers(0, 1_200)), min_size=4, max_size=9), quotas)
def test_no_tenant_begins_beyond_its_quota_and_all_end(
    policy: str, arrivals: list[tuple[JobSpec, int]], stated: Mapping[str, Mapping[str, int]]
) -> None:
    watched = Watched(policy, stated)
    for number, (spec, at) in enumerate(arrivals):
        named = replace(spec, name=f"j{number}")
        watched.world.submit(named, at * 1000)  # type: ignore[arg-type]
    assert watched.world.run(watched.all_over, limit_ms=3 * 86_400_000)
    assert {it.state for it in watched.world.state.jobs.values()} == {JobState.SUCCEEDED}
