"""Queues by learned size in front of a policy that buys and packs, where not all can have room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import CancelRequested
from eva_master.model.fleet.partitions import Budget, Partition, Partitions
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.estimate import Estimates
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_policies.slearn import POLICY
from eva_policies.slearn.sampling import chosen
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState

CPU = Family("c")
FOUR = Offering(InstanceType("c.4", CPU, Resources(0, 4_000, 4_096)), Price(400_000))
BASE = Settings(round_gap_ms=1_000, profile=False, estimates=Estimates.PILOTS)
LEARN = POLICY.config(estimator="pilots", ratio_ppm=50_000)


def made(name: str) -> Policy:
    kind = policies()[name]
    return kind.build(kind.config())


def backed(name: str = "eva", config: object = LEARN) -> Policy:
    return POLICY.backed(config, made(name))


@dataclass(frozen=True)
class Array:
    """An array.

    Attributes:
        slots: What each task takes, in quarters of an instance.
        each_s: What its tasks take, in seconds.
        states: Whether it says so.
    """

    name: str
    each_s: Sequence[int]
    slots: int = 1
    at_s: int = 0
    owner: str = "me"
    kind: JobKind = JobKind.ARRAY
    states: bool = False


ARRAYS = (
    Array("long", [400] * 40, slots=2),
    Array("short", [20] * 60, at_s=5),
    Array("middle", [100] * 20, at_s=10),
)


class World:
    """A cluster of instances with four slots each."""

    def __init__(
        self,
        policy: Policy | Mapping[str, Policy],
        arrays: Sequence[Array] = ARRAYS,
        limit: int | None = None,
        settings: Settings = BASE,
    ) -> None:
        self.arrays = {it.name: it for it in arrays}
        self.cluster = SimulatedCluster(
            (replace(FOUR, limit=limit),), policy, settings=settings, work_of=self._work_of
        )
        for it in arrays:
            need = Resources(0, 1_000 * it.slots, 1_024 * it.slots)
            task = TaskSpec(Workload(it.name), Program("true"), ((CPU, need),))
            spec = JobSpec(
                it.name,
                it.owner,
                (task,) * len(it.each_s),
                kind=it.kind,
                duration_ms=it.each_s[0] * 1_000 if it.states else None,
            )
            self.cluster.submit(spec, at=Millis(it.at_s * 1_000))

    def _work_of(self, run: RunId) -> Work:
        job, _, index = run.partition("/")
        each = self.arrays[job.rpartition("-")[0]].each_s
        return Work(each[int(index)] * 1_000, tells_steps=False)

    @property
    def runs(self) -> list[TaskRun]:
        """Those that a place was found for, in the order in which they were started."""
        touched = self.cluster.state.runs.touched.values()
        began = [it for it in touched if _began_ms(it) is not None]
        return sorted(began, key=lambda it: (_began_ms(it) or 0, it.id))

    def run_of(self, name: str) -> TaskRun:
        """The record of a task run."""
        return self.cluster.state.runs[RunId(name)]

    def until(self, *names: str) -> dict[str, float]:
        """Go on until jobs have ended; returns how long each took, in seconds."""
        state = self.cluster.state

        def ended() -> dict[str, float]:
            jobs = [it for it in state.jobs.values() if it.finished_ms is not None]
            return {it.spec.name: ((it.finished_ms or 0) - it.arrived_ms) / 1_000 for it in jobs}

        assert self.cluster.run(lambda: ended().keys() >= set(names))
        return ended()

    def over(self) -> dict[str, float]:
        """Go on until all have ended, each task by the first attempt; returns as `until`."""
        found = self.until(*self.arrays)
        runs = self.cluster.state.runs.values()
        assert {it.attempt for it in runs} == {1}, "nobody was stopped for another one"
        return found


def _began_ms(run: TaskRun) -> int | None:
    return next((at for state, at in run.history if state == RunState.STARTING.value), None)


# -- what it is for --------------------------------------------------------------------------------


@pytest.mark.parametrize("back", ["eva", "stratus", "no_packing"])
def test_where_the_cloud_has_few_instances_jobs_take_half_as_long_on_average(back: str) -> None:
    alone = World(made(back), limit=2).over()
    ordered = World(backed(back), limit=2).over()
    assert mean(ordered.values()) < 0.65 * mean(alone.values())
    assert ordered["short"] < 0.4 * alone["short"]
    assert ordered["long"] < 1.3 * alone["long"], "the large one still gets its share"


TWO = replace(BASE, limits=Limits(instances=2))
HALF = Partition("all", "x", default=True, budget=Budget(per_hour=800_000))


@pytest.mark.parametrize(
    "settings", [TWO, replace(BASE, partitions=Partitions((HALF,)))], ids=["number", "budget"]
)
def test_so_they_do_where_the_operator_allows_few(settings: Settings) -> None:
    def world(policy: Policy) -> World:
        parts = settings.partitions.divided
        return World({HALF.name: policy} if parts else policy, settings=settings)

    alone, ordered = world(made("eva")).over(), world(backed()).over()
    assert mean(ordered.values()) < 0.65 * mean(alone.values())


def test_where_there_is_room_for_all_the_order_changes_nothing() -> None:
    alone, ordered = (World(it, ARRAYS[:2]) for it in (made("eva"), backed()))
    assert ordered.over() == alone.over()
    assert [it.id for it in ordered.runs] == [it.id for it in alone.runs]


# -- pilots ----------------------------------------------------------------------------------------


def test_pilots_go_first_and_their_mean_is_what_the_job_is_known_by() -> None:
    pilots = chosen(JobId("job-1"), 40, 2, 1)
    each = [300 if it in pilots else 100 for it in range(40)]
    world = World(backed(), [Array("job", each)], limit=1)
    assert world.cluster.run(lambda: len(world.runs) == 4)
    assert {it.index for it in world.runs} >= set(pilots)
    state = world.cluster.state
    assert world.cluster.run(lambda: state.finished_tasks.pilots_left(JobId("job-1")) == 0)
    told = state.finished_tasks.telling(state.jobs[JobId("job-1")])
    (known,) = told.values()
    assert known.tasks == 2
    assert 400_000 < known.total_ms <= 600_000, "but for what company is taken to cost"


def test_pilots_of_an_array_larger_than_a_plan_is_shown_go_first_too() -> None:
    pilots = set(chosen(JobId("job-1"), 4_000, 100, 1))
    assert max(pilots) > 3_000
    world = World(backed(), [Array("job", [50] * 4_000)], limit=1)
    seen: set[int] = set()

    def pilots_began() -> bool:
        seen.update(it.index for it in world.runs)
        return len(seen) >= 120

    assert world.cluster.run(pilots_began)
    assert len(pilots - seen) == 0
    assert len(seen - pilots) < 30, "but for those of the first plan, before the pilots were known"


# -- crashes, cancellations, limits of users -------------------------------------------------------


@pytest.mark.parametrize(
    "after", [5, *(pytest.param(it, marks=pytest.mark.explore) for it in (1, 40))]
)
def test_a_master_that_restarts_in_the_middle_goes_on_with_the_same_order(after: int) -> None:
    plain, again = World(backed(), limit=2), World(backed(), limit=2)
    assert again.cluster.run(lambda: len(again.runs) >= after)
    again.cluster.restart()
    found, expected = again.over(), plain.over()
    assert sorted(found, key=found.__getitem__) == sorted(expected, key=expected.__getitem__)
    assert mean(found.values()) == pytest.approx(mean(expected.values()), rel=0.2)


def test_a_job_that_is_cancelled_is_forgotten() -> None:
    world = World(backed(), limit=1)
    assert world.cluster.run(lambda: len(world.runs) >= 4)
    world.cluster.inbox.post(CancelRequested("c", JobId("long-1")))
    world.until("short", "middle")
    memory = world.cluster.state.memories.get("")
    assert memory is not None
    assert "long-1" not in repr(memory.data)


def test_whoever_may_have_no_more_instances_holds_up_nobody_else() -> None:
    greedy = Array("greedy", [500] * 40, slots=4, owner="ann")
    others = Array("others", [600] * 6, slots=4, at_s=60, owner="bob")
    settings = replace(BASE, limits=Limits(instances_per_user=1))
    config = replace(LEARN, order="arrival", thin=100)  # all are in the first queue
    world = World(backed(config=config), [greedy, others], limit=3, settings=settings)
    took = world.over()
    # Each of them has one instance: 40 * 500 s and 6 * 600 s.
    assert took["others"] < 6 * 600 + 900
    assert took["greedy"] > 40 * 500


# -- gangs -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_gang_that_was_passed_over_for_long_gets_the_room_that_becomes_free() -> None:
    gang = Array("gang", [60] * 2, slots=4, at_s=1, kind=JobKind.GANG, states=True)
    stream = [Array(f"s{it}", [90, 130] * 2, at_s=40 * it) for it in range(30)]
    config = POLICY.config(estimator="fifo", queues=1, age_cap=5)
    starved = replace(config, age_cap=0)

    def took(chosen: object) -> float:
        world = World(backed(config=chosen), [*stream, gang], limit=2)
        return world.until(*world.arrays)["gang"]

    assert took(config) < 0.5 * took(starved)


# -- what users are told ---------------------------------------------------------------------------


def test_whoever_waits_is_told_in_which_queue_and_that_others_come_first() -> None:
    world = World(backed(), limit=1)
    done = RunState.SUCCEEDED
    assert world.cluster.run(
        lambda: sum(it.state is done for it in world.cluster.state.runs.values()) >= 20
    )
    waiting = {it.job: it.waiting_for for it in world.cluster.state.runs.values() if it.waiting_for}
    assert waiting[JobId("long-1")] == (
        "queue 3 of 10, for jobs with 2.8 h to less than 27.8 h of work: others come first;"
        " limit of c.4@local/on-demand reached"
    )
