"""A gang's events cost the control loop as much in a large gang as in a small one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.calls import Calls
from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.measure.throughput import company
from eva_master.control.readside.gang_parts import parts_of
from eva_master.control.settings import Settings
from eva_master.control.state.records import placed
from eva_master.control.turn.turn import Turn
from eva_master.model.events import CancelRequested
from eva_master.model.job import ElasticGang, JobSpec
from eva_master.model.records import TaskRun
from eva_master.testing.snapshots import offer, task
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId

MEMBER = task(any=(0, 1, 1))
CATALOG = (
    offer("small", (0, 2, 8), 0.1, setup_s=10),
    offer("large", (0, 8, 32), 0.38, setup_s=20),
    offer("other", (0, 8, 32), 0.38, family="other", setup_s=20),
)


def world_under(policy: str, work_of: Callable[[RunId], Work] | None = None) -> SimulatedCluster:
    # Each neighbour takes some, so that members are slowed down where they have company.
    return SimulatedCluster(
        CATALOG,
        named_policy(policy)[0],
        settings=Settings(),
        work_of=work_of,
        truth=lambda _, others: 0.9 ** len(others),
    )


def apart(members: int) -> SimulatedCluster:
    """A gang of which each member has an instance."""
    world = world_under("no_packing")
    world.submit(JobSpec("g", "a", (MEMBER,) * members, duration_ms=60_000))
    return world


def measured(members: int) -> SimulatedCluster:
    """A gang of which all members report progress for some windows."""
    world = world_under("no_packing")
    world.submit(JobSpec("g", "a", (MEMBER,) * members, duration_ms=400_000))
    return world


def elastic(members: int) -> SimulatedCluster:
    """An elastic gang with all of its members, each on an instance."""
    world = world_under("no_packing")
    sizes = ElasticGang(least=members)
    world.submit(JobSpec("g", "a", (MEMBER,) * members, elastic=sizes, duration_ms=60_000))
    return world


def one_by_one(least: int | None, members: int) -> SimulatedCluster:
    """A gang of which members end one after the other."""
    world = world_under("no_packing", lambda run: Work(60_000 + 10 * int(run.split("/")[1])))
    spec = JobSpec("g", "a", (MEMBER,) * members, duration_ms=60_000)
    world.submit(spec if least is None else replace(spec, elastic=ElasticGang(least=members)))
    return world


def cancelled(members: int) -> SimulatedCluster:
    """A gang that its user cancels while all members run."""
    world = measured(members)
    order = CancelRequested("cancel", JobId("g-1"), "a")
    world.timeline.after(200_000, lambda: world.inbox.post(order))
    return world


LIVES = {
    "cancelled": cancelled,
    "apart": apart,
    "measured": measured,
    "elastic": elastic,
    "one by one": partial(one_by_one, None),
    "elastic, one by one": partial(one_by_one, 1),
}


def calls_of_a_member(life: Callable[[int], SimulatedCluster], members: int) -> float:
    """Calls of functions of the control loop in the life of a gang, per member."""
    world, calls = life(members), Calls(below="eva_master/control/")
    with calls.counting():
        world.run(lambda: world.state.counters.completions == 1, limit_ms=3_600_000)
    assert world.state.counters.completions == 1
    return calls.made / members


@pytest.mark.parametrize("life", LIVES)
def test_the_life_of_a_member_costs_the_same_in_a_large_gang(life: str) -> None:
    assert calls_of_a_member(LIVES[life], 400) < 1.3 * calls_of_a_member(LIVES[life], 200)


@pytest.mark.parametrize("cancelled", [False, True])
def test_members_that_come_to_one_instance_are_looked_at_once_each(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That each takes or leaves room there is no reason to look at all others again."""
    members, looks = 300, 0
    touch = Turn.touch_run

    def counted(turn: Turn, run: TaskRun) -> None:
        nonlocal looks
        looks += 1
        touch(turn, run)

    monkeypatch.setattr(Turn, "touch_run", counted)
    catalog = (offer("one", (0, 4_000, 4_000), 1.0, limit=1, setup_s=10),)
    world = SimulatedCluster(catalog, named_policy("eva")[0])
    world.submit(JobSpec("g", "a", (MEMBER,) * members, duration_ms=60_000))
    assert world.run(lambda: any(run.target for run in world.state.runs.values()))
    if cancelled:
        world.inbox.post(CancelRequested("c", JobId("g-1"), "a"))
    assert world.run(lambda: world.state.counters.completions == 1, limit_ms=600_000)
    assert looks <= 10 * members


@pytest.mark.parametrize("seed", range(6))
def test_groups_of_members_are_those_that_are_found_one_by_one(seed: int) -> None:
    drawn = random.Random(seed)
    world = world_under("eva")
    for number in range(8):
        kinds = [task(f"w{number % 3}", any=(0, 1, 1), other=(0, 2, 2)), task("x", any=(0, 2, 2))]
        tasks = tuple(drawn.choice(kinds) for _ in range(drawn.randint(1, 5)))
        kind = drawn.choice((JobKind.GANG, JobKind.GANG, JobKind.ARRAY))
        least = 1 if kind is JobKind.GANG and drawn.random() < 0.3 else None
        world.submit(
            JobSpec(
                f"j{number}",
                "a",
                tasks if least is None else (tasks[0],) * len(tasks),
                kind=kind,
                elastic=ElasticGang(least=least),
                duration_ms=drawn.randrange(20_000, 200_000),
            ),
            at=Millis(drawn.randrange(0, 200_000)),
        )
    seen = 0

    def compared() -> bool:
        nonlocal seen
        for job in world.state.active:
            known = world.state.gangs.parts(job, partial(company, world.state))
            if not world.state.jobs[job].spec.has_mates:
                assert not known.alike, "a task without mates needs no groups"
            else:
                members = placed(world.state, job)
                found = parts_of(world.state, members, partial(company, world.state))
                assert known.accompanied == found.accompanied
                assert set(known.keys) == set(found.keys)
                groups = [
                    Counter({(run.instance is None, id(world.state.task(run))): count})
                    for run, count in known.alike
                ]
                assert sum(groups, Counter()) == sum(
                    (
                        Counter({(False, id(world.state.task(run))): count})
                        for run, count in found.alike
                    ),
                    Counter(),
                )
                seen += known.accompanied
        return world.state.counters.completions == 8

    assert world.run(compared, limit_ms=3_600_000)
    assert seen, "some members had company"
