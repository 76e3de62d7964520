"""Seats for tasks that wait, members of pools last."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.parts.seating import (
    PoolSeating,
    SeatingPartition,
    SparedMember,
    UnitSeat,
    is_seen,
    members_of,
    waiting,
)
from eva_master.packing.room import room_left
from eva_master.packing.valuation.reservation_price import hosts
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, Workload, run_id
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, task

LATER = Millis(1_000_000)


def part(
    *cpus: int, catalog: tuple[Offering, ...], priority: int = 0, since: int = 0
) -> SeatingPartition:
    """A partition in which a gang of tasks of so many CPUs waits."""
    job = JobId("gang-1")
    runs = tuple(
        RunView(
            run_id(job, n),
            job,
            task(it),
            None,
            pinned=False,
            running=False,
            held=True,
            since_ms=Millis(since),
        )
        for n, it in enumerate(cpus)
    )
    names = tuple(run.id for run in runs)
    view = job_view(job, JobKind.GANG, names, Millis(since), priority, size=len(cpus))
    return SeatingPartition("", Snapshot(Millis(0), catalog, (view,), runs, ()))


def member(
    name: str, offering: Offering, of: str = "", guard: tuple[int, int] | None = None
) -> SparedMember:
    """A member of a pool of a partition."""
    view = InstanceView(InstanceId(name), offering, (), ready=True, pool="p", partition=of)
    return SparedMember(of, view, guard)


def seat(of: SeatingPartition, *members: SparedMember, **more: object) -> UnitSeat:
    """Outcome for the one unit that waits."""
    (unit,) = waiting(of)
    return PoolSeating([of], None, members, **more).seat(unit)  # type: ignore[arg-type]


def names(members: tuple[SparedMember, ...]) -> list[str]:
    """Their instances."""
    return [it.view.id for it in members]


def test_members_come_after_all_that_may_be_bought() -> None:
    of = part(4, 4, catalog=(replace(MEDIUM, limit=1),))
    found = seat(of, member("a", MEDIUM), member("b", MEDIUM))
    assert found.complete
    assert (len(found.bought), names(found.handed)) == (1, ["a"])


def test_a_gang_takes_none_if_they_are_too_few() -> None:
    of = part(4, 4, 4, catalog=(replace(MEDIUM, limit=0),))
    seating = PoolSeating([of], None, [member("a", MEDIUM), member("b", MEDIUM)])
    (unit,) = waiting(of)
    assert not seating.seat(unit).complete
    assert set(seating.members) == {"a", "b"}


def test_tasks_share_a_member() -> None:
    found = seat(part(2, 2, catalog=(replace(MEDIUM, limit=0),)), member("a", MEDIUM))
    assert (found.complete, names(found.handed)) == (True, ["a"])


@pytest.mark.parametrize(
    ("guard", "complete"), [((0, 4), False), ((0, 6), True), ((-1, 9), False), ((1, 0), True)]
)
def test_who_comes_first_in_the_pool_keeps_it(guard: tuple[int, int], complete: bool) -> None:
    of = part(4, catalog=(replace(MEDIUM, limit=0),), since=5)
    assert seat(of, member("a", MEDIUM, guard=guard)).complete is complete


def test_the_guard_is_the_first_that_would_fit() -> None:
    of = part(4, catalog=(MEDIUM,), priority=3, since=7)
    of = replace(of, lines={JobId("gang-1"): frozenset({"p"})})
    large = InstanceView(InstanceId("a"), MEDIUM, (), ready=True, pool="p")
    others = replace(large, offering=SMALL), replace(large, pool="q")
    guards = [member.guard for member in members_of(of, waiting(of), [large, *others])]
    assert guards == [(-3, 7), None, None]


def crowd(seed: int) -> SeatingPartition:
    """A partition in which tasks of three jobs wait, two of these in lines."""
    choose = random.Random(seed)
    jobs, runs = list[JobView](), list[RunView]()
    for number in range(3):
        job = JobId(f"job-{number}")
        own = [
            RunView(
                run_id(job, n),
                job,
                task(choose.choice((2, 4, 8))),
                None,
                pinned=False,
                running=False,
                held=choose.random() < 0.5,
                since_ms=Millis(choose.randint(0, 99)),
            )
            for n in range(6)
        ]
        kind, priority = choose.choice(tuple(JobKind)), choose.randint(0, 1)
        jobs.append(job_view(job, kind, [run.id for run in own], priority=priority))
        runs += own
    lines = {job.id: frozenset(choose.sample("pq", choose.randint(0, 2))) for job in jobs[1:]}
    return SeatingPartition("", Snapshot(Millis(0), (), tuple(jobs), tuple(runs), ()), lines)


@pytest.mark.parametrize("seed", range(30))
def test_each_guard_is_the_first_of_all_that_wait(seed: int) -> None:
    of = crowd(seed)
    views = [
        InstanceView(InstanceId(offering.id + pool), offering, (), ready=True, pool=pool)
        for offering in (SMALL, MEDIUM, LARGE)
        for pool in "pq"
    ]
    for member in members_of(of, waiting(of), views):
        ranks = (
            unit.rank
            for unit in waiting(of)
            if (unit.claims(member) or not is_seen(unit))
            and hosts(member.view.offering, unit.runs[0].task.demand)
        )
        assert member.guard == min(ranks, default=None)


def test_one_quota_is_one_for_all_types() -> None:
    refused = tuple(replace(it, unavailable_until=LATER) for it in (MEDIUM, LARGE))
    of = part(8, catalog=refused)
    elsewhere = member("a", MEDIUM, of="other")
    assert not seat(of, elsewhere).complete
    found = seat(of, elsewhere, refused=[{MEDIUM.id, LARGE.id}])
    assert (found.complete, names(found.released)) == (True, ["a"])
    assert found.bought == (refused[1],)


def test_money_is_freed_by_as_many_as_it_takes() -> None:
    of = replace(part(8, catalog=(LARGE,)), per_hour=LARGE.price - MEDIUM.price - 1)
    found = seat(of, member("a", MEDIUM), member("b", SMALL))
    assert (found.complete, names(found.released)) == (True, ["b", "a"])
    assert not seat(of, member("b", SMALL)).complete
    assert not seat(replace(of, may_buy=False), member("a", MEDIUM), member("b", SMALL)).complete


def test_a_task_takes_what_it_needs_on_each_family() -> None:
    capacity = Resources(0, 8_000, 16_384)
    needs = {Family("a"): Resources(0, 1_000, 2_048), Family("b"): Resources(0, 3_000, 1_024)}
    both = TaskSpec(Workload("w"), Program("true"), tuple(needs.items()))
    offerings = {
        InstanceId(family + str(number)): Offering(InstanceType(family, family, capacity), Price(1))
        for family in needs
        for number in range(2)
    }
    job, lone, doubled = JobId("j-1"), ("a0", "b0"), ("a1", "a1", "b1", "b1")
    runs = [
        RunView(run_id(job, n), job, both, InstanceId(name), pinned=False, running=True)
        for n, name in enumerate((*lone, *doubled))
    ]
    elsewhere = replace(runs[0], id=run_id(job, 9), instance=InstanceId("c"))
    rooms = room_left(offerings, [*runs, elsewhere])
    for family, need in needs.items():
        assert rooms[InstanceId(family + "0")] == capacity - need
        assert rooms[InstanceId(family + "1")] == capacity - need - need
