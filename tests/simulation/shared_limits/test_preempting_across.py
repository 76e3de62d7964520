"""Suspension of tasks of other partitions for the most urgent, where the operator allows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits
from eva_master.model.catalog import Catalog
from eva_master.model.job import Deadline
from eva_master.model.planning.suspension import Preemption
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import JobId
from tests.fakes.jobs import job
from tests.simulation.shared_limits.test_shared_turns import Idle
from tests.simulation.shared_limits.turns import (
    BOOT_MS,
    CI,
    MINUTE_MS,
    ML,
    ONE,
    TWO,
    UNLIMITED,
    come,
    pass_time,
    whole,
    world_of,
)

ACROSS = {"preemption": Preemption.SUSPEND, "preemption_across": True}
SOON_MS = BOOT_MS + 60_000


def began(world: SimulatedCluster, name: str) -> bool:
    (known,) = (it for it in world.state.jobs.values() if it.spec.name == name)
    return known.started_ms is not None


def suspensions(world: SimulatedCluster, name: str) -> int:
    return sum(
        sum(state == "stopping" for state, _ in run.history)
        for run in world.state.runs.values()
        if world.state.jobs[run.job].spec.name == name
    )


@pytest.mark.parametrize(
    ("catalog", "more"),
    [
        (ONE, {}),
        (UNLIMITED, {"limits": Limits(instances=1)}),
        (UNLIMITED, {"limits": Limits(instances_per_user=1)}),
    ],
    ids=["offering", "limits.instances", "limits.instances_per_user"],
)
def test_the_most_urgent_has_less_urgent_tasks_of_another_partition_suspended(
    catalog: Catalog, more: dict[str, Any]
) -> None:
    world = world_of(ML, CI, catalog=catalog, minutes=60, **ACROSS, **more)
    come(world, whole("low", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("urgent", "ci", priority=9))
    (told,) = [run.waiting_for for run in world.state.members(JobId("low-1"))]
    assert told == "makes room for urgent-2 of partition ci, which has a higher priority"
    pass_time(world, SOON_MS)
    assert began(world, "urgent")
    assert world.run(world.quiet)
    assert [it.state for it in world.state.jobs.values()] == ["succeeded"] * 2
    assert suspensions(world, "low") == 1
    assert suspensions(world, "urgent") == 0


@pytest.mark.parametrize("preemption", Preemption)
def test_without_the_setting_others_are_not_touched(preemption: Preemption) -> None:
    world = world_of(ML, CI, minutes=60, preemption=preemption)
    come(world, whole("low", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("urgent", "ci", priority=9))
    pass_time(world, 30 * MINUTE_MS)
    assert suspensions(world, "low") == 0
    assert not began(world, "urgent")


def test_equals_are_not_touched() -> None:
    world = world_of(ML, CI, minutes=60, **ACROSS)
    come(world, whole("first", "ml", priority=9))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("second", "ci", priority=9))
    pass_time(world, 30 * MINUTE_MS)
    assert suspensions(world, "first") == 0


def test_of_several_the_least_urgent_yields_and_no_more_than_are_needed() -> None:
    world = world_of(ML, CI, catalog=TWO, minutes=60, **ACROSS)
    come(world, whole("high", "ml", priority=5), whole("low", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("urgent", "ci", priority=9))
    pass_time(world, SOON_MS)
    assert (suspensions(world, "high"), suspensions(world, "low")) == (0, 1)
    assert began(world, "urgent")


def test_a_gang_yields_as_a_whole_and_a_gang_gets_room_as_a_whole() -> None:
    world = world_of(ML, CI, catalog=TWO, minutes=60, **ACROSS)
    come(world, job("low", 8, 8, partition="ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, job("urgent", 8, 8, partition="ci", priority=9))
    pass_time(world, SOON_MS)
    assert suspensions(world, "low") == 2
    assert began(world, "urgent")
    assert world.run(world.quiet)


def test_nobody_is_suspended_where_that_is_not_enough() -> None:
    world = world_of(ML, CI, catalog=TWO, minutes=60, **ACROSS)
    come(world, whole("low", "ml"), whole("high", "ml", priority=9))
    pass_time(world, 3 * MINUTE_MS)
    come(world, job("gang", 8, 8, partition="ci", priority=9))
    pass_time(world, 20 * MINUTE_MS)
    assert suspensions(world, "low") == 0


def test_others_are_suspended_once_for_a_job_that_its_policy_never_places() -> None:
    world = world_of(ML, CI, minutes=120, policies={"ci": Idle()}, **ACROSS)
    come(world, whole("low", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("never", "ci", priority=9))
    pass_time(world, 60 * MINUTE_MS)
    assert suspensions(world, "low") <= 1


def test_a_restart_in_the_middle_suspends_nobody_twice() -> None:
    world = world_of(ML, CI, minutes=60, **ACROSS)
    come(world, whole("low", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("urgent", "ci", priority=9))
    world.restart()
    pass_time(world, SOON_MS)
    assert began(world, "urgent")
    assert world.run(world.quiet)
    assert suspensions(world, "low") == 1


def test_a_task_that_would_be_late_for_its_deadline_is_not_suspended() -> None:
    for within, stops in ((66, 0), (400, 1)):
        world = world_of(ML, CI, minutes=60, **ACROSS)
        deadline = Deadline(within_ms=within * MINUTE_MS)
        come(world, replace(whole("low", "ml"), duration_ms=60 * MINUTE_MS, deadline=deadline))
        pass_time(world, 3 * MINUTE_MS)
        come(world, whole("urgent", "ci", priority=9))
        pass_time(world, SOON_MS)
        assert suspensions(world, "low") == stops


def test_among_equals_of_two_partitions_the_one_that_would_be_late_is_next() -> None:
    world = world_of(ML, CI, minutes=20)
    known = {"duration_ms": 20 * MINUTE_MS, "launch_ms": 1_000, "checkpoint_ms": 1_000}
    come(world, with_values(whole("first", "ml"), known))
    pass_time(world, 3 * MINUTE_MS)
    come(world, *(with_values(whole(name, "ml"), known) for name in "abc"))
    pass_time(world, MINUTE_MS)
    deadline = Deadline(within_ms=50 * MINUTE_MS)
    come(world, with_values(whole("due", "ci"), {"deadline": deadline, **known}))
    assert world.run(world.quiet)
    jobs = sorted(world.state.jobs.values(), key=lambda it: it.started_ms or 0)
    assert [it.spec.name for it in jobs[:2]] == ["first", "due"]
