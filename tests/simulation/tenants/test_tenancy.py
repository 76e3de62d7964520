"""Quotas and budgets of tenants in a control loop on virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server.shown import tenants
from eva_master.control.settings import Settings
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.actions import Reply
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Workload
from eva_wire.values.states import JobState, RunState
from tests.fakes.models import model_of
from tests.fakes.snapshots import offer

V = Family("v100")
GPU = offer("v100.x", (4, 32, 128), 2, family="v100", limit=4)
DAY_MS = 86_400_000


def job(name: str, tenant: str, tasks: int = 1, hours: float = 1, **more: object) -> JobSpec:
    demand = ((V, Resources(1, 1_000, 1_024)),)
    task = TaskSpec(Workload("w"), Program("x"), demand)
    spec = JobSpec(
        name,
        tenant,
        (task,) * tasks,
        tenant=tenant,
        kind=JobKind.ARRAY,
        duration_ms=round(hours * 3_600_000),
    )
    return with_values(spec, more)


def cluster(
    tenancy: Tenancy, *, nodes: int = 0, policy: str = "fifo", lends: bool = False
) -> SimulatedCluster:
    names = (InstanceId(f"n{number}") for number in range(nodes))
    owned = {
        name: OwnedNode(name, replace(GPU, limit=None, purchase=Purchase.OWNED), fence_ms=60_000)
        for name in names
    }
    catalog = () if nodes else (GPU,)
    parts = Partitions(whole=Partition(default=True, lends=lends))
    settings = Settings(tenancy=tenancy, nodes=owned, partitions=parts)
    return SimulatedCluster(catalog, named_policy(policy)[0], settings=settings)


def run_for(world: SimulatedCluster, hours: float) -> None:
    end = world.timeline.now() + round(hours * 3_600_000)
    refused = job("clock", "clock", depends_on=(JobId("nobody-1"),))
    world.submit(refused, at=Millis(end))
    world.run(lambda: world.timeline.now() >= end)


def running(world: SimulatedCluster, tenant: str) -> int:
    state = world.state
    ours = [it for it in state.active if state.jobs[it].spec.tenant == tenant]
    runs = (run for it in ours for run in state.members(it))
    return sum(run.state is RunState.RUNNING for run in runs)


def refusal(world: SimulatedCluster, spec: JobSpec) -> str:
    command = world.submit(spec)
    assert world.run(lambda: command in world.answers.replies)
    reply = world.answers.replies[command]
    assert isinstance(reply, Reply)
    return "" if reply.error is None else reply.error.message


TENANCY = Tenancy({"vision": quota_of({"v100": 3}), "speech": quota_of({"v100": 8})})


def test_who_waits_is_told_the_quota_and_begins_when_something_ends() -> None:
    world = cluster(TENANCY)
    world.submit(job("a", "vision", 4))
    assert world.run(lambda: running(world, "vision") == 3)
    (waiting,) = [it for it in world.state.members("a-1") if it.instance is None]  # type: ignore[arg-type]
    assert waiting.waiting_for == "quota of vision: 3 of 3 v100 in use"
    assert world.run(world.quiet)
    assert {it.state for it in world.state.jobs.values()} == {JobState.SUCCEEDED}


def test_a_cut_quota_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(TENANCY)
    world.submit(job("a", "speech", 8))
    assert world.run(lambda: running(world, "speech") == 8)
    cut = replace(TENANCY, quotas={"speech": quota_of({"v100": 2})})
    monkeypatch.setattr(world, "_settings", replace(world._settings, tenancy=cut))
    world.restart()
    world.submit(job("b", "speech"))
    assert world.run(lambda: len(world.state.jobs) == 2)
    run_for(world, 0.5)
    assert running(world, "speech") == 8
    assert refusal(world, job("c", "vision")) == ""  # it may have as much as it likes now
    assert world.run(world.quiet)
    assert all(not run.moves for it in world.state.jobs for run in world.state.members(it))


def test_who_has_no_tenant_is_refused_with_the_list() -> None:
    world = cluster(replace(TENANCY, names=("other",)))
    told = refusal(world, replace(job("a", "default"), owner="eve"))
    assert told == "eve belongs to no tenant; there are: other, speech, vision"
    assert refusal(cluster(Tenancy(names=("other",))), job("a", "default")) == ""


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (job("g", "vision", 4, kind=JobKind.GANG), "4 tasks that run together and take 1 v100"),
        (job("g", "vision", 6, kind=JobKind.GANG, least=4), "4 tasks at least that run together"),
        (job("g", "vision", 6, kind=JobKind.GANG, least=3), ""),
        (job("g", "vision", 6), ""),
    ],
)
def test_a_gang_larger_than_the_quota_is_refused(spec: JobSpec, told: str) -> None:
    found = refusal(cluster(TENANCY), spec)
    assert told in found
    assert ("has room for 3 of them" in found) == bool(told)
    assert refusal(cluster(TENANCY, lends=True), spec) == ""


def test_a_policy_that_lends_answers_for_quotas() -> None:
    world = cluster(TENANCY, lends=True)
    world.submit(job("a", "vision", 8))
    assert world.run(lambda: running(world, "vision") == 8)


def test_quotas_are_scaled_down_while_a_node_is_away_and_that_is_told() -> None:
    tenancy = Tenancy({"vision": quota_of({"v100": 4}), "speech": quota_of({"v100": 12})})
    world = cluster(tenancy, nodes=4)
    assert world.run(lambda: sum(it.takes_tasks for it in world.state.instances.values()) == 4)
    rules = TenantRules({"vision": ("v",), "speech": ("s",)})

    def told() -> list[tuple[dict[str, int], dict[str, int]]]:
        answer = tenants.response(
            model_of(world.state, world._settings), rules, world.timeline.now()
        )
        return [(dict(it.quota.stated), dict(it.quota.now)) for it in answer.tenants[:2]]

    assert told() == [({"v100": 4}, {"v100": 4}), ({"v100": 12}, {"v100": 12})]
    gone = world.state.instances[InstanceId("n0")]
    world.workers.cut(gone.id, back_after_ms=DAY_MS)
    assert world.run(lambda: not world.state.can_place(gone.id))
    assert told() == [({"v100": 4}, {"v100": 3}), ({"v100": 12}, {"v100": 9})]
    world.submit(job("a", "vision", 5, hours=0.1))
    assert world.run(lambda: running(world, "vision") == 3)
    run_for(world, 0.05)
    assert running(world, "vision") <= 3


@pytest.mark.explore
def test_a_spent_budget_stops_launches_until_the_next_month() -> None:
    # Four GPUs cost $2 an hour: the second job runs while the budget is being spent.
    world = cluster(Tenancy(budgets={"vision": 3_000_000}))
    world.submit(job("a", "vision", 4, hours=2))
    assert world.run(lambda: running(world, "vision") == 4)
    run_for(world, 1.8)
    world.submit(job("b", "vision", 4))
    world.submit(job("c", "speech", 4))
    run_for(world, 0.1)
    assert running(world, "vision") == 4
    assert running(world, "speech") == 4
    assert world.run(lambda: world.state.jobs["a-1"].state is JobState.SUCCEEDED)  # type: ignore[index]
    run_for(world, 2)
    waiting = next(world.state.members("b-2"))  # type: ignore[arg-type]
    assert "has spent its budget of this month, $3.00" in waiting.waiting_for
    assert world.run(world.quiet, limit_ms=40 * DAY_MS)
    assert world.state.jobs["b-2"].started_ms == pytest.approx(31 * DAY_MS, abs=DAY_MS)  # type: ignore[index]


def test_what_a_tenant_spent_in_a_month_survives_a_restart() -> None:
    world = cluster(Tenancy(budgets={"vision": 10**9}))
    world.submit(job("a", "vision", 4, hours=2))
    assert world.run(world.quiet)
    sums = world.state.totals.tenants["vision"]
    assert sums.month_charged == sums.charged > 0
    world.restart()
    assert world.state.totals.tenants["vision"] == sums
