"""A launch of a plan is the empty instance of the same offering that the plan leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from eva_master.control.features.emptied import giving_way, leftovers
from eva_master.model.catalog import told_apart, with_disk
from eva_master.model.planning.plan import Assign, ExtraRun, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import InstanceView, RemainingWork, RunView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.jobs import LARGE, SMALL, task

E1, E2 = InstanceId("e1"), InstanceId("e2")


def empty(name: InstanceId, **more: object) -> InstanceView:
    return InstanceView(name, SMALL, (), ready=more.pop("ready", True), **more)  # type: ignore[arg-type]


def snapshot(*instances: InstanceView, priorities: tuple[int, ...] = (0, 0)) -> Snapshot:
    """A job of one waiting task for each priority: j0, j1, and so on."""
    names = [JobId(f"j{number}") for number in range(len(priorities))]
    jobs = tuple(
        job_view(name, JobKind.GANG, (RunId(f"{name}/0"),), Millis(0), priority)
        for name, priority in zip(names, priorities, strict=True)
    )
    runs = tuple(
        RunView(RunId(f"{name}/0"), name, task(2), None, pinned=False, running=False)
        for name in names
    )
    return Snapshot(Millis(0), (SMALL, LARGE), jobs, runs, instances)


def bought(count: int) -> Plan:
    """A plan that launches a small instance for each job."""
    return Plan(
        tuple(NewInstance(key, SMALL) for key in range(count)),
        tuple(Assign(RunId(f"j{key}/0"), key) for key in range(count)),
    )


def used(
    plan: Plan, seen: Snapshot, vacant: Callable[[InstanceId], bool]
) -> tuple[Plan, leftovers.Reused]:
    effect, reused = leftovers.used(PlanEffect(seen, plan), vacant)
    return effect.plan, reused


def give_way(
    before: Plan,
    after: Plan,
    seen: Snapshot,
    vacant: Callable[[InstanceId], bool],
    allows: Callable[[Unit, Collection[InstanceView]], bool],
) -> tuple[Plan, giving_way.GivenWay]:
    plans = PlanEffect(seen, before), PlanEffect(seen, after)
    effect, yielding = giving_way.give_way(*plans, vacant, allows)
    return effect.plan, yielding


def test_a_launch_is_the_empty_instance_of_its_offering() -> None:
    plan, reused = used(bought(2), snapshot(empty(E1)), lambda _: True)
    assert plan.launches == (NewInstance(1, SMALL),)
    assert plan.entries == (Assign(RunId("j0/0"), E1), Assign(RunId("j1/0"), 1))
    assert reused == {0: E1}


def test_the_most_urgent_gets_it() -> None:
    seen = snapshot(empty(E1), priorities=(0, 5))
    plan, _ = used(bought(2), seen, lambda _: True)
    assert plan.entries == (Assign(RunId("j0/0"), 0), Assign(RunId("j1/0"), E1))


def test_an_instance_that_is_ready_goes_before_one_that_boots() -> None:
    seen = snapshot(empty(E1, ready=False), empty(E2))
    plan, _ = used(bought(1), seen, lambda _: True)
    assert plan.entries == (Assign(RunId("j0/0"), E2),)


@pytest.mark.parametrize(
    "view",
    [
        replace(empty(E1), offering=LARGE),
        replace(empty(E1), residents=(RunId("x/0"),)),
        replace(empty(E1), pool="short"),
    ],
)
def test_what_is_of_another_offering_or_not_free_is_left_alone(view: InstanceView) -> None:
    plan = bought(2)
    assert used(plan, snapshot(view), lambda _: True) == (plan, {})


@pytest.mark.parametrize(("gib", "taken"), [(0, False), (49, False), (50, True), (80, True)])
def test_an_instance_with_too_small_a_disk_is_left_alone(gib: int, taken: bool) -> None:
    machine = replace(SMALL.type, sized_disk=True)
    sold = replace(SMALL, type=replace(machine, capacity=replace(machine.capacity, disk_mib=10**6)))
    seen = snapshot(replace(empty(E1), offering=told_apart(with_disk(sold, gib * 1_024))))
    need = replace(task(2).demand[0][1], disk_mib=50 * 1_024)
    wants = replace(task(2), demand=((SMALL.type.family, need),))
    seen = replace(seen, runs=tuple(replace(run, task=wants) for run in seen.runs))
    plan = replace(bought(1), launches=(NewInstance(0, sold),))
    _, reused = used(plan, seen, lambda _: True)
    assert reused == ({0: E1} if taken else {})


def test_what_is_kept_for_others_or_used_by_the_plan_is_left_alone() -> None:
    plan = bought(2)
    assert used(plan, snapshot(empty(E1)), lambda _: False) == (plan, {})
    plan = replace(bought(1), entries=(*bought(1).entries, Assign(RunId("j1/0"), E1)))
    assert used(plan, snapshot(empty(E1)), lambda _: True) == (plan, {})


def test_pools_lines_and_extra_runs_follow() -> None:
    pool = Pool("p", (0, 1), "stays", closed=(0,))
    line = Line(("p",), (JobId("j0"),), only=(0,))
    plan = Plan(
        (NewInstance(0, SMALL), NewInstance(1, SMALL)),
        (ExtraRun(RunId("j0/0"), 0, "late"),),
        pools=(pool,),
        lines=(line,),
    )
    plan, reused = used(plan, snapshot(empty(E1)), lambda _: True)
    assert reused == {0: E1}
    assert plan.entries == (ExtraRun(RunId("j0/0"), E1, "late"),)
    assert (plan.pools[0].members, plan.pools[0].closed) == ((E1, 1), (E1,))
    assert plan.lines[0].only == (E1,)


def cut(seen: Snapshot) -> tuple[Plan, Plan]:
    """A plan that gives j0 the empty instance and launches one for j1, and what limits leave."""
    one, two = (RunId(f"{job.id}/0") for job in seen.jobs)
    before = Plan((NewInstance(0, LARGE),), (Assign(one, E1), Assign(two, 0)))
    after = Plan((), (Assign(one, E1), Hold(two, "limits.instances")))
    return before, after


def _once_gone(_unit: Unit, gone: Collection[InstanceView]) -> bool:
    return bool(gone)


def test_an_empty_instance_gives_way_to_a_more_urgent_launch() -> None:
    seen = snapshot(empty(E1), priorities=(0, 1))
    before, after = cut(seen)
    plan, yielding = give_way(before, after, seen, lambda _: True, _once_gone)
    assert yielding == giving_way.GivenWay(frozenset({E1}), 1)
    assert [type(entry) for entry in plan.entries] == [Hold, Hold]


@pytest.mark.parametrize("priorities", [(0, 0), (2, 1)])
def test_it_does_not_to_one_that_is_not_more_urgent(priorities: tuple[int, int]) -> None:
    seen = snapshot(empty(E1), priorities=priorities)
    before, after = cut(seen)
    outcome = give_way(before, after, seen, lambda _: True, lambda *_: True)
    assert outcome == (after, giving_way.NONE)


def test_it_does_not_where_its_end_would_not_help() -> None:
    seen = snapshot(empty(E1), priorities=(0, 1))
    before, after = cut(seen)
    outcome = give_way(before, after, seen, lambda _: True, lambda *_: False)
    assert outcome == (after, giving_way.NONE)


def test_one_that_the_plan_leaves_goes_before_one_that_it_uses() -> None:
    seen = snapshot(empty(E1), empty(E2), priorities=(0, 1))
    before, after = cut(seen)
    plan, yielding = give_way(before, after, seen, lambda _: True, _once_gone)
    assert yielding.instances == {E2}
    assert plan == after


def test_a_more_urgent_task_gets_the_instance_that_would_go_if_it_fits() -> None:
    seen = snapshot(empty(E1), priorities=(0, 1))
    before, after = cut(seen)
    plan, yielding = give_way(before, after, seen, lambda _: True, lambda *_: True)
    assert yielding == giving_way.NONE
    urgent = RunId(f"{seen.jobs[1].id}/0")
    assert [it for it in plan.entries if isinstance(it, Assign)] == [Assign(urgent, E1)]


@pytest.mark.parametrize(
    ("left_s", "gets"), [(None, True), (30, True), (100, True), (300, False), (3_600, False)]
)
def test_a_task_has_what_would_go_for_it_unless_it_costs_more_there(
    left_s: int | None, gets: bool
) -> None:
    """A small one costs half as much per hour, after a boot that is paid for too."""
    dear = InstanceView(E1, LARGE, (), True)
    seen = snapshot(dear, priorities=(0,))
    (view,) = seen.runs
    left = None if left_s is None else RemainingWork(left_s * 1_000)
    seen = replace(seen, runs=(replace(view, remaining=left),))
    small = replace(SMALL, price=LARGE.price // 2)
    small = replace(small, type=replace(small.type, acquisition_ms=20_000, setup_ms=100_000))
    before = Plan((NewInstance(0, small),), (Assign(view.id, 0),))
    after = Plan((), (Hold(view.id, "limits.instances"),))
    plan, yielding = give_way(before, after, seen, lambda _: True, lambda *_: True)
    places = [entry for entry in plan.entries if isinstance(entry, Assign)]
    assert places == [Assign(view.id, E1)] * gets
    assert yielding.instances == (frozenset() if gets else {E1})
