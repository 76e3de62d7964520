"""What tenants owe adds up, whatever left memory and whatever the settings became."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.rpc.server.shown import tenants
from eva_master.control.measure import ledger
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.parts.tenant_tally import TenantTally
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.accounting.totals import Totals
from eva_master.model.changes import Documents, InstanceAccount, JobAccount
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec

HOUR_MS = 3_600_000
RULES = TenantRules({"vision": ("ana",), "unused": ("zoe",)})


def submitted(state: State, name: str, tenant: str) -> JobId:
    return add_job(state, replace(spec(name), tenant=tenant))


def run_on(state: State, job: JobId, place: InstanceId) -> None:
    run = next(state.members(job)).to(RunState.STARTING, Millis(1000))
    run = run.to(RunState.RUNNING, Millis(1000))
    state.put_run(replace(run, attempt=1, instance=place, target=place))


def cluster() -> State:
    """Two instances: one shared by a job of `vision` and two of `default`, one that is idle."""
    state = State(CATALOG)
    shared, idle = add_instance(state, "i-1"), add_instance(state, "i-2")
    for number, tenant in enumerate(("vision", "default", "former")):
        run_on(state, submitted(state, f"job{number}", tenant), shared)
    submitted(state, "waits", "vision")
    for place in (shared, idle):
        ledger.open_account(state, state.instances[place])
    return state


def restarted(state: State, journal: MemoryJournal, since: int | None = None) -> State:
    journal.commit(state.take_changes())
    return State.restored(CATALOG, journal.load(None if since is None else Millis(since)))


def test_the_parts_are_the_whole_to_the_last_micro_dollar() -> None:
    state = cluster()
    model = model_of(state)
    for now in (950, 1_001, 4_567, 1_234_567, 7_654_321):
        answer = tenants.response(model, RULES, Millis(now))
        parts = sum(one.cost_micro_usd for one in answer.tenants)
        assert parts + answer.bill.idle_micro_usd == answer.bill.cost_micro_usd
        alone = sum(one.no_packing_micro_usd for one in answer.tenants)
        assert alone == answer.bill.no_packing_micro_usd
        # Both cost the same: half of it is idle, a third of the rest is each tenant's.
        price = state.instances[InstanceId("i-1")].offering.price
        whole = 2 * price * (now - 950) / HOUR_MS
        assert abs(answer.bill.cost_micro_usd - whole) <= 1
        costs = {one.name: one.cost_micro_usd for one in answer.tenants}
        for tenant in ("vision", "default", "former"):
            assert abs(costs[tenant] - whole / 6) <= 2
        assert costs["unused"] == 0


def test_tenants_are_listed_as_the_settings_name_them() -> None:
    answer = tenants.response(model_of(cluster()), RULES, Millis(1_000))
    assert [(one.name, list(one.owners), one.former) for one in answer.tenants] == [
        ("vision", ["ana"], False),
        ("unused", ["zoe"], False),
        ("default", [], False),
        ("former", [], True),
    ]
    assert dict(answer.tenants[0].jobs_by_state) == {"pending": 2}
    assert dict(answer.tenants[1].jobs_by_state) == {}


def test_what_was_booked_stays_when_jobs_leave_memory_and_masters_die() -> None:
    state, journal = cluster(), MemoryJournal()
    for until in (400_000, 1_000_000):
        for place in state.live:
            ledger.book(state, place, Millis(until))
    booked = state.job_accounts[JobId("job0-1")]
    assert state.totals.tenants["vision"].charged == booked.charged
    assert state.totals.tenants["vision"].alone == booked.alone
    job = state.jobs[JobId("job0-1")]
    ended = job.to(JobState.RUNNING, Millis(1)).to(JobState.ENDING, Millis(2))
    state.put_job(ended.to(JobState.SUCCEEDED, Millis(3)))
    run = next(state.members(job.id)).to(RunState.SUCCEEDED, Millis(3))
    state.put_run(replace(run, instance=None, target=None))
    before = state.totals
    assert before.tenants["vision"].jobs == {JobState.PENDING: 1, JobState.SUCCEEDED: 1}
    assert restarted(state, journal).totals == before
    state.forget(Millis(10), 10)
    assert job.id not in state.jobs
    assert state.totals == before
    again = restarted(state, journal, since=10)
    assert job.id not in again.jobs
    assert again.totals == before
    again.put_job_account(JobAccount(JobId("waits-4"), charged=Exact(7)))
    journal.commit(again.take_changes())
    last = State.restored(CATALOG, journal.load()).totals.tenants
    assert last["vision"].charged == before.tenants["vision"].charged + 7
    assert last["default"] == before.tenants["default"]


def test_an_event_writes_the_tenants_that_it_touches() -> None:
    state = cluster()
    state.take_changes()
    state.put_job_account(JobAccount(JobId("job0-1"), charged=Exact(7)))
    written = state.take_changes().documents()
    assert [name for name in written if name.startswith("tenants/")] == ["tenants/vision"]


def test_what_was_before_there_were_tenants_is_the_default_one() -> None:
    journal = MemoryJournal()
    state = State(CATALOG)
    submitted(state, "old", "default")
    state.put_job_account(JobAccount(JobId("old-1"), Exact(60), Exact(90), 1))
    state.put_instance_account(
        InstanceAccount(add_instance(state), Millis(1), Exact(100), Exact(40))
    )
    before = state.totals
    written = state.take_changes()
    values = {k: v for k, v in written.values.items() if not k.startswith("tenants/")}
    journal.commit(replace(written, values=values))
    again = State.restored(CATALOG, journal.load(Millis(10**12)))
    assert again.totals == before
    submitted(again, "new", "vision")
    assert restarted(again, journal).totals == again.totals
    assert again.totals.tenants["default"] == before.tenants["default"]


def test_policies_see_whose_a_job_is() -> None:
    now = snapshot(cluster(), Millis(2_000), Settings())
    assert {view.id: (view.spec.owner, view.spec.tenant) for view in now.jobs} == {
        "job0-1": ("ada", "vision"),
        "job1-2": ("ada", "default"),
        "job2-3": ("ada", "former"),
        "waits-4": ("ada", "vision"),
    }


def test_a_charge_across_the_end_of_a_month_is_of_both() -> None:
    written, month_ms = Documents(), 31 * 24 * HOUR_MS
    tally = TenantTally(written)
    tally.account("vision", 70, 0, (Millis(0), Millis(HOUR_MS)))
    tally.account("vision", 100, 0, (Millis(month_ms - HOUR_MS), Millis(month_ms + 3 * HOUR_MS)))
    sums = tally.totals()["vision"]
    assert (sums.month_ms, sums.month_charged) == (month_ms, 75)
    make = written["tenants/vision"]
    assert callable(make)
    document = make()
    again = TenantTally(Documents())
    again.restore({"tenants/vision": document}, Totals())
    assert again.totals()["vision"] == sums
    again.restore({"tenants/vision": {"charged": "5", "alone": "6", "jobs": {}}}, Totals())
    assert again.totals()["vision"].month_charged == 0  # of a journal from before
