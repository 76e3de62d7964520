"""Limits of a calendar month: jobs of owners stop at theirs, budgets stop purchases alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.settings import Limits, Settings
from eva_master.model.events import SuspendRequested
from eva_master.model.feed import FeedKind
from eva_master.model.fleet.partitions import Budget, Partitions
from eva_master.model.job import JobSpec, Restarts
from eva_master.model.planning.suspension import Suspender
from eva_master.model.tenants.quotas import Tenancy
from eva_wire.values.errors import CostCapReached
from eva_wire.values.ids import MILLION, JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.jobs import SMALL, job
from tests.simulation.capping.test_max_cost import (
    GRACE_MS,
    HOUR_MS,
    MINUTE_MS,
    RESERVE_MS,
    SETTINGS,
    World,
)

FEBRUARY_MS = 31 * 24 * HOUR_MS


def limited(dollars: float) -> Settings:
    return replace(SETTINGS, limits=Limits(max_cost=round(dollars * MILLION)))


def of(owner: str, name: str, *cpus: int, **more: object) -> JobSpec:
    spec = job(name, *cpus, minutes=300, **more)  # type: ignore[arg-type]
    return replace(spec, owner=owner, restarts=Restarts(grace_period_ms=GRACE_MS))


def suspender(world: World, name: str) -> Suspender | None:
    suspension = world.state.jobs[JobId(name)].suspension
    return None if suspension is None else suspension.by


def budget_events(world: World) -> list[str]:
    return [event.text for event in world.feed() if event.kind is FeedKind.BUDGET]


def test_all_jobs_of_an_owner_stop_at_the_limit_and_go_on_in_the_next_month() -> None:
    world = World(SMALL, settings=limited(0.1), start=Millis(FEBRUARY_MS - 2 * HOUR_MS))
    world.submit(of("me", "a", 2))
    world.submit(of("me", "b", 2, 2, array=True))
    world.submit(of("bo", "c", 2))
    world.play(60)
    assert [suspender(world, name) for name in ("a-1", "b-2", "c-3")] == [
        Suspender.MONTH,
        Suspender.MONTH,
        None,
    ]
    # Three instances at $0.10 an hour; their stops take no more than what is kept back for them.
    spent = world.spent("a-1") + world.spent("b-2")
    assert 0.1 - 0.3 * (RESERVE_MS + MINUTE_MS) / HOUR_MS <= spent <= 0.1
    world.submit(of("me", "d", 2))
    world.play(10)
    assert world.spent("c-3") > 0.05
    assert suspender(world, "d-4") is Suspender.MONTH
    assert JobId("d-4") not in world.state.job_accounts, "nothing new starts"
    first, second = [text for text in budget_events(world) if text.startswith("owner me ")]
    assert first == "owner me has spent $0.0800 of $0.1000 of this month (limits.max_cost)"
    assert second.endswith(" (limits.max_cost): jobs are suspended until 1970-02-01")
    world.play(55)  # past the end of January
    assert [suspender(world, name) for name in ("a-1", "b-2", "d-4")] == [None] * 3
    assert world.state.jobs[JobId("d-4")].state is JobState.RUNNING
    assert world.state.jobs[JobId("a-1")].rested_ms > HOUR_MS, "time at rest is no duration"


def test_a_higher_limit_lets_them_go_on_and_masters_that_die_change_nothing() -> None:
    world = World(SMALL, settings=limited(0.05))
    world.submit(of("me", "a", 2))
    for _ in range(6):  # also while its tasks stop
        world.play(9)
        world.restart()
    assert suspender(world, "a-1") is Suspender.MONTH
    assert 0.045 <= world.spent("a-1") <= 0.05
    world.resume("a-1")
    error = world.answers.replies["resume-None"].error
    assert isinstance(error, CostCapReached)
    assert "limits.max_cost" in str(error)
    assert suspender(world, "a-1") is Suspender.MONTH
    world._settings = limited(0.1)
    world.restart()
    world.play(5)
    assert suspender(world, "a-1") is None
    world.play(100)
    assert suspender(world, "a-1") is Suspender.MONTH
    assert 0.09 <= world.spent("a-1") <= 0.1
    world._settings = SETTINGS
    world.restart()
    world.play(400)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED


def test_a_job_that_its_user_suspends_meanwhile_stays_suspended() -> None:
    world = World(SMALL, settings=limited(0.05), start=Millis(FEBRUARY_MS - HOUR_MS))
    world.submit(of("me", "a", 2))
    world.play(50)
    assert suspender(world, "a-1") is Suspender.MONTH
    world.inbox.post(SuspendRequested("s", JobId("a-1"), "me"))
    world.play(30)
    assert suspender(world, "a-1") is Suspender.USER
    world.resume("a-1")
    assert suspender(world, "a-1") is None


def test_a_job_comes_to_its_own_cap_first_and_needs_its_user_in_the_next_month() -> None:
    world = World(SMALL, settings=limited(0.05), start=Millis(FEBRUARY_MS - HOUR_MS))
    world.submit(replace(of("me", "a", 2), max_cost=20_000))
    world.submit(of("me", "b", 2))
    world.play(50)
    assert suspender(world, "a-1") is Suspender.COST
    assert suspender(world, "b-2") is Suspender.MONTH
    world.play(20)
    assert suspender(world, "a-1") is Suspender.COST
    assert suspender(world, "b-2") is None


def test_eva_plan_says_that_a_job_would_rest_at_its_owners_limit() -> None:
    world = World(SMALL, settings=limited(0.05))
    world.submit(of("me", "a", 2))
    world.play(50)
    model, now = world.machine.published(), Millis(world.timeline.now())
    preview = model.preview(of("me", "b", 2), now)
    assert preview.question is None
    (why,) = preview.foreseen(None).waiting.values()
    assert why.startswith("suspended at its owner's limit: owner me has spent ")
    assert "jobs are suspended until 1970-02-01" in why
    other = model.preview(of("bo", "b", 2), now)
    assert other.question is not None


@pytest.mark.parametrize("scope", ["tenant", "partition"])
def test_a_used_up_budget_is_told_twice_and_stops_nothing_that_runs(scope: str) -> None:
    if scope == "tenant":
        settings = replace(SETTINGS, tenancy=Tenancy(budgets={"vision": 50_000}))
    else:
        main = replace(Partitions().all[0], name="main", budget=Budget(per_month=50_000))
        settings = replace(SETTINGS, partitions=Partitions((main,)))
    world = World(SMALL, settings=settings)
    world.submit(replace(of("me", "a", 2), tenant="vision"))
    world.play(20)
    world.restart()
    world.play(20)
    world.submit(replace(of("me", "b", 2), tenant="vision"))
    world.play(20)
    name = "tenant vision" if scope == "tenant" else "partition main"
    key = f"{scope}s.{name.split()[1]}.budget.usd_per_month"
    assert budget_events(world) == [
        f"{name} has spent $0.0400 of $0.0500 of this month ({key})",
        f"{name} has spent $0.0500 of $0.0500 of this month ({key}): nothing is bought for it until"
        " 1970-02-01, and tasks run on",
    ]
    assert world.state.jobs[JobId("a-1")].state is JobState.RUNNING
    assert world.state.jobs[JobId("b-2")].state is JobState.PENDING
    assert [run.reason for run in world.state.members(JobId("a-1"))] == [""]
