"""A plan is checked against the present, not against the snapshot it was made from."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.planning.validate_plan import reconcile
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, Suspend
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.testing.job_views import changed, job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, LARGE, MEDIUM, SMALL, task

BOX, TUB = InstanceId("box"), InstanceId("tub")


def _snapshot(
    *runs: tuple[str, int, InstanceId | None],
    instances: dict[InstanceId, object] | None = None,
    pinned: tuple[str, ...] = (),
) -> Snapshot:
    """Task runs ``JOB/INDEX`` with their vCPUs and place; jobs are gangs."""
    views = tuple(
        RunView(RunId(name), JobId(name.split("/")[0]), task(n), at, name in pinned, at is not None)
        for name, n, at in sorted(runs)
    )
    jobs = sorted({view.job for view in views})
    boxes = instances if instances is not None else {BOX: MEDIUM, TUB: LARGE}
    return Snapshot(
        Millis(0),
        CATALOG,
        tuple(
            job_view(j, JobKind.GANG, tuple(v.id for v in views if v.job == j), Millis(0), 0)
            for j in jobs
        ),
        views,
        tuple(
            InstanceView(i, o, tuple(v.id for v in views if v.instance == i), ready=True)  # type: ignore[arg-type]
            for i, o in boxes.items()
        ),
    )


def _place(**where: InstanceId | int) -> tuple[Assign, ...]:
    return tuple(Assign(RunId(name.replace("_", "/")), on) for name, on in where.items())


def test_a_plan_that_still_holds_is_kept_whole() -> None:
    plan = Plan((NewInstance(7, SMALL),), _place(a_0=BOX, b_0=7))
    decision = reconcile(_snapshot(("a/0", 2, None), ("b/0", 1, None)), plan)
    assert decision.launches == plan.launches
    assert dict(decision.places) == {"a/0": BOX, "b/0": 7}
    assert decision.dropped == ()


def test_a_place_that_a_copy_has_already_is_no_change() -> None:
    decision = reconcile(_snapshot(("a/0", 2, BOX)), Plan((), _place(a_0=BOX)))
    assert (decision.places, decision.dropped) == ((), ())


def test_an_instance_that_is_gone_takes_nobody() -> None:
    decision = reconcile(
        _snapshot(("a/0", 2, None), instances={TUB: LARGE}), Plan((), _place(a_0=BOX))
    )
    assert (decision.places, decision.dropped) == ((), ("a/0",))


def test_jobs_that_ended_are_forgotten_and_their_instances_not_launched() -> None:
    plan = Plan((NewInstance(0, SMALL),), _place(gone_0=0))
    decision = reconcile(_snapshot(("a/0", 2, BOX)), plan)
    assert (decision.launches, decision.places) == ((), ())


def test_what_arrived_in_the_meantime_keeps_its_room() -> None:
    # The plan was made when the box was empty; by now c holds two of its four vCPUs.
    present = _snapshot(("a/0", 2, None), ("b/0", 2, None), ("c/0", 2, BOX))
    decision = reconcile(present, Plan((), _place(a_0=BOX, b_0=BOX)))
    assert dict(decision.places) == {"a/0": BOX}
    assert decision.dropped == ("b/0",)


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    present = _snapshot(("g/0", 2, None), ("g/1", 2, None), instances={TUB: LARGE})
    decision = reconcile(present, Plan((), _place(g_0=TUB, g_1=BOX)))
    assert (decision.places, set(decision.dropped)) == ((), {"g/0", "g/1"})
    partly = reconcile(present, Plan((), _place(g_0=TUB)))
    assert partly.places == ()


def test_a_member_that_stays_does_not_need_an_entry() -> None:
    present = _snapshot(("g/0", 2, BOX), ("g/1", 2, None))
    decision = reconcile(present, Plan((), _place(g_1=TUB)))
    assert dict(decision.places) == {"g/1": TUB}


def test_a_copy_in_transition_is_not_moved() -> None:
    decision = reconcile(_snapshot(("a/0", 2, BOX), pinned=("a/0",)), Plan((), _place(a_0=TUB)))
    assert (decision.places, decision.dropped) == ((), ("a/0",))
    plan = Plan((), (Suspend(RunId("a/0"), "why"),))
    assert reconcile(_snapshot(("a/0", 2, BOX), pinned=("a/0",)), plan).suspends == ()
    assert reconcile(_snapshot(("a/0", 2, BOX)), plan).suspends == plan.entries


def _suspend(*runs: str, job: str | None = None) -> tuple[Suspend, ...]:
    return tuple(Suspend(RunId(it), "why", job and JobId(job)) for it in runs)  # type: ignore[arg-type]


def test_the_room_of_one_that_is_suspended_is_given_away_in_the_same_round() -> None:
    present = _snapshot(("a/0", 4, BOX), ("b/0", 4, None))
    plan = Plan((), (*_suspend("a/0"), *_place(b_0=BOX)))
    decision = reconcile(present, plan)
    assert (decision.suspends, decision.dropped) == (_suspend("a/0"), ())
    assert dict(decision.places) == {"b/0": BOX}


def test_who_cannot_be_suspended_keeps_its_room() -> None:
    present = _snapshot(("a/0", 4, BOX), ("b/0", 4, None), pinned=("a/0",))
    decision = reconcile(present, Plan((), (*_suspend("a/0"), *_place(b_0=BOX))))
    assert (decision.suspends, decision.places, decision.dropped) == ((), (), ("b/0",))


def test_nobody_is_suspended_for_others_who_do_not_come() -> None:
    # b has ended since; c, which would come too, is on its way elsewhere.
    present = _snapshot(("a/0", 4, BOX), ("c/0", 4, TUB), pinned=("c/0",))
    plan = Plan((), (*_suspend("a/0"), *_place(b_0=BOX, c_0=BOX)))
    decision = reconcile(present, plan)
    assert (decision.suspends, decision.places) == ((), ())
    assert set(decision.dropped) == {"a/0", "b/0", "c/0"}
    # Without anybody to come it is the policy's wish.
    assert reconcile(present, Plan((), _suspend("a/0"))).suspends == _suspend("a/0")


def test_nobody_is_suspended_for_a_job_that_does_not_come() -> None:
    present = _snapshot(("a/0", 2, BOX), ("b/0", 4, None), ("c/0", 2, None))
    plan = Plan((), (*_suspend("a/0", job="b"), *_place(c_0=BOX)))
    assert reconcile(present, plan).suspends == ()
    plan = Plan((), (*_suspend("a/0", job="b"), *_place(b_0=BOX)))
    assert reconcile(present, plan).suspends == _suspend("a/0", job="b")


def test_who_counted_on_the_room_of_one_who_stays_gives_way() -> None:
    present = _snapshot(("a/0", 4, BOX), ("b/0", 4, None), ("c/0", 4, None))
    plan = Plan((), (*_suspend("a/0", job="b"), *_place(c_0=BOX)))
    decision = reconcile(present, plan)
    assert (decision.suspends, decision.places) == ((), ())
    assert set(decision.dropped) == {"a/0", "c/0"}


def test_a_gang_is_suspended_whole_or_not_at_all() -> None:
    present = _snapshot(("g/0", 4, BOX), ("g/1", 4, TUB), ("b/0", 4, None))
    decision = reconcile(present, Plan((), (*_suspend("g/0"), *_place(b_0=BOX))))
    assert (decision.suspends, decision.places) == ((), ())
    both = _suspend("g/0", "g/1")
    decision = reconcile(present, Plan((), (*both, *_place(b_0=BOX))))
    assert (decision.suspends, dict(decision.places)) == (both, {"b/0": BOX})


def test_copies_may_change_places_though_both_are_full() -> None:
    present = _snapshot(("a/0", 4, BOX), ("b/0", 4, TUB), instances={BOX: MEDIUM, TUB: MEDIUM})
    decision = reconcile(present, Plan((), _place(a_0=TUB, b_0=BOX)))
    assert dict(decision.places) == {"a/0": TUB, "b/0": BOX}


def test_one_that_cannot_leave_takes_those_along_that_counted_on_its_room() -> None:
    # b was to go to an instance that is gone; so a cannot have b's room.
    present = _snapshot(("a/0", 4, BOX), ("b/0", 4, TUB), instances={BOX: MEDIUM, TUB: MEDIUM})
    decision = reconcile(present, Plan((), _place(a_0=TUB, b_0=InstanceId("lost"))))
    assert (decision.places, set(decision.dropped)) == ((), {"a/0", "b/0"})


def test_limits_and_stock_are_those_of_now() -> None:
    limited = replace(SMALL, limit=1)
    sold_out = replace(MEDIUM, unavailable_until=Millis(1))
    present = replace(
        _snapshot(("a/0", 2, None), ("b/0", 2, None), ("c/0", 2, None), instances={}),
        catalog=(limited, sold_out, LARGE),
    )
    launches = (NewInstance(0, SMALL), NewInstance(1, SMALL), NewInstance(2, MEDIUM))
    decision = reconcile(present, Plan(launches, _place(a_0=0, b_0=1, c_0=2)))
    assert dict(decision.places) == {"a/0": 0}
    assert [launch.key for launch in decision.launches] == [0]


def test_a_task_is_never_put_on_a_family_that_it_cannot_run_on() -> None:
    elsewhere = replace(LARGE, type=replace(LARGE.type, family="p"))  # type: ignore[arg-type]
    present = _snapshot(("a/0", 2, None), instances={BOX: elsewhere})
    assert reconcile(present, Plan((), _place(a_0=BOX))).places == ()


def test_reasons_for_waiting_are_passed_on() -> None:
    present = _snapshot(("a/0", 2, None))
    plan = Plan((), (Hold(RunId("a/0"), "no room"), Hold(RunId("x/0"), "unknown by now")))
    assert reconcile(present, plan).holds == (("a/0", "no room"),)


def test_of_pilots_those_are_kept_that_there_are() -> None:
    present = _snapshot(("a/0", 1, None), ("b/0", 1, None))
    first, gang = present.jobs
    array = changed(first, kind=JobKind.ARRAY, size=5)
    present = replace(present, jobs=(array, replace(gang, runs=(*gang.runs, RunId("b/1")))))
    named = ((JobId("a"), (4, 5, -1, 0)), (JobId("b"), (0,)), (JobId("gone"), (0,)))
    assert reconcile(present, Plan(pilots=named)).pilots == ((JobId("a"), (4, 0)),)
