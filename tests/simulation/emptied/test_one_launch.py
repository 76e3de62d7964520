"""An instance that has emptied goes to the task that waits for one like it: no other is launched.

How many launches are needed is worked out by hand: as many as tasks run at a time at most.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import Offering
from eva_master.model.events import (
    CancelRequested,
    MoveRequested,
    ResumeRequested,
    SuspendRequested,
)
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, Partitions
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.emptied.worlds import MINUTE_MS, SETTINGS, World, after
from tests.fakes.jobs import CPU, LARGE, MEDIUM, SMALL, job
from tests.fakes.policies.whole import TRIED

ONE = replace(SMALL, limit=1)
SHORT_MIN = 3
"""For how long each task runs; a boot takes 70 s, so a second one would be seen in the time."""
AT_ANY_TIME = ["eva", "fifo", "hadar", "no_packing"]
"""Policies whose rounds are held when something happens."""


def divided(*parts: Partition, **more: object) -> Settings:
    return replace(SETTINGS, partitions=Partitions(parts), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", AT_ANY_TIME)
def test_a_queue_at_a_limit(policy: str) -> None:
    world = World(ONE, policy=policy)
    for number in range(4):
        world.come(job(f"j{number}", 2, minutes=SHORT_MIN))
    world.finish()
    assert (world.launches, world.ended()) == (1, 4)
    # A boot, four tasks, and a round and a start before each.
    assert world.timeline.now() < 70_000 + 4 * (SHORT_MIN * 60_000 + 15_000)


@pytest.mark.parametrize("policy", AT_ANY_TIME)
@pytest.mark.parametrize("when", ["succeeded", "ended"])
def test_a_chain(policy: str, when: str) -> None:
    world = World(policy=policy)
    world.come(job("j0", 2, minutes=SHORT_MIN))
    for number in range(1, 4):
        before = f"j{number - 1}-{number}"
        ended = (JobId(before),) if when == "ended" else ()
        world.come(after(job(f"j{number}", 2, minutes=SHORT_MIN), before, only_ended=ended))
    world.finish()
    assert (world.launches, world.ended()) == (1, 4)


def test_a_chain_whose_first_job_fails() -> None:
    world = World(work_of=lambda run: Work(60_000, failures=[3] if run.startswith("a-") else []))
    world.come(job("a", 2, minutes=1, retries=0))
    world.come(after(job("b", 2, minutes=1), "a-1", only_ended=(JobId("a-1"),)))
    world.finish()
    assert (world.launches, world.ended(), world.ended(JobState.FAILED)) == (1, 1, 1)


def test_a_diamond_of_stages() -> None:
    world = World()
    world.come(job("a", 2, minutes=SHORT_MIN))
    world.come(after(job("b", 2, minutes=SHORT_MIN), "a-1"))
    world.come(after(job("c", 2, minutes=SHORT_MIN), "a-1"))
    world.come(after(job("d", 2, minutes=SHORT_MIN), "b-2", "c-3"))
    world.finish()
    # Two may share the medium one; no more than two instances are ever needed at a time.
    assert world.launches <= 3
    assert world.ended() == 4


@pytest.mark.parametrize("policy", AT_ANY_TIME)
def test_an_array_with_one_task_at_a_time(policy: str) -> None:
    world = World(policy=policy)
    world.come(job("a", 2, 2, 2, 2, minutes=SHORT_MIN, array=True, concurrency=1))
    world.finish()
    assert (world.launches, world.ended()) == (1, 1)


@pytest.mark.parametrize(
    "settings",
    [
        divided(Partition("main", default=True, limits=PartitionLimits(instances=1))),
        divided(Partition("main", default=True, budget=Budget(per_hour=SMALL.price))),
        replace(SETTINGS, limits=Limits(instances=1)),
        replace(SETTINGS, limits=Limits(instances_per_user=1)),
    ],
    ids=["partition", "budget", "cluster", "user"],
)
def test_a_queue_at_a_limit_of_operators(settings: Settings) -> None:
    world = World(SMALL, settings=settings)
    for number in range(4):
        world.come(job(f"j{number}", 2, minutes=SHORT_MIN))
    world.finish()
    assert (world.launches, world.ended()) == (1, 4)


def test_a_queue_at_a_quota() -> None:
    tenancy = Tenancy(quotas={"t": quota_of({"c": 1})})
    world = World(with_gpu(SMALL), settings=replace(SETTINGS, tenancy=tenancy))
    for number in range(4):
        spec = job(f"j{number}", 2, minutes=SHORT_MIN, tenant="t")
        demand = ((CPU, Resources(1, 2_000, 1_024)),)
        tasks = tuple(replace(task, demand=demand) for task in spec.tasks)
        world.come(replace(spec, tasks=tasks))
    world.finish()
    assert (world.launches, world.ended()) == (1, 4)


def with_gpu(offering: Offering) -> Offering:
    kind = replace(offering.type, capacity=replace(offering.type.capacity, gpus=1))
    return replace(offering, type=kind)


def test_a_victim_of_a_more_urgent_job_goes_on() -> None:
    world = World(ONE, settings=replace(SETTINGS, preemption=Preemption.SUSPEND))
    world.come(job("a", 2, minutes=10))
    world.come(job("b", 2, minutes=SHORT_MIN, priority=5), at_min=4)
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_a_waiting_job_takes_what_a_suspended_one_leaves() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=10))
    world.come(job("b", 2, minutes=SHORT_MIN), at_min=2)
    world.post(SuspendRequested, JobId("a-1"), at_min=4)
    world.post(ResumeRequested, JobId("a-1"), at_min=6)
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_a_job_that_is_suspended_and_resumed_a_second_later() -> None:
    world = World()
    world.come(job("a", 2, minutes=10))
    world.post(SuspendRequested, JobId("a-1"), at_min=4)
    world.post(ResumeRequested, JobId("a-1"), at_min=4 + 1 / 60)
    world.finish()
    assert (world.launches, world.ended()) == (1, 1)


def test_a_job_that_moves_to_another_partition_and_back() -> None:
    world = World(
        settings=divided(Partition("main", default=True), Partition("other")),
    )
    world.come(job("a", 2, minutes=10))
    world.post(MoveRequested, JobId("a-1"), "other", at_min=4)
    world.post(MoveRequested, JobId("a-1"), "main", at_min=4 + 1 / 60)
    world.finish()
    # The instance ordered for the other partition in that second is given back before it is up.
    assert (world.billed(), world.ended()) == (1, 1)


def test_gangs_in_a_queue() -> None:
    world = World(replace(SMALL, limit=2))
    for number in range(3):
        world.come(job(f"g{number}", 2, 2, minutes=SHORT_MIN))
    world.finish()
    assert (world.launches, world.ended()) == (2, 3)


def test_a_gang_whose_members_end_one_after_the_other_and_one_that_waits() -> None:
    world = World(
        replace(SMALL, limit=2),
        work_of=lambda run: Work(60_000 if run.endswith("/0") else 90_000),
    )
    for number in range(3):
        world.come(job(f"g{number}", 2, 2, minutes=1))
    world.finish()
    assert (world.launches, world.ended()) == (2, 3)


def test_an_elastic_gang_after_a_job() -> None:
    world = World(LARGE)
    world.come(job("a", 8, minutes=SHORT_MIN))
    world.come(after(job("g", 2, 2, 2, 2, minutes=SHORT_MIN, least=1), "a-1"))
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_a_job_that_is_cancelled_while_another_waits() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=60))
    world.come(job("b", 2, minutes=SHORT_MIN), at_min=1)
    world.post(CancelRequested, JobId("a-1"), at_min=5)
    world.finish()
    assert (world.launches, world.ended(), world.ended(JobState.CANCELLED)) == (1, 1, 1)


def test_tasks_that_are_tried_again_after_a_while() -> None:
    world = World(ONE, work_of=lambda _: Work(60_000, failures=[3, 3]))
    world.come(job("a", 2, minutes=1, retries=5))
    world.come(job("b", 2, minutes=1))
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


@pytest.mark.parametrize("policy", TRIED)
def test_an_empty_instance_is_used_though_no_other_can_be_had(policy: str) -> None:
    world = World(SMALL, policy=policy)
    world.come(job("a", 2, minutes=SHORT_MIN))
    world.play(2)
    world.state.set_unavailable([SMALL.id], Millis(60 * MINUTE_MS), "sold out")
    world.come(job("b", 2, minutes=SHORT_MIN), at_min=3)
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)
    assert world.timeline.now() < 8 * MINUTE_MS


@pytest.mark.parametrize("policy", TRIED)
def test_a_queue_at_two_limits_ends_under_every_policy(policy: str) -> None:
    world = World(ONE, replace(MEDIUM, limit=1), policy=policy)
    for number in range(4):
        world.come(job(f"j{number}", 2, minutes=SHORT_MIN, array=True))
    world.finish()
    assert world.ended() == 4
    assert world.launches <= 2
