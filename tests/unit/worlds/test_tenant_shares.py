"""How GPUs are divided among tenants and jobs by gandiva_fair, and what hived lends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.tenants.tenancy import ANY_FAMILY, TenantView
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import Cluster, offer, task
from eva_policies.gandiva_fair.config import Config as FairConfig
from eva_policies.gandiva_fair.policy import GandivaFair
from eva_policies.gandiva_fair.shares import divided
from eva_policies.hived.config import Config as HivedConfig
from eva_policies.hived.policy import HiveD
from eva_wire.values.ids import JobId

_TICKETS = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.integers(1, 20), st.integers(0, 30)), min_size=1
)


@given(st.integers(0, 60), _TICKETS)
def test_divided(total: int, asked: dict[str, tuple[int, int]]) -> None:
    tickets = {it: tickets for it, (tickets, _) in asked.items()}
    most = {it: most for it, (_, most) in asked.items()}
    found = divided(total, tickets, most)
    assert sum(found.values()) == min(total, sum(most.values()))
    assert all(0 <= found[it] <= most[it] for it in asked)
    for it in asked:
        if found[it] < most[it]:  # then nobody has more for its tickets, but for rounding
            assert all(
                (found[other] - 1) / tickets[other] <= (found[it] + 1) / tickets[it]
                for other in asked
            )


def _snapshot(*jobs: tuple[str, str, int], quotas: tuple[int, ...] = (4, 4)) -> Snapshot:
    """Eight GPUs of two tenants, `a` and `b`, and gangs of up to so many members that wait."""
    cluster = Cluster(offer("box", (4, 16, 64), 1.0, limit=2))
    cluster.instance("i", "box").instance("j", "box")
    for name, _, most in jobs:
        cluster.job(name, *[task(any=(1, 1, 1))] * most)
    made = cluster.snapshot()
    owners = {name: (tenant, most) for name, tenant, most in jobs}
    views = []
    for view in made.jobs:
        tenant, most = owners[view.id]
        views.append(changed(view, tenant=tenant, elastic=Elastic(1, most)))
    tenants = tuple(
        TenantView(name, ((ANY_FAMILY, quota),)) for name, quota in zip("ab", quotas, strict=False)
    )
    return replace(made, jobs=tuple(views), tenants=tenants)


def _sizes(plan: Plan) -> dict[JobId, int]:
    found: dict[JobId, int] = {}
    for entry in plan.entries:
        if isinstance(entry, Assign):
            job = JobId(entry.run.rpartition("/")[0])
            found[job] = found.get(job, 0) + 1
    return found


@pytest.mark.parametrize(
    ("jobs", "fair", "hived"),
    [
        ([("x", "a", 8), ("y", "b", 8)], {"x": 4, "y": 4}, {"x": 4, "y": 4}),
        ([("x", "a", 8), ("y", "b", 1)], {"x": 7, "y": 1}, {"x": 4, "y": 1}),
        ([("x", "a", 8)], {"x": 8}, {"x": 4}),
        ([("x", "a", 8), ("z", "a", 8)], {"x": 4, "z": 4}, {"x": 4, "z": 4}),
    ],
)
def test_who_gets_what(
    jobs: list[tuple[str, str, int]], fair: dict[str, int], hived: dict[str, int]
) -> None:
    snapshot = _snapshot(*jobs)
    assert _sizes(GandivaFair(FairConfig()).plan(snapshot, None)[0]) == fair
    assert _sizes(HiveD(HivedConfig()).plan(snapshot, None)[0]) == hived


def test_hived_lends_idle_quotas_alone_if_told_so() -> None:
    jobs = ("x", "a", 8), ("z", "a", 8), ("y", "b", 1)
    unused = HiveD(HivedConfig()).plan(_snapshot(*jobs), None)[0]
    idle = HiveD(HivedConfig(opportunistic="idle")).plan(_snapshot(*jobs), None)[0]
    assert _sizes(unused) == {"x": 4, "y": 1, "z": 3}
    assert _sizes(idle) == {"x": 4, "y": 1}


def test_hived_lends_nothing_to_a_job_that_cannot_give_it_back_in_time() -> None:
    seen = _snapshot(("x", "a", 8), ("z", "a", 8), ("y", "b", 1))
    slow = replace(seen, jobs=tuple(changed(it, unlent="slow") for it in seen.jobs))
    assert _sizes(HiveD(HivedConfig()).plan(slow, None)[0]) == {"x": 4, "y": 1}
