"""Late tasks: who is late, where an extra run begins, and when one makes room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.planning.validate_plan import reconcile
from eva_master.control.state.store import State
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.plan import Assign, ExtraRun, NewInstance, Plan, Retire
from eva_master.model.planning.snapshot import (
    InstanceView,
    RemainingWork,
    RunTime,
    RunView,
    Snapshot,
)
from eva_master.model.planning.standing import Pool
from eva_master.model.resources import Resources
from eva_master.packing.extra_runs import stragglers
from eva_master.packing.plan_effect import PlanEffect
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec

C = Family("c")
BOX = Offering(InstanceType("c.2", C, Resources(0, 2_000, 8_192)), Price(100_000))
TASK = TaskSpec(Workload("w"), Program("true"), ((C, Resources(0, 1_000, 1_024)),))
LARGE = replace(TASK, demand=((C, Resources(0, 2_000, 1_024)),))
JOB, OTHER = JobId("a-1"), JobId("b-2")
I1, I2 = InstanceId("i1"), InstanceId("i2")
NOW = Millis(10_000_000)
MEAN = 100_000
STATED = Estimate.stated(MEAN)


def _ran(ms: int, expected: Estimate | None = STATED) -> RunTime:
    return RunTime(ms, NOW, expected=expected)


def _run(name: str, on: InstanceId | None, **changes: object) -> RunView:
    job = JobId(name.rpartition("/")[0])
    view = RunView(RunId(name), job, TASK, on, pinned=False, running=on is not None)
    return replace(view, **changes)  # type: ignore[arg-type]


def _snapshot(*runs: RunView, left: int | None = 1, **changes: object) -> Snapshot:
    jobs = tuple(
        job_view(
            name=job,
            kind=JobKind.ARRAY,
            runs=tuple(run.id for run in runs if run.job == job),
            submitted_ms=Millis(0),
            priority=0,
            checkpoint_ms=0,
            launch_ms=20_000,
            replicas_left=left if job == JOB else None,
        )
        for job in sorted({run.job for run in runs})
    )
    instances = tuple(
        InstanceView(name, BOX, tuple(it.id for it in runs if it.instance == name), ready=True)
        for name in (I1, I2)
    )
    snapshot = Snapshot(NOW, (BOX,), jobs, tuple(sorted(runs, key=lambda it: it.id)), instances)
    return replace(snapshot, **changes)  # type: ignore[arg-type]


LATE = _run("a-1/0", I1, ran=_ran(2 * MEAN))
BUSY = _run("b-2/0", I2)


def _added(snapshot: Snapshot, plan: Plan | None = None) -> tuple[object, ...]:
    before = plan or Plan()
    after = stragglers.completed(PlanEffect(snapshot, before)).plan
    assert after.entries[: len(before.entries)] == before.entries
    return after.entries[len(before.entries) :]


def test_a_late_task_gets_an_extra_run_beside_others_where_there_is_room() -> None:
    (entry,) = _added(_snapshot(LATE, BUSY))
    assert isinstance(entry, ExtraRun)
    assert (entry.run, entry.on) == ("a-1/0", I2)
    assert entry.reason == "a-1/0 has run for 3 min 20 s where 1 min 40 s were expected"


def test_a_plan_of_jobs_that_ask_for_nothing_stays_the_same_value() -> None:
    effect = PlanEffect(_snapshot(LATE, BUSY, left=None), Plan())
    assert stragglers.completed(effect) is effect


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ran": _ran(2 * MEAN - 1)}, "it is not late yet"),
        ({"ran": None}, "it was given one before"),
        ({"ran": _ran(9 * MEAN, None)}, "nothing is known of such tasks"),
        ({"pinned": True}, "it is between places"),
        ({"remaining": RemainingWork(37_500)}, "it ends sooner than a new run would"),
    ],
)
def test_who_is_not_late_gets_none(changes: dict[str, object], why: str) -> None:
    assert not _added(_snapshot(replace(LATE, **changes), BUSY)), why  # type: ignore[arg-type]


def test_a_task_whose_program_says_that_much_is_left_gets_one() -> None:
    # Of 100 s of work it has done 62 in 200 s: the rest takes 123 s, a new run 100 and its start.
    for left in (37_600, 99_999, MEAN, 2 * MEAN):
        slow = replace(LATE, remaining=RemainingWork(left))
        assert len(_added(_snapshot(slow, BUSY))) == 1


def test_an_estimate_has_to_be_exceeded_by_half_and_by_what_is_usual() -> None:
    # Spread so widely that one task in seven takes twice the mean: no task is late by then.
    wide = Estimate(MEAN, 11_000_000, 1_000_000, 30, Source.POSTERIOR, tasks=30)
    narrow = replace(wide, scale=10_000)
    for expected, ran, late in ((wide, 2, False), (narrow, 2, True), (wide, 9, True)):
        run = replace(LATE, ran=_ran(ran * MEAN, expected))
        assert bool(_added(_snapshot(run, BUSY))) == late, (expected, ran)
    assert stragglers.due_ms(narrow) == 3 * MEAN // 2


def test_nothing_is_bought_or_kept_for_it_and_two_runs_never_share_an_instance() -> None:
    assert not _added(_snapshot(LATE)), "an empty instance goes"
    assert not _added(_snapshot(LATE, replace(BUSY, instance=I1))), "its own is none"
    assert not _added(_snapshot(LATE, replace(BUSY, task=LARGE))), "there is no room"
    booting = tuple(replace(it, ready=it.id == I1) for it in _snapshot(LATE, BUSY).instances)
    assert not _added(_snapshot(LATE, BUSY, instances=booting)), "it may never be there"


def test_an_instance_that_stands_in_a_pool_has_room_though_it_is_empty() -> None:
    plan = Plan(pools=(Pool("short", (I2,), "room for short tasks"),))
    (entry,) = _added(_snapshot(LATE), plan)
    assert isinstance(entry, ExtraRun)
    assert entry.on == I2


def test_the_plan_comes_first_and_who_waits_too() -> None:
    waiting = _run("b-2/1", None)
    assert not _added(_snapshot(LATE, BUSY, waiting)), "who waits would fit there"
    assert not _added(_snapshot(LATE, BUSY, waiting), Plan((), (Assign(waiting.id, I2),)))
    large = replace(waiting, task=LARGE)
    assert len(_added(_snapshot(LATE, BUSY, large))) == 1, "who waits does not fit there"


def test_the_most_overdue_go_first_and_no_more_than_may() -> None:
    later = _run("a-1/1", I1, ran=_ran(3 * MEAN))
    (entry,) = _added(_snapshot(LATE, later, BUSY))
    assert isinstance(entry, ExtraRun)
    assert entry.run == "a-1/1"
    assert not _added(_snapshot(LATE, later, BUSY, left=0))


EXTRA = _run("a-1/0+1", I2, replica=1, pinned=True)
OWN = replace(LATE, ran=None, pinned=True)


def test_an_extra_run_makes_room_for_who_fits_with_its_room_alone() -> None:
    waiting = _run("b-2/1", None)
    assert not _added(_snapshot(OWN, EXTRA, waiting)), "there is room beside it"
    (entry,) = _added(_snapshot(OWN, EXTRA, BUSY, waiting))
    assert entry == Retire(EXTRA.id, "it makes room for b-2/1, which waits")
    two = (waiting, _run("b-2/2", None))
    assert len(_added(_snapshot(OWN, EXTRA, BUSY, *two))) == 1


def test_an_extra_run_that_is_all_that_its_task_has_stays() -> None:
    assert not _added(_snapshot(EXTRA, BUSY, _run("b-2/1", None)))


@pytest.mark.parametrize("given_up", [I1, I2])
def test_an_extra_run_ends_if_either_instance_is_given_up(given_up: InstanceId) -> None:
    runs = [replace(it, instance=None) if it.instance == given_up else it for it in (OWN, EXTRA)]
    snapshot = _snapshot(*runs)
    left = tuple(it for it in snapshot.instances if it.id != given_up)
    (entry,) = _added(replace(snapshot, instances=left))
    assert isinstance(entry, Retire)
    assert entry.run == EXTRA.id


def test_a_policy_gives_a_task_one_extra_run_and_no_instance_is_launched_for_it() -> None:
    now = _snapshot(LATE, BUSY, left=5)
    new = NewInstance(0, BOX)
    twice = Plan((), (ExtraRun(LATE.id, I2, "one"), ExtraRun(LATE.id, I2, "two")))
    assert reconcile(now, twice).extras == (ExtraRun(LATE.id, I2, "one"),)
    bought = reconcile(now, Plan((new,), (ExtraRun(LATE.id, 0, "faster"),)))
    assert (bought.launches, bought.extras, bought.dropped) == ((), (), (LATE.id,))
    waiting = _run("b-2/1", None)
    shared = (Assign(waiting.id, 0), ExtraRun(LATE.id, 0, "beside it"))
    decision = reconcile(_snapshot(LATE, BUSY, waiting), Plan((new,), shared))
    assert (decision.launches, decision.extras) == ((new,), shared[1:])


def test_an_extra_run_of_one_job_says_nothing_of_another_job() -> None:
    state = State(CATALOG)
    late, other = (add_job(state, spec(name, tasks=2, kind=JobKind.ARRAY)) for name in "ab")
    place = add_instance(state)
    own = next(state.members(late))
    state.put_run(replace(own, replicas=1))
    state.put_run(replace(own, id=RunId(f"{own.id}+1"), target=place))
    assert (state.tasks[late].unplaced, state.tasks[other].unplaced) == (1, 2)
    waiting = next(state.members(other))
    state.put_run(replace(waiting, replicas=1))
    assert state.tasks[other].unplaced == 2
    assert [len(state.tasks[job].doubled.extras) for job in (late, other)] == [1, 0]
