"""Each partition has rounds, a snapshot, a memory, limits and a budget of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, SupportsIndex

import pytest

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.control.features.partitions import membership
from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.actions import Action, Reply, RequestPlan, StopTask
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.changes import Changes
from eva_master.model.events import (
    Event,
    InstanceGone,
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    MoveRequested,
    PlanFailed,
    PlanReady,
    Tick,
    WorkerRegistered,
)
from eva_master.model.fleet.partitions import (
    WHOLE,
    Budget,
    Offers,
    Partition,
    PartitionLimits,
    Partitions,
    Rule,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Leeway
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import LimitExceeded, NotAuthorised, NotFound, Unplaceable
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, Workload
from eva_wire.values.states import JobState, RunState

HOUR = 3_600_000
ROOM = Resources(0, 1000, 1024)
START = int(datetime(2026, 11, 30, 20, tzinfo=UTC).timestamp()) * 1000


def offering(family: str, limit: int | None = None, zone: str = "local") -> Offering:
    kind = InstanceType(f"{family}.1", Family(family), ROOM, 0, 0)
    return Offering(kind, Price(1_000_000), zone=zone, limit=limit)


NOTHING = Plan()
CATALOG = (offering("c"), offering("g", limit=2))
TASK = TaskSpec(Workload("w"), Program("true"), ((Family("c"), ROOM), (Family("g"), ROOM)))
SHORT = Partition(
    "short",
    offers=Offers(families=frozenset({"g"})),
    rule=Rule(below_ms=60_000),
    submitters=OwnerPatterns(("ann", "op*")),
)
MAIN = Partition("main", default=True)


class Cluster:
    """A control loop over partitions; each task needs an instance of its own."""

    def __init__(
        self,
        *parts: Partition,
        catalog: Catalog = CATALOG,
        limits: Limits | None = None,
        round_gap_ms: int = 0,
    ) -> None:
        self.journal = MemoryJournal()
        self.catalog = catalog
        self.settings = Settings(
            round_gap_ms=round_gap_ms,
            round_period_ms=10**14,
            sync_period_ms=10**14,
            lost_worker_ms=10**14,
            partitions=Partitions(parts),
            limits=limits or Limits(),
        )
        self.now = START
        self.commands = 0
        self.asked: dict[str, RequestPlan] = {}
        self.machine = Machine(State(catalog), self.settings)
        self.take(self.machine.recover(Millis(self.now)))
        for name in list(self.asked):
            self.answer(name)

    def take(self, actions: Sequence[Action]) -> list[Action]:
        self.journal.commit(self.machine.take_changes())
        for action in actions:
            if isinstance(action, RequestPlan):
                assert action.partition not in self.asked, "one plan at a time"
                self.asked[action.partition] = action
        return list(actions)

    def handle(self, *events: Event, after_ms: int = 0) -> list[Action]:
        self.now += after_ms
        return self.take(self.machine.handle(events, Millis(self.now)))

    def restart(self, *parts: Partition) -> None:
        self.settings = replace(self.settings, partitions=Partitions(parts))
        state = State.restored(self.catalog, self.journal.load())
        self.machine = Machine(state, self.settings)
        self.asked = {}
        self.take(self.machine.recover(Millis(self.now)))

    def submit(
        self,
        name: str,
        *,
        owner: str = "ann",
        partition: str = "",
        tasks: int = 1,
        duration_ms: int | None = None,
    ) -> Reply:
        self.commands += 1
        spec = JobSpec(
            name,
            owner,
            (TASK,) * tasks,
            kind=JobKind.ARRAY,
            duration_ms=duration_ms,
            partition=partition,
        )
        actions = self.handle(JobSubmitted(f"c{self.commands}", spec))
        return next(it for it in actions if isinstance(it, Reply))

    def move(
        self, job: str, partition: str, owner: str = "ann", *, operator: bool = False
    ) -> Reply:
        self.commands += 1
        event = MoveRequested(f"c{self.commands}", JobId(job), partition, owner, operator)
        return next(it for it in self.handle(event) if isinstance(it, Reply))

    def answer(self, partition: str, plan: Plan = NOTHING, **memory: int) -> list[Action]:
        request = self.asked.pop(partition)
        kept = PolicyMemory(partition, 1, dict(memory)) if memory else None
        return self.handle(PlanReady(request.round, plan, kept))

    def one_each(self, partition: str) -> Plan:
        """A plan that launches the first offering that is sold for every task without a place."""
        seen = self.asked[partition].snapshot
        runs = [run.id for run in seen.runs if run.instance is None]
        return Plan(
            tuple(NewInstance(key, seen.catalog[0]) for key in range(len(runs))),
            tuple(Assign(run, key) for key, run in enumerate(runs)),
        )

    def up(self) -> None:
        for name in list(self.machine.state.live):
            if self.machine.state.instances[name].up_ms is None:
                self.handle(InstanceUp(name, Millis(self.now)))
                self.handle(WorkerRegistered(name, 1, "a", ()))

    def gone(self, name: InstanceId) -> None:
        self.handle(InstanceGone(name, None, Millis(self.now), "gone"))

    def waits_for(self, job: str) -> list[str]:
        return [run.waiting_for for run in self.machine.state.members(JobId(job))]


def test_a_job_comes_where_it_says_or_where_the_first_rule_has_it() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("quick", duration_ms=1_000)
    cluster.submit("slow", duration_ms=60_000)
    cluster.submit("unknown")
    cluster.submit("named", duration_ms=1_000, partition="main")
    cluster.submit("stranger", duration_ms=1_000, owner="bob")
    found = {job.spec.name: job.partition for job in cluster.machine.state.jobs.values()}
    assert found == {
        "quick": "short",
        "slow": "main",
        "unknown": "main",
        "named": "main",
        "stranger": "main",
    }


def test_policies_see_their_own_part_and_remember_by_themselves() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("quick", duration_ms=1_000)
    assert set(cluster.asked) == {"short"}, "nothing is new elsewhere"
    cluster.submit("slow")
    short, main = cluster.asked["short"].snapshot, cluster.asked["main"].snapshot
    assert [job.id for job in short.jobs] == ["quick-1"]
    assert [it.type.family for it in short.catalog] == ["g"]
    assert [job.id for job in main.jobs] == ["slow-2"]
    assert (short.arrivals, main.arrivals) == (1, 1)
    assert len({it.round for it in cluster.asked.values()}) == 2, "rounds are numbered together"
    cluster.answer("short", cluster.one_each("short"), seen=1)
    cluster.answer("main", seen=2)
    cluster.restart(SHORT, MAIN)
    memories = {name: asked.memory for name, asked in cluster.asked.items()}
    assert {name: it and it.data for name, it in memories.items()} == {
        "short": {"seen": 1},
        "main": {"seen": 2},
    }
    assert cluster.machine.state.memories.get("") == memories["main"], (
        "the row of an undivided cluster"
    )


def test_a_plan_that_takes_long_holds_up_no_other_partition() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("slow")
    asked = cluster.asked["main"]
    for number in range(3):
        cluster.submit(f"quick{number}", duration_ms=1_000)
        cluster.answer("short", cluster.one_each("short"))
    assert cluster.asked["main"] is asked
    placed = [run for run in cluster.machine.state.runs.values() if run.target is not None]
    assert len(placed) == 2, "as many as are sold"
    del cluster.asked["main"]
    cluster.handle(PlanFailed(asked.round, "it broke down"))
    assert cluster.asked["main"].round > asked.round


def test_a_refused_spot_launch_is_planned_anew_at_once_in_its_own_partition_alone() -> None:
    catalog = (CATALOG[0], replace(CATALOG[1], purchase=Purchase.SPOT))
    cluster = Cluster(SHORT, MAIN, catalog=catalog, round_gap_ms=HOUR)
    cluster.submit("quick", duration_ms=1_000)
    cluster.submit("slow")
    cluster.handle(Tick(), after_ms=HOUR)
    cluster.answer("short", cluster.one_each("short"))
    cluster.answer("main")
    assert not cluster.asked
    (refused,) = cluster.machine.state.live
    cluster.handle(LaunchFailed(refused, Millis(cluster.now), "none left"))
    assert set(cluster.asked) == {"short"}


def test_an_offerings_limit_is_what_others_leave_of_it() -> None:
    cluster = Cluster(SHORT, replace(MAIN, offers=Offers(families=frozenset({"g"}))))
    cluster.submit("quick", duration_ms=1_000)
    cluster.answer("short", cluster.one_each("short"))
    cluster.submit("slow", tasks=2)
    (sold,) = cluster.asked["main"].snapshot.catalog
    assert sold.limit == 1
    cluster.answer("main", cluster.one_each("main"))
    assert len(cluster.machine.state.live) == 2


def test_what_nobody_sells_to_a_partition_is_not_launched_for_it() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("quick", duration_ms=1_000)
    stray = Plan(
        (NewInstance(0, CATALOG[0]),), (Assign(next(iter(cluster.machine.state.runs)), 0),)
    )
    cluster.answer("short", stray)
    assert not cluster.machine.state.live


def test_no_policy_places_anybody_of_another_partition() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("slow")
    cluster.answer("main", cluster.one_each("main"))
    (there,) = cluster.machine.state.live
    cluster.submit("quick", duration_ms=1_000)
    runs = list(cluster.machine.state.runs)
    cluster.answer("short", Plan((), tuple(Assign(run, there) for run in runs)))
    quick = cluster.machine.state.runs[runs[-1]]
    assert quick.target is None
    assert [it.partition for it in cluster.machine.state.instances.values()] == ["main"]


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        (replace(SHORT, limits=PartitionLimits(jobs=1)), "partitions.short.limits.jobs"),
        (replace(SHORT, limits=PartitionLimits(tasks=3)), "partitions.short.limits.tasks"),
    ],
)
def test_a_partition_takes_no_more_jobs_than_it_may(partition: Partition, problem: str) -> None:
    cluster = Cluster(partition, MAIN)
    assert cluster.submit("one", partition="short", tasks=2).error is None
    error = cluster.submit("two", partition="short", tasks=2).error
    assert isinstance(error, LimitExceeded)
    assert problem in error.message
    assert error.hint
    assert cluster.submit("two", partition="main", tasks=2).error is None
    cluster.restart(partition, MAIN)
    assert cluster.submit("three", partition="short", tasks=2).error is not None


def test_a_partition_has_no_more_instances_than_it_may_and_neither_has_the_cluster() -> None:
    cluster = Cluster(
        replace(MAIN, name="few", default=False, limits=PartitionLimits(instances=1)),
        MAIN,
        limits=Limits(instances=3),
    )
    cluster.submit("few", partition="few", tasks=2)
    cluster.submit("many", partition="main", tasks=4)
    cluster.answer("few", cluster.one_each("few"))
    cluster.answer("main", cluster.one_each("main"))
    held = [text for text in cluster.waits_for("few-1") if text]
    assert held == ["partition few may have 1 instances (partitions.few.limits.instances)"]
    assert len(cluster.machine.state.live) == 3
    assert "(limits.instances)" in cluster.waits_for("many-2")[-1]


def test_a_budget_per_hour_stops_launches_beyond_it() -> None:
    cluster = Cluster(replace(MAIN, budget=Budget(per_hour=2_500_000)))
    cluster.submit("job", tasks=4)
    cluster.answer("main", cluster.one_each("main"))
    assert len(cluster.machine.state.live) == 2
    told = "partition main may spend $2.50 per hour (partitions.main.budget.usd_per_hour)"
    assert cluster.waits_for("job-1") == ["", "", told, told]


def test_a_budget_per_month_stops_launches_until_the_next_month_and_nothing_that_runs() -> None:
    cluster = Cluster(replace(MAIN, budget=Budget(per_month=3_000_000)))
    cluster.submit("job", tasks=2)
    cluster.answer("main", cluster.one_each("main"))
    cluster.up()
    cluster.handle(Tick(), after_ms=HOUR)
    cluster.restart(*cluster.settings.partitions.parts)
    cluster.answer("main")
    cluster.handle(Tick(), after_ms=HOUR // 2)  # three instance hours
    cluster.submit("later")
    cluster.answer("main", cluster.one_each("main"))
    assert cluster.waits_for("later-2") == [
        "partition main has spent its budget of this month, $3.00"
        " (partitions.main.budget.usd_per_month)"
    ]
    assert len(cluster.machine.state.live) == 2, "nothing that runs is stopped"
    _, december = month_of(Millis(cluster.now))
    assert cluster.machine.next_alarm() is not None
    cluster.handle(Tick(), after_ms=december - cluster.now)
    cluster.answer("main", cluster.one_each("main"))
    assert len(cluster.machine.state.live) == 3


def test_policies_are_told_what_limits_and_budgets_leave() -> None:
    budget = Budget(per_hour=2_500_000, per_month=3_000_000)
    main = replace(MAIN, budget=budget, limits=PartitionLimits(instances=5))
    cluster = Cluster(SHORT, main, limits=Limits(instances=4))

    def left(name: str) -> Leeway:
        return cluster.asked[name].snapshot.leeway

    cluster.submit("quick", duration_ms=1_000)
    assert left("short") == Leeway(4)
    cluster.answer("short", cluster.one_each("short"))
    cluster.submit("job", tasks=2)
    assert left("main") == Leeway(3, 2_500_000)
    cluster.answer("main", cluster.one_each("main"))
    cluster.submit("more")
    assert left("main") == Leeway(1, 500_000)
    cluster.answer("main")
    cluster.up()
    cluster.handle(Tick(), after_ms=2 * HOUR)  # four instance hours
    cluster.submit("later")
    assert left("main") == Leeway(0, 500_000), "this month's budget is used up"


def test_without_limits_there_is_nothing_to_tell() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("job")
    assert cluster.asked["main"].snapshot.leeway == Leeway()


class Walked(tuple[TaskSpec, ...]):
    """Tasks that count how many of them somebody looked at one by one."""

    looks = 0

    def __iter__(self) -> Iterator[TaskSpec]:
        for task in super().__iter__():
            Walked.looks += 1
            yield task

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        Walked.looks += 1
        return super().__getitem__(index)


def test_of_a_large_array_each_task_is_looked_at_once_to_place_it_and_none_to_move_it() -> None:
    cluster = Cluster(SHORT, replace(MAIN, rule=Rule(workloads=("w*",), most=ROOM)))
    tasks = Walked((TASK,) * 20_000)
    spec = JobSpec("a", "op", tasks, kind=JobKind.ARRAY, duration_ms=10**6)
    before = Walked.looks
    partitions = cluster.settings.partitions
    assert membership.chosen(cluster.machine.state, partitions, spec, Millis(START)) == "main"
    cluster.handle(JobSubmitted("a", spec))
    cluster.answer("main")
    assert Walked.looks - before < 2 * len(tasks), "the records of the array walk them once"
    before = Walked.looks
    assert cluster.move("a-1", "short", "op").error is None
    assert cluster.machine.state.jobs[JobId("a-1")].partition == "short"
    assert Walked.looks - before < len(tasks) / 2, "a plan is made for its first tasks"


def test_a_waiting_job_moves_at_once_and_a_running_one_is_stopped_first() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("job", tasks=2)
    assert cluster.move("job-1", "short").error is None
    assert cluster.machine.state.jobs[JobId("job-1")].partition == "short"
    assert [job.id for job in cluster.asked["short"].snapshot.jobs] == ["job-1"]
    cluster.answer("main", cluster.one_each("main"))
    assert not cluster.machine.state.live, "it is no longer main's"
    cluster.answer("short", cluster.one_each("short"))
    assert cluster.move("job-1", "short").error is None, "it may be repeated"
    assert cluster.machine.state.jobs[JobId("job-1")].partition == "short"
    counters = cluster.machine.state.counters
    assert (counters.arrivals, counters.completions) == (2, 1)


def test_a_running_job_is_stopped_and_goes_on_elsewhere() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("job")
    cluster.answer("main", cluster.one_each("main"))
    cluster.up()
    (run,) = cluster.machine.state.runs.values()
    assert run.state is RunState.STARTING
    (before,) = cluster.machine.state.live
    assert cluster.move("job-1", "short").error is None
    (run,) = cluster.machine.state.runs.values()
    assert run.target is None
    assert run.waiting_for == "moves to partition short"
    cluster.handle(InstanceGone(before, None, Millis(cluster.now), "gone"))
    cluster.answer("short", cluster.one_each("short"))
    (run,) = cluster.machine.state.runs.values()
    assert run.target is not None
    assert cluster.machine.state.instances[run.target].partition == "short"
    cluster.restart(SHORT, MAIN)
    assert cluster.machine.state.jobs[JobId("job-1")].partition == "short"


@pytest.mark.parametrize(
    ("job", "partition", "operator", "kind"),
    [
        ("job-1", "nowhere", False, NotFound),
        ("job-9", "main", False, NotFound),
        ("theirs-2", "short", False, NotAuthorised),
        ("theirs-2", "short", True, None),
        ("job-1", "none", False, Unplaceable),
    ],
)
def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    job: str, partition: str, operator: bool, kind: type[Exception] | None
) -> None:
    cluster = Cluster(SHORT, replace(MAIN), Partition("none", offers=Offers(zones=frozenset())))
    cluster.submit("job")
    cluster.submit("theirs", owner="bob")
    reply = cluster.move(job, partition, operator=operator)
    if kind is None:
        assert reply.error is None
        return
    assert isinstance(reply.error, kind)
    assert reply.error.hint
    assert {it.partition for it in cluster.machine.state.jobs.values()} == {"main"}


def test_what_was_in_a_partition_that_is_no_more_is_in_the_default_one_for_good() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("quick", duration_ms=1_000)
    cluster.answer("short", cluster.one_each("short"))
    cluster.up()
    cluster.now += HOUR
    cluster.restart(MAIN)
    assert [it.partition for it in cluster.machine.state.instances.values()] == ["main"]
    assert [job.id for job in cluster.asked["main"].snapshot.jobs] == ["quick-1"]
    assert len(cluster.asked["main"].snapshot.instances) == 1
    cluster.now += HOUR
    cluster.restart(SHORT, MAIN)
    assert cluster.machine.state.jobs[JobId("quick-1")].partition == "main"
    cluster.restart()
    assert not cluster.settings.partitions.divided
    assert cluster.settings.partitions == WHOLE
    snapshot = cluster.asked[""].snapshot
    assert ([it.id for it in snapshot.jobs], len(snapshot.instances)) == (["quick-1"], 1)
    name = InstanceId(next(iter(cluster.machine.state.live)))
    cluster.handle(InstanceGone(name, None, Millis(cluster.now + HOUR), "gone"), after_ms=HOUR)
    sums = cluster.machine.state.totals.partitions
    assert {name: int(it.charged) // HOUR for name, it in sums.items()} == {
        "short": 1_000_000,
        "main": 1_000_000,
        "": 1_000_000,
    }
    assert cluster.machine.state.totals.charged == sum(it.charged for it in sums.values())


def test_the_journal_of_a_cluster_that_is_not_divided_has_nothing_new() -> None:
    cluster = Cluster()
    cluster.submit("job")
    cluster.answer("", cluster.one_each(""), seen=1)
    cluster.up()
    written: Changes = cluster.journal.load()
    known = ("tenants/", "cost_by_", "month_of_owner/")
    assert not [name for name in written.values if "/" in name and not name.startswith(known)]
    assert [job.state for job in written.jobs] == [JobState.PENDING]
    assert not any(isinstance(it, StopTask) for it in cluster.handle(Tick()))
