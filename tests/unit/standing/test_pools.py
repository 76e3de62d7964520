"""Pools and lines: whose turn it is, what stays, and what is drained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.context import Context
from eva_master.control.features.installed import features
from eva_master.control.features.pools import filling
from eva_master.control.measure import ledger
from eva_master.control.planning.validate_plan import reconcile
from eva_master.control.settings import Limits, Settings
from eva_master.control.standing.queue import Queue, Shape
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Standing
from eva_master.control.state.store import State
from eva_master.model.accounting.pool_costs import PoolCost
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import DrainRequested
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Again, NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import Instance, TaskRun
from eva_master.model.resources import Resources
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, Price, Workload, run_id
from eva_wire.values.states import InstanceState, JobState, RunState
from tests.drawing import drawn
from tests.fakes.pools.policy import Config, PoolPolicy

ONE = Resources(0, 1000, 1024)
SHAPE: Shape = ((Family("c"), ONE),)
BOX = Offering(
    InstanceType("box", Family("c"), Resources(0, 2000, 2048), acquisition_ms=0, setup_ms=1000),
    Price(1_000_000),
)
TASK = TaskSpec(Workload("w"), Program("true"), SHAPE)
QUICK = Settings(round_gap_ms=1_000, round_period_ms=60_000)


def _array(name: str, tasks: int, seconds: int = 100) -> JobSpec:
    return JobSpec(name, "me", (TASK,) * tasks, kind=JobKind.ARRAY, duration_ms=seconds * 1000)


class Rooms:
    """Members with some slots each, filled by hand."""

    def __init__(
        self,
        slots: int,
        lines: tuple[Line, ...],
        waiting: dict[str, int],
        large: Collection[str] = (),
    ) -> None:
        self.standing = Standing()
        self.slots = slots
        self.total = dict(waiting)
        self.left = dict(waiting)
        self._large = large
        self.held: Counter[str] = Counter()
        self.now = Millis(0)
        self.state(lines)

    def state(self, lines: tuple[Line, ...]) -> None:
        """A plan states the lines."""

        def queue(job: JobId) -> Queue:
            task = replace(TASK, demand=((Family("c"), ONE + ONE),)) if job in self._large else TASK
            return Queue((task,) * self.total[job], ())

        self.standing.state((Pool("p", (InstanceId("i"),), "why"),), lines, queue, lambda _: ())

    def fill(self) -> Counter[str]:
        """Fill all that is free; who took it."""
        began: Counter[str] = Counter()
        while (head := self.standing.next(self._room, lambda _: True, self.now)) is not None:
            began[head.job] += 1
            self.left[head.job] -= 1
            self.held[head.job] += 1
            self._follow(head.job, head.index, InstanceId("i"), RunState.RUNNING)
        return began

    def end(self, job: str, index: int) -> None:
        """A task has ended."""
        self.held[job] -= 1
        self._follow(job, index, None, RunState.SUCCEEDED)

    def _room(self, _: InstanceId) -> MemberRoom:
        free = self.slots - sum(self.held.values())
        return MemberRoom("p", Family("c"), Resources(0, 1000 * free, 1024 * free))

    def _follow(self, job: str, index: int, place: InstanceId | None, state: RunState) -> None:
        history = ((state.value, 0),)
        run = TaskRun(run_id(JobId(job), index), JobId(job), index, history, target=place)
        self.standing.follow(run, Millis(0))
        self.standing.touch_job(JobId(job))
        self.standing.touch_instance(InstanceId("i"))


def _fair(slots: int, weights: tuple[int, ...], waiting: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Every division of full slots in which nobody holds a slot that is rather another's."""
    return {
        held
        for held in product(*(range(n + 1) for n in waiting))
        if sum(held) == min(slots, sum(waiting))
        and all(
            Fraction(mine, weights[n]) >= Fraction(other - 1, weights[m])
            for n, mine in enumerate(held)
            for m, other in enumerate(held)
            if mine < waiting[n] and other and n != m
        )
    }


@drawn(20)
@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3),
)
def test_lines_of_one_rank_share_by_weight(slots: int, lines: list[tuple[int, int]]) -> None:
    weights = tuple(weight for weight, _ in lines)
    waiting = tuple(tasks for _, tasks in lines)
    stated = tuple(
        Line(("p",), (JobId(f"j{n}"),), weight_ppm=weight * MILLION)
        for n, weight in enumerate(weights)
    )
    rooms = Rooms(slots, stated, {f"j{n}": tasks for n, tasks in enumerate(waiting)})
    began = rooms.fill()
    assert tuple(began[f"j{n}"] for n in range(len(lines))) in _fair(slots, weights, waiting)


def test_what_a_task_counts_for_decides_how_many_are_as_much() -> None:
    stated = (
        Line(("p",), (JobId("large"),), sizes=((JobId("large"), 3),)),
        Line(("p",), (JobId("small"),)),
    )
    rooms = Rooms(8, stated, {"large": 8, "small": 8})
    assert rooms.fill() == {"large": 2, "small": 6}
    rooms.end("large", 0)
    assert rooms.fill() == {"large": 1}, "the other one holds twice as much"


def test_a_lower_rank_is_served_first_and_a_cap_holds() -> None:
    lines = (
        Line(("p",), (JobId("long"),), rank=1),
        Line(("p",), (JobId("pilots"), JobId("short")), at_most=((JobId("pilots"), 2),)),
    )
    rooms = Rooms(4, lines, {"long": 9, "pilots": 9, "short": 1})
    assert rooms.fill() == {"pilots": 2, "short": 1, "long": 1}
    # One that has ended counts on: the cap is about how many have been begun.
    rooms.end("pilots", 0)
    assert rooms.fill() == {"long": 1}


def test_a_head_that_is_passed_over_for_too_long_goes_first() -> None:
    lines = (
        Line(("p",), (JobId("short"),), patience_ms=600_000),
        Line(("p",), (JobId("long"),), rank=1),
    )
    rooms = Rooms(1, lines, {"short": 9, "long": 9})
    assert rooms.fill() == {"short": 1}

    def next_at(seconds: int) -> str:
        """Who takes the slot once it becomes free at a time."""
        (job,) = (name for name, held in rooms.held.items() if held)
        rooms.now = Millis(seconds * 1000)
        rooms.end(job, 9 - rooms.left[job] - 1)
        (began,) = rooms.fill()
        return began

    assert [next_at(seconds) for seconds in (100, 599)] == ["short", "short"]
    assert next_at(600) == "long", "it could have had the slot ten minutes ago"
    # From then on its patience begins anew, at the next that is put before it.
    assert [next_at(seconds) for seconds in (700, 1299)] == ["short", "short"]
    assert next_at(1300) == "long"


def test_a_plan_that_states_the_same_again_does_not_make_patience_begin_anew() -> None:
    lines = (
        Line(("p",), (JobId("short"),), patience_ms=600_000),
        Line(("p",), (JobId("long"),), rank=1),
    )
    rooms = Rooms(1, lines, {"short": 9, "long": 9})
    assert rooms.fill() == {"short": 1}
    rooms.now = Millis(300_000)
    rooms.state(lines)
    rooms.now = Millis(600_000)
    rooms.end("short", 0)
    assert rooms.fill() == {"long": 1}


def test_who_could_not_have_had_the_room_is_not_passed_over() -> None:
    lines = (
        Line(("p",), (JobId("short"),), patience_ms=600_000),
        Line(("p",), (JobId("large"),), rank=1),
    )
    rooms = Rooms(1, lines, {"short": 9, "large": 1}, large={"large"})
    assert rooms.fill() == {"short": 1}
    rooms.now = Millis(10**9)
    rooms.end("short", 0)
    assert rooms.fill() == {"short": 1}


def test_a_first_start_removes_a_task_from_all_lines() -> None:
    lines = (Line(("p",), (JobId("a"),)), Line(("p",), (JobId("a"),), rank=1))
    rooms = Rooms(5, lines, {"a": 3})
    assert rooms.fill() == {"a": 3}


def test_a_line_may_be_limited_to_named_members() -> None:
    lines = (Line(("p",), (JobId("a"),), only=(InstanceId("other"),)), Line(("p",), (JobId("b"),)))
    assert Rooms(4, lines, {"a": 3, "b": 1}).fill() == {"b": 1}


class Scripted:
    """States what the test says."""

    name = "scripted"

    def __init__(self, plan: Plan) -> None:
        self.now = plan

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        self.seen = snapshot
        return self.now, memory


def _running(world: SimulatedCluster, number: int) -> bool:
    return sum(run.state is RunState.RUNNING for run in world.state.runs.values()) >= number


def test_room_is_filled_in_the_turn_that_hears_of_it() -> None:
    settings = Settings(round_gap_ms=10_000_000, round_period_ms=10_000_000)
    world = SimulatedCluster((BOX,), PoolPolicy(Config(size=1)), settings=settings)
    world.submit(_array("a", 6, seconds=10))
    assert world.run(lambda: _all_ended(world))
    # The first round was before the job came.
    assert world.state.counters.rounds == 2, "no other round was needed"
    runs = list(world.state.runs.values())
    assert {run.pool for run in runs} == {"small"}
    ended = sorted(dict(run.history)["succeeded"] for run in runs)
    assert ended[-1] - ended[0] < 60_000


_OVER = (JobState.SUCCEEDED, JobState.FAILED)


def _all_ended(world: SimulatedCluster) -> bool:
    jobs = world.state.jobs.values()
    return bool(jobs) and all(job.state in _OVER for job in jobs)


def test_a_plan_is_made_again_when_it_says_so() -> None:
    asked: list[int] = []

    class Impatient:
        name = "impatient"

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            asked.append(snapshot.now_ms)
            later = (30_000, 5_000)[len(asked) - 1] if len(asked) < 3 else None
            return Plan(again=Again(later and Millis(snapshot.now_ms + later))), memory

    settings = Settings(round_gap_ms=1_000, round_period_ms=10_000_000)
    world = SimulatedCluster((BOX,), Impatient(), settings=settings)
    world.run(lambda: False, limit_ms=300_000)
    first = asked[0]
    assert [at - first for at in asked] == [0, 30_000, 35_000]


def test_only_the_newest_plan_says_when_there_is_to_be_another() -> None:
    asked: list[int] = []

    class Steady:
        name = "steady"

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            asked.append(snapshot.now_ms)
            return Plan(again=Again(Millis(snapshot.now_ms + 10_000))), memory

    world = SimulatedCluster((BOX,), Steady(), settings=Settings(round_gap_ms=100))
    for number in range(5):
        world.timeline.after(
            1_000 * number + 500, lambda n=number: world.submit(_array(f"a{n}", 1))
        )
    world.run(lambda: False, limit_ms=100_000)
    # Jobs that come have plans made, and none of these leaves a rhythm of its own behind.
    assert len(asked) <= 5 + 100_000 // 10_000 + 2


@pytest.mark.parametrize("beside", [False, True])
def test_room_that_no_line_gives_on_is_planned_for_if_somebody_else_waits(beside: bool) -> None:
    class Lines(PoolPolicy):
        asked = 0

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            self.asked += 1
            plan, after = super().plan(snapshot, memory)
            # The second job waits, and stands in no line.
            lines = tuple(replace(it, jobs=it.jobs[:1]) for it in plan.lines)
            return replace(plan, lines=tuple(it for it in lines if it.jobs == ("a-1",))), after

    policy = Lines(Config(size=1))
    settings = Settings(round_gap_ms=1_000, round_period_ms=10_000_000)
    world = SimulatedCluster((replace(BOX, limit=1),), policy, settings=settings)
    world.submit(_array("a", 2, seconds=10))
    if beside:
        world.submit(_array("b", 1, seconds=10))
    assert world.run(lambda: _running(world, 2))
    before = policy.asked
    assert world.run(lambda: world.state.jobs[JobId("a-1")].state in _OVER)
    world.run(lambda: False, limit_ms=20_000)
    assert (policy.asked > before) is beside


def test_members_stay_though_empty_and_what_they_cost_is_booked_under_the_pool() -> None:
    world = SimulatedCluster((BOX,), PoolPolicy(Config(size=2, keeps=True)), settings=QUICK)
    world.run(lambda: False, limit_ms=600_000)
    state = world.state
    assert [it.state for it in state.instances.values()] == [InstanceState.READY] * 2
    bill = ledger.bill(state, world.timeline.now())
    assert bill.charged == bill.idle > 0
    stood = sum(dict(it.standing)["small"].idle for it in bill.instances.values())
    assert stood == bill.idle
    # A master that comes after knows them, and the first plan states them again.
    world.restart()
    world.run(lambda: False, limit_ms=300_000)
    assert [it.state for it in world.state.instances.values()] == [InstanceState.READY] * 2
    for name in list(world.state.live):
        ledger.book(world.state, name, world.timeline.now())
    totals = world.state.totals
    assert totals.pools == {"small": PoolCost(charged=totals.charged, idle=totals.idle)}


def test_who_leaves_a_pool_is_drained_and_may_be_taken_back() -> None:
    pool = Pool("p", (0,), "for a")
    policy = Scripted(Plan((NewInstance(0, BOX),), pools=(pool,)))
    world = SimulatedCluster((BOX,), policy, settings=QUICK)
    world.submit(_array("a", 4, seconds=1000))
    world.run(lambda: bool(world.state.instances))
    (name,) = world.state.instances
    policy.now = Plan(pools=(Pool("p", (name,), "for a"),), lines=(Line(("p",), (JobId("a-1"),)),))
    assert world.run(lambda: _running(world, 2))
    policy.now = Plan()
    assert world.run(lambda: name in world.state.membership.draining)
    assert world.run(lambda: bool(policy.seen.draining))
    assert [(it.id, len(it.residents), it.pool) for it in policy.seen.draining] == [(name, 2, "p")]
    assert len(policy.seen.runs) == 2, "those who finish there are no matter for plans"
    policy.now = Plan(pools=(Pool("p", (name,), "again"),), lines=(Line(("p",), (JobId("a-1"),)),))
    assert world.run(lambda: name in world.state.membership.standing)
    assert world.run(lambda: _all_ended(world))
    policy.now = Plan()
    assert world.run(lambda: not world.state.live)
    assert world.state.instances[name].reason == "left the pool p"


@pytest.mark.parametrize("moves", [False, True])
def test_an_operator_drains_an_instance_and_no_plan_takes_it_back(moves: bool) -> None:
    # A line takes those who wait, so who is to move gets another place by a plan alone.
    policy = NO_PACKING.build(NO_PACKING.config()) if moves else PoolPolicy(Config(1, keeps=True))
    world = SimulatedCluster((BOX,), policy, settings=QUICK)
    world.submit(_array("a", 4))
    assert world.run(lambda: _running(world, 2))
    first = next(iter(world.state.live))
    for number in range(2):  # it may be said again
        world.inbox.post(DrainRequested(f"d{number}", first, moves, "ops"))
    assert world.run(lambda: world.state.instances[first].state is InstanceState.TERMINATING)
    drained = world.state.instances[first]
    assert drained.reason == "drained by ops"
    assert world.answers.replies["d0"].error is world.answers.replies["d1"].error is None
    ended = [dict(run.history).get("succeeded") for run in world.state.runs.values()]
    assert world.run(lambda: _all_ended(world))
    runs = list(world.state.runs.values())
    left = [run for run in runs if run.moves]
    assert bool(left) == moves, "only who was to move has moved"
    if not moves:
        assert sum(at is not None for at in ended) == 2, "those who were there have finished there"


def test_what_is_not_there_cannot_be_drained() -> None:
    world = SimulatedCluster((BOX,), PoolPolicy(Config(size=1)), settings=QUICK)
    world.inbox.post(DrainRequested("d", InstanceId("i7"), False, "ops"))
    world.run(lambda: "d" in world.answers.replies)
    assert isinstance(world.answers.replies["d"].error, NotFound)


def test_pools_keep_to_the_limits_of_the_cluster_and_of_offerings() -> None:
    settings = Settings(round_gap_ms=1_000, round_period_ms=60_000, limits=Limits(instances=3))
    policy = Scripted(
        Plan(
            tuple(NewInstance(n, BOX) for n in range(5)), pools=(Pool("p", tuple(range(5)), "why"),)
        )
    )
    world = SimulatedCluster((BOX,), policy, settings=settings)
    world.run(lambda: bool(world.state.instances))
    assert len(world.state.instances) == 3
    scarce = Offering(BOX.type, BOX.price, limit=2)
    policy = Scripted(
        Plan(
            tuple(NewInstance(n, scarce) for n in range(5)),
            pools=(Pool("p", tuple(range(5)), "why"),),
        )
    )
    world = SimulatedCluster((scarce,), policy, settings=QUICK)
    world.run(lambda: bool(world.state.instances))
    assert len(world.state.instances) == 2


def test_a_list_of_tasks_is_served_within_the_bound_of_graham() -> None:
    """With m places a task starts at most (work ahead) / m + the longest task after it came."""
    places = 4
    world = SimulatedCluster((BOX,), PoolPolicy(Config(size=2)), settings=QUICK)
    seconds = [7, 90, 13, 250, 31, 5, 170, 60, 44, 210, 3, 120]
    for number, length in enumerate(seconds):
        world.submit(_array(f"j{number:02}", 1, seconds=length))
    assert world.run(lambda: _all_ended(world))
    starts = {
        job.spec.name: dict(run.history)["starting"]
        for job in world.state.jobs.values()
        for run in world.state.members(job.id)
    }
    took = {
        job.spec.name: dict(run.history)["succeeded"] - starts[job.spec.name]
        for job in world.state.jobs.values()
        for run in world.state.members(job.id)
    }
    # From when all places are there; the line is stated again each round and keeps its order.
    began = max(it.ready_ms or 0 for it in world.state.instances.values())
    order = sorted(starts, key=lambda name: int(name[1:]))
    for place, name in enumerate(order):
        ahead = sum(took[other] for other in order[:place])
        assert starts[name] - began <= ahead / places + max(took.values()), name


@pytest.mark.parametrize("purchase", [Purchase.ON_DEMAND, Purchase.OWNED])
def test_an_owned_node_that_leaves_a_pool_takes_tasks_as_before(purchase: Purchase) -> None:
    state = State((BOX,))
    offering = replace(BOX, purchase=purchase)
    state.put_instance(
        Instance(InstanceId("n"), offering, (("ready", 0),), Millis(0), pool="p", up_ms=Millis(0))
    )
    context = Context(state, QUICK, features(state, QUICK))
    context.begin(Millis(1))
    filling.adopt(context, "", (), (), {})
    assert state.can_place(InstanceId("n")) == (purchase is Purchase.OWNED)
    assert not state.membership.standing


@pytest.mark.parametrize("purchase", [Purchase.ON_DEMAND, Purchase.OWNED])
def test_nobody_launches_owned_nodes_for_a_pool(purchase: Purchase) -> None:
    sold = replace(BOX, purchase=purchase, limit=1)
    plan = Plan((NewInstance(0, sold),), pools=(Pool("p", (0,), "why"),))
    left = reconcile(Snapshot(Millis(0), (sold,), (), (), ()), plan)
    bought = purchase is Purchase.ON_DEMAND
    assert (len(left.launches), left.pools[0].members) == (bought, (0,) * bought)


@pytest.mark.parametrize(("seconds", "failed"), [(30, True), (600, False)])
def test_a_member_that_ends_though_nobody_asked_was_no_failed_boot(
    seconds: int, *, failed: bool
) -> None:
    world = SimulatedCluster((BOX,), PoolPolicy(Config(size=1, keeps=True)), settings=QUICK)
    world.timeline.after(60_000, lambda: None)
    ready = (InstanceState.READY,)
    assert world.run(lambda: [it.state for it in world.state.instances.values()] == [*ready])
    (name,) = world.state.live
    world.timeline.after(seconds * 1_000, lambda: world.cloud.fail(name, "switched off"))
    assert world.run(lambda: name not in world.state.live)
    assert bool(world.state.boots.streaks) == failed
