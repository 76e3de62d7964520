"""Jobs that are suspended are counted as such, and not as pending."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.http.metrics import MasterMetrics
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.shown import tenants
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.ports.reading import ReadModel
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, add_job, spec

BY_USER = Suspension(Suspender.USER, Millis(7), who="ann")
BY_PLAN = Suspension(Suspender.POLICY, Millis(7))
NOW = Millis(1_000)


def scraped(model: ReadModel) -> dict[tuple[str, ...], float]:
    """Jobs by state, and by tenant and state."""
    gateway: Any = SimpleNamespace(
        observe=lambda told: None, latest=lambda timeout: model, planning=str
    )
    metrics = MasterMetrics(
        gateway=gateway,
        inbox=SimpleNamespace(received=0),  # type: ignore[arg-type]
        sessions=SimpleNamespace(heartbeats=0, boots={}),  # type: ignore[arg-type]
        clock=SimpleNamespace(now=lambda: NOW),
    )
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        if family.name in ("eva_jobs", "eva_tenant_jobs")
        for sample in family.samples
        if sample.value
    }


def tenant_job(state: State, name: str, tenant: str) -> JobId:
    return add_job(state, replace(spec(name, tasks=2, kind=JobKind.ARRAY), tenant=tenant))


def suspend(state: State, job: JobId, *, index: int | None = None, by: Any = BY_PLAN) -> None:
    if index is None:
        state.put_job(replace(state.jobs[job], suspension=BY_USER))
    else:
        run = list(state.members(job))[index]
        state.put_run(replace(run, suspension=by))


def test_what_users_and_plans_suspend_is_counted_by_tenant() -> None:
    state = State(CATALOG)
    mine, partly, whole = (
        tenant_job(state, name, tenant)
        for name, tenant in (("mine", "vision"), ("partly", "vision"), ("whole", "speech"))
    )
    add_job(state, spec("waits"))
    suspend(state, mine)
    suspend(state, partly, index=0)
    for index in (0, 1):
        suspend(state, whole, index=index)
    model = model_of(state)
    assert scraped(model) == {
        ("pending",): 2,
        ("suspended",): 2,
        ("vision", "pending"): 1,
        ("vision", "suspended"): 1,
        ("speech", "suspended"): 1,
        ("default", "pending"): 1,
    }
    told = tenants.response(model, TenantRules({"vision": ("ann",), "speech": ()}), NOW)
    assert {it.name: dict(it.jobs_by_state) for it in told.tenants} == {
        "vision": {"pending": 1, "suspended": 1},
        "speech": {"suspended": 1},
        "default": {"pending": 1},
    }
    cluster = views.cluster(model, NOW, (), name="lab", policy="eva", version="1")
    assert dict(cluster.jobs_by_state) == {"pending": 2, "suspended": 2}


def test_counts_follow_the_state_that_users_see_through_a_restart() -> None:
    state = State(CATALOG)
    jobs = [tenant_job(state, f"job{number}", "vision") for number in range(3)]
    suspend(state, jobs[0])
    state.put_job(state.jobs[jobs[1]].to(JobState.RUNNING, NOW))
    suspend(state, jobs[1])  # its tasks still stop
    for index in (0, 1):
        suspend(state, jobs[2], index=index)
    journal = MemoryJournal()
    journal.commit(state.take_changes())
    for it in (state, State.restored(CATALOG, journal.load())):
        assert it.totals.suspended == {"vision": 2}
    first, second = state.members(jobs[2])
    state.put_run(first.to(RunState.CANCELLED, NOW))
    assert state.totals.suspended == {"vision": 2}, "the one that is left is suspended"
    suspend(state, jobs[2], index=1, by=None)
    assert state.totals.suspended == {"vision": 1}
    state.put_job(replace(state.jobs[jobs[0]], suspension=None))
    assert state.totals.suspended == {}
    suspend(state, jobs[0])
    state.put_job(state.jobs[jobs[0]].to(JobState.ENDING, NOW))
    assert state.totals.suspended == {}
    assert second.suspension is not None
