"""State and plans as messages; errors as statuses."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.shown import costs
from eva_master.adapters.rpc.workers.messages import reports
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, Suspend
from eva_master.model.progress import Progress
from eva_wire._proto import worker_pb2 as wpb
from eva_wire.rpc.errors import DETAIL_KEY, BadRequest, detail_of, error_of, status_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import (
    CapacityUnavailable,
    CloudError,
    DuplicateName,
    EvaError,
    InvalidJob,
    InvalidKey,
    NotAuthorised,
    NotFound,
    Problem,
    Unplaceable,
    Unreachable,
)
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import InstanceState, RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, LARGE, SMALL, add_instance, add_job, spec
from tests.fakes.snapshots import previewed

HOUR = 3_600_000


@pytest.fixture
def state() -> State:
    return State(CATALOG)


def run_on(state: State, job: JobId, instance: InstanceId, at: int = 1000) -> RunId:
    """The job's first task run runs on an instance."""
    run = next(state.members(job)).to(RunState.STARTING, Millis(at))
    run = run.to(RunState.RUNNING, Millis(at))
    state.put_run(replace(run, attempt=1, instance=instance, target=instance))
    return run.id


def test_a_job_shows_its_tasks_their_speed_and_its_debt(state: State) -> None:
    place, job = add_instance(state), add_job(state, spec("resnet", tasks=2))
    ledger.open_account(state, state.instances[place])
    run = run_on(state, job, place)
    progress = Progress(steps=50, total_steps=100, metrics=(("loss", 0.5),), rate=1.5)
    state.put_run(replace(state.runs[run], progress=progress))
    model, now = model_of(state), Millis(950 + HOUR)
    shown = views.job(model, model.record(job, now), now)
    running, waiting = shown.tasks
    assert (running.state, waiting.state) == ("running", "waiting")
    assert (running.steps, running.total_steps, running.rate) == (50, 100, 1.5)
    assert running.normalised == pytest.approx(0.75)
    assert dict(running.metrics) == {"loss": 0.5}
    assert shown.cost_micro_usd == SMALL.price
    assert not shown.HasField("exit_code")
    assert (shown.started_ms, shown.finished_ms) == (0, 0)


def test_a_job_and_its_tasks_show_when_they_will_end(state: State) -> None:
    place = add_instance(state)
    job = add_job(state, replace(spec("resnet", tasks=2), kind=JobKind.ARRAY, duration_ms=2 * HOUR))
    run_on(state, job, place, at=1_000)
    model, now = model_of(state), Millis(1_000 + HOUR)
    shown = views.job(model, model.record(job, now), now)
    running, waiting = shown.tasks
    assert (running.remaining_ms, running.eta_ms) == (HOUR, 1_000 + 2 * HOUR)
    assert (waiting.remaining_ms, waiting.HasField("eta_ms")) == (2 * HOUR, False)
    # Nobody knows when the second one will begin.
    assert (shown.remaining_ms, shown.HasField("eta_ms")) == (2 * HOUR, False)
    (second,) = [run.id for run in state.members(job) if run.state == "waiting"]
    state.put_run(state.runs[second].to(RunState.CANCELLED, Millis(5)))
    model, now = model_of(state), Millis(1_000 + HOUR)
    shown = views.job(model, model.record(job, now), now)
    assert (shown.remaining_ms, shown.eta_ms) == (HOUR, 1_000 + 2 * HOUR)


def test_a_job_that_says_nothing_of_its_length_has_no_eta(state: State) -> None:
    job = add_job(state, spec("resnet"))
    run_on(state, job, add_instance(state))
    model, now = model_of(state), Millis(HOUR)
    shown = views.job(model, model.record(job, now), now)
    assert not any(shown.HasField(name) for name in ("remaining_ms", "eta_ms"))
    assert not any(shown.tasks[0].HasField(name) for name in ("remaining_ms", "eta_ms"))


def test_a_task_that_nothing_can_be_bought_for_says_when_that_is_tried_again(state: State) -> None:
    job = add_job(state, spec("resnet"))
    (run,) = state.members(job)
    state.put_run(replace(run, waiting_for="out of stock at present"))
    ids = [offering.id for offering in CATALOG]
    state.set_unavailable(ids[:1], Millis(90_000), "no capacity")
    state.set_unavailable(ids[1:], Millis(150_000), "no capacity")

    def told(now: int) -> str:
        model = model_of(state)
        return views.job(model, model.record(job, Millis(now)), Millis(now)).tasks[0].waiting_for

    assert told(1_000) == "out of stock at present; tried again at 00:01:30 UTC"
    assert told(90_000) == "out of stock at present"
    # One that has a place to come already waits for that.
    place = add_instance(state)
    state.put_run(replace(state.runs[run.id], target=place))
    assert told(1_000) == "out of stock at present"


def test_gone_instances_may_be_listed_and_cost_nothing_any_more(state: State) -> None:
    add_instance(state, "i-1")
    gone = add_instance(state, "i-2")
    record = state.instances[gone].to(InstanceState.GONE, Millis(2000))
    state.put_instance(replace(record, gone_ms=Millis(2000)))

    model = model_of(state)
    told = {"name": "c", "policy": "p", "version": "v"}
    cluster = views.cluster(model, Millis(3000), model.instances.values(), **told)
    assert [instance.id for instance in cluster.instances] == ["i-1", "i-2"]
    assert list(model.live) == ["i-1"]
    assert cluster.price_micro_usd_per_hour == SMALL.price


def test_the_bill_has_exact_milliseconds_and_rounds_only_the_shown_amounts(state: State) -> None:
    place = add_instance(state)
    ledger.open_account(state, state.instances[place])
    record = state.instances[place].to(InstanceState.GONE, Millis(1000))
    state.put_instance(replace(record, gone_ms=Millis(950 + 1_234_567)))
    ledger.close_account(state, state.instances[place])
    model = model_of(state)
    bill = costs.bill(model, Millis(10 * HOUR))
    record = model.billed(place, Millis(10 * HOUR))
    assert record.account is not None
    cost = costs.instance_cost(record.instance, record.account)
    assert cost.closed
    assert cost.billed_ms == 1_234_567
    assert bill.cost_micro_usd == round(cost.billed_ms * SMALL.price / HOUR)
    assert bill.idle_micro_usd == bill.cost_micro_usd


def preview(state: State, plan: Plan, *, tasks: int = 1) -> views.pb.PlanResponse:
    job = spec("new", tasks=tasks, kind=JobKind.ARRAY)
    preview = previewed(state, job, Millis(5000), replace(Settings(), price_limit_ppm=None))
    entries = tuple(
        replace(it, run=RunId(it.run.replace("new/", f"{preview.job}/"))) for it in plan.entries
    )
    return views.plan(preview.foreseen(replace(plan, entries=entries)), 111)


def test_a_preview_counts_moves_of_others_and_names_the_company(state: State) -> None:
    small, large = add_instance(state, "i-1", SMALL), add_instance(state, "i-2", LARGE)
    moving = run_on(state, add_job(state, spec("moving")), small)
    staying = run_on(state, add_job(state, spec("staying")), large)
    shown = preview(
        state,
        Plan(entries=(Assign(moving, large), Assign(RunId("new/0"), large))),
    )
    (placement,) = shown.placements
    assert (placement.instance, placement.instance_type) == ("i-2", "c7i.xlarge")
    assert list(placement.beside) == sorted([moving, staying])
    assert shown.moves == 1
    assert shown.price_before_micro_usd_per_hour == SMALL.price + LARGE.price
    assert shown.price_after_micro_usd_per_hour == LARGE.price
    assert shown.alone_micro_usd_per_hour == 111


def test_a_preview_tells_why_a_task_would_wait(state: State) -> None:
    resident = run_on(state, add_job(state, spec("old")), add_instance(state))
    entries = (Hold(RunId("new/0"), "no room"), Suspend(resident, "less urgent"))
    shown = preview(state, Plan(entries=entries))
    assert shown.placements[0].waiting_for == "no room"
    assert shown.placements[0].instance_type == ""
    # A suspended task run goes nowhere, and frees its instance.
    assert (shown.moves, shown.price_after_micro_usd_per_hour) == (0, 0)


def test_a_preview_has_the_estimate_of_a_task(state: State) -> None:
    assert not preview(state, Plan()).HasField("estimate")
    job = replace(spec("new", kind=JobKind.ARRAY), duration_ms=60_000)
    foreseen = previewed(state, job, Millis(5000), Settings()).foreseen(Plan())
    known = views.plan(foreseen, 111).estimate
    assert (known.mean_ms, known.source) == (60_000, "stated")


def test_placements_are_numbered_by_task_beyond_ten(state: State) -> None:
    entries = tuple(Assign(RunId(f"new/{index}"), index) for index in range(12))
    launches = tuple(NewInstance(index, LARGE if index == 2 else SMALL) for index in range(12))
    shown = preview(state, Plan(launches, entries), tasks=12)
    types = {placement.task: placement.instance_type for placement in shown.placements}
    assert [task for task, kind in types.items() if kind == "c7i.xlarge"] == [2]
    assert list(types) == list(range(12))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidJob("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (DuplicateName("x"), grpc.StatusCode.ALREADY_EXISTS),
        (Unplaceable("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (NotFound("x"), grpc.StatusCode.NOT_FOUND),
        (NotAuthorised("x"), grpc.StatusCode.PERMISSION_DENIED),
        (InvalidKey("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (BadRequest("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (CapacityUnavailable("x"), grpc.StatusCode.UNAVAILABLE),
        (EvaError("x"), grpc.StatusCode.INTERNAL),
    ],
)
def test_errors_survive_the_wire(error: EvaError, status: grpc.StatusCode) -> None:
    assert status_of(error) is status
    rich = type(error)("message", hint="hint", problems=(Problem("bad", "a.b", 3, 4, "good"),))
    metadata = ((DETAIL_KEY, detail_of(rich).SerializeToString()),)
    back = error_of(status, "message", metadata)
    assert type(back) is type(error)
    assert (back.message, back.hint, back.problems) == ("message", "hint", rich.problems)


def test_an_error_of_a_class_not_listed_has_its_parents_status() -> None:
    class Newer(CloudError):
        pass

    assert status_of(Newer("x")) is status_of(CloudError("x"))


def test_a_failure_without_detail_is_told_by_its_status() -> None:
    assert type(error_of(grpc.StatusCode.UNAVAILABLE, "gone", ())) is Unreachable
    assert type(error_of(grpc.StatusCode.UNKNOWN, "what", ())) is EvaError


def test_a_detail_of_an_unknown_kind_is_still_an_error() -> None:
    packed = views.pb.ErrorDetail(kind="FromTheFuture", message="m").SerializeToString()
    back = error_of(grpc.StatusCode.INTERNAL, "", ((DETAIL_KEY, packed),))
    assert (type(back), back.message) == (EvaError, "m")


def test_a_detail_always_fits_into_the_metadata() -> None:
    long = tuple(Problem("é" * 5000, "k" * 5000, hint="h" * 5000) for _ in range(500))
    detail = detail_of(InvalidJob("m" * 100_000, hint="h" * 100_000, problems=long))
    assert detail.ByteSize() < 5500
    assert "more problems" in detail.problems[-1].message


def test_an_exit_code_is_said_only_of_what_ran_and_exited() -> None:
    running = wpb.TaskReport(run_id="a/0", attempt=1, phase=wpb.PHASE_RUNNING)
    never = wpb.TaskReport(run_id="a/0", attempt=1, phase=wpb.PHASE_EXITED, never_started=True)
    exited = wpb.TaskReport(run_id="a/0", attempt=1, phase=wpb.PHASE_EXITED)
    assert [it.exit_code for it in reports([running, never, exited])] == [None, None, 0]
    with pytest.raises(BadRequest):
        reports([wpb.TaskReport(run_id="a/0", attempt=1)])
