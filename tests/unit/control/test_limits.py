"""How much one job, one user and all together may have."""

from __future__ import annotations

import pytest

from benchmarks.calls import Calls
from eva_master.control.machine import Machine
from eva_master.control.rounds.rules import caps
from eva_master.control.rounds.rules.cluster_limits import Usage
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, LaunchInstance, Reply, RequestPlan
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import CancelRequested, JobSubmitted, PlanReady
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import LimitExceeded
from eva_wire.values.ids import Family, JobId, Millis, Price, Workload

OFFERING = Offering(InstanceType("c.1", Family("c"), Resources(0, 1000, 1024)), Price(1))
TASK = TaskSpec(Workload("w"), Program("true"), ((Family("c"), Resources(0, 1000, 1024)),))
NOW = Millis(1_000)


class Cluster:
    """A control loop with limits; each task needs an instance of its own."""

    def __init__(self, **limits: int) -> None:
        self.limits = Limits(**limits)
        settings = Settings(round_gap_ms=0, limits=self.limits)
        self.machine = Machine(State((OFFERING,)), settings)
        self._commands = 0

    def submit(
        self,
        name: str,
        tasks: int = 1,
        *,
        owner: str = "ann",
        kind: JobKind = JobKind.ARRAY,
        priority: int = 0,
    ) -> Reply:
        self._commands += 1
        spec = JobSpec(name, owner, (TASK,) * tasks, kind=kind, priority=priority)
        event = JobSubmitted(f"c{self._commands}", spec)
        self.actions = self.machine.handle([event], NOW)
        reply = next(it for it in self.actions if isinstance(it, Reply))
        assert reply.owner == owner, "nobody else waits for it"
        return reply

    def carry_out(self, plan: Plan) -> list[Action]:
        """Answer the round that is in progress."""
        return self.machine.handle([PlanReady(self.machine.state.counters.rounds, plan, None)], NOW)

    @property
    def seen(self) -> Snapshot:
        """What the policy was shown."""
        return next(it.snapshot for it in self.actions if isinstance(it, RequestPlan))

    def one_each(self) -> Plan:
        """A plan that launches an instance for every task."""
        runs = list(self.machine.state.runs)
        return Plan(
            tuple(NewInstance(key, OFFERING) for key in range(len(runs))),
            tuple(Assign(run, key) for key, run in enumerate(runs)),
        )

    def placed(self) -> set[str]:
        return {it.id for it in self.machine.state.runs.values() if it.target is not None}


@pytest.mark.parametrize(
    ("limits", "first", "second", "setting"),
    [
        ({"tasks_per_job": 3}, 3, 4, "tasks_per_job"),
        ({"tasks_per_user": 5}, 3, 3, "tasks_per_user"),
        ({"jobs_per_user": 1}, 1, 1, "jobs_per_user"),
        ({"tasks": 5}, 3, 3, "tasks"),
        ({"jobs": 1}, 1, 1, "jobs"),
        ({"text_per_user": 7}, 1, 1, "text_per_user"),
        ({"text": 7}, 1, 1, "text"),
    ],
)
def test_a_job_that_would_be_too_much_is_refused_with_words(
    limits: dict[str, int], first: int, second: int, setting: str
) -> None:
    cluster = Cluster(**limits)
    assert cluster.submit("one", first).error is None
    reply = cluster.submit("two", second)
    assert isinstance(reply.error, LimitExceeded)
    assert f"(limits.{setting})" in reply.error.message
    assert reply.error.hint
    assert list(cluster.machine.state.jobs) == ["one-1"]
    of_others = cluster.submit("two", second, owner="bob")
    assert (of_others.error is None) == setting.endswith("_per_user")


def test_jobs_that_have_ended_count_no_more_also_after_a_restart() -> None:
    cluster = Cluster(jobs_per_user=1, tasks=2)
    cluster.submit("one", 2)
    assert cluster.submit("two").error is not None
    cluster.machine.handle([CancelRequested("x", JobId("one-1"))], NOW)
    load = cluster.machine.state.active_load
    assert (load.jobs, load.tasks, dict(load.jobs_of), dict(load.tasks_of)) == (0, 0, {}, {})
    assert cluster.submit("two", 2).error is None
    restored = State.restored((OFFERING,), cluster.machine.take_changes()).active_load
    assert (restored.jobs, restored.tasks_of) == (1, {"ann": 2})


def test_a_plan_launches_no_more_than_the_cluster_may_have() -> None:
    cluster = Cluster(instances=3)
    cluster.submit("many", 10)
    actions = cluster.carry_out(cluster.one_each())
    assert sum(isinstance(it, LaunchInstance) for it in actions) == 3
    assert len(cluster.machine.state.live) == 3
    waiting = [it for it in cluster.machine.state.runs.values() if it.target is None]
    assert len(waiting) == 7
    assert {it.waiting_for for it in waiting} == {
        "the cluster may have 3 instances (limits.instances)"
    }
    # What is there counts in later rounds, and another round is not asked for at once.
    assert cluster.machine.next_alarm() > NOW
    later = Millis(NOW + 300_000)
    asked = cluster.machine.handle([], later)
    assert any(isinstance(it, RequestPlan) for it in asked)
    cluster.machine.handle([PlanReady(2, cluster.one_each(), None)], later)
    assert len(cluster.machine.state.live) == 3


def test_urgent_jobs_come_first_and_gangs_whole() -> None:
    cluster = Cluster(instances=4)
    cluster.submit("array", 3)
    cluster.submit("gang", 3, kind=JobKind.GANG, priority=1)
    cluster.submit("wide", 3, kind=JobKind.GANG)
    cluster.carry_out(Plan())
    cluster.machine.handle([], Millis(NOW + 300_000))
    cluster.machine.handle([PlanReady(2, cluster.one_each(), None)], Millis(NOW + 300_000))
    assert cluster.placed() == {"gang-2/0", "gang-2/1", "gang-2/2", "array-1/0"}


def test_no_user_and_no_job_has_more_instances_than_allowed() -> None:
    for limits, placed in (
        ({"instances_per_user": 2}, {"a-1/0", "a-1/1", "c-3/0"}),
        ({"instances_per_job": 1}, {"a-1/0", "b-2/0", "c-3/0"}),
    ):
        cluster = Cluster(**limits)
        cluster.submit("a", 2)
        cluster.submit("b", 1)
        cluster.submit("c", 1, owner="bob")
        cluster.carry_out(Plan())
        cluster.machine.handle([], Millis(NOW + 300_000))
        plan = cluster.one_each()
        cluster.machine.handle([PlanReady(2, plan, None)], Millis(NOW + 300_000))
        assert cluster.placed() == placed


def test_a_plan_within_the_limits_is_carried_out_as_it_is() -> None:
    cluster = Cluster(instances=3, instances_per_user=3, instances_per_job=3)
    cluster.submit("three", 3)
    plan = cluster.one_each()
    effect = PlanEffect(cluster.seen, plan)
    allowed, fewer = (Usage(cluster.seen, cluster.limits, lambda _: "ann", live) for live in (0, 1))
    assert caps.within(effect, allowed) is effect
    cut = caps.within(effect, fewer).plan
    assert [it.key for it in cut.launches] == [0, 1]
    assert [type(it) for it in cut.entries] == [Assign, Assign, Hold]


def _calls_of_a_cut(tasks: int) -> float:
    """Calls of Python functions for each task that a limit keeps from what a plan gives it."""
    cluster = Cluster(instances=tasks)
    cluster.submit("there", tasks)
    cluster.carry_out(cluster.one_each())
    later = Millis(NOW + 300_000)
    spec = JobSpec("more", "ann", (TASK,) * tasks, kind=JobKind.ARRAY)
    cluster.machine.handle([JobSubmitted("more", spec)], later)
    runs = [run for run in cluster.machine.state.runs if run.startswith("more")]
    launches = (NewInstance(key, OFFERING) for key in range(tasks))
    plan = Plan(tuple(launches), tuple(Assign(run, key) for key, run in enumerate(runs)))
    calls = Calls()
    with calls.counting():
        cluster.machine.handle([PlanReady(2, plan, None)], later)
    assert len(cluster.placed()) == tasks
    return calls.made / tasks


def test_a_plan_that_limits_cut_takes_as_long_for_each_task_however_many_there_are() -> None:
    assert _calls_of_a_cut(400) < 1.5 * _calls_of_a_cut(100)
