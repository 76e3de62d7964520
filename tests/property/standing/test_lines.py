"""Whatever goes wrong, no member of a pool is idle while a waiting head fits there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.lines.memory import LineMemory
from eva_master.control.standing.standing import Standing
from eva_master.control.state.store import State
from eva_master.control.supply import availability
from eva_master.model.events import DrainRequested
from eva_master.model.planning.standing import Line
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_wire.values.ids import Millis
from eva_wire.values.states import InstanceState, JobState, RunState
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.pools.policy import CapriciousLines
from tests.property.test_control_loop import (
    CHAOS_MS,
    Story,
    _check_end,
    _check_now,
    _stuck,
    _world,
    stories,
    times,
)

drains = st.lists(st.tuples(times, st.integers(0, 9), st.booleans()), max_size=2)


def _waits(state: State, run: TaskRun) -> bool:
    idle = run.state is RunState.WAITING and run.target is None and run.job in state.active
    return idle and not any(it.in_hand for it in state.runs.others(run))


def _within(state: State, job: Job) -> bool:
    """Whether the job's own limit of tasks at a time leaves room for one more."""
    most = job.spec.array.concurrency
    held = sum(run.instance is not None or run.target is not None for run in state.members(job.id))
    return most is None or held < most


def _free(state: State, instance: Instance) -> Resources:
    free = instance.offering.type.capacity
    for run in state.runs.values():
        if instance.id in (run.instance, run.target):
            task = state.jobs[run.job].spec.tasks[run.index]
            free = free - (task.demand_on(instance.offering.type.family) or NOTHING)
    return free


def _may_start(job: Job, now: Millis) -> bool:
    alone = len(job.spec.tasks) == 1 or not job.is_gang
    at_work = job.state in (JobState.PENDING, JobState.RUNNING) and not job.waits
    asked = job.suspension is None
    return alone and at_work and asked and now >= job.not_before_ms


def _has_cap_left(state: State, line: Line, job: Job) -> bool:
    most = dict(line.at_most).get(job.id)
    left = sum(not _waits(state, run) for run in state.members(job.id))
    return most is None or left < most


def _standing_in(state: State, line: Line, job: Job) -> list[TaskRun]:
    """The waiting tasks of a job that stand in a line."""
    chosen = dict(line.chosen).get(job.id, range(len(job.spec.tasks)))
    return [it for it in state.members(job.id) if _waits(state, it) and it.index in chosen]


def _check_lines(world: ChaoticWorld) -> int:
    """No waiting head fits on a member; returns how many members were looked at."""
    standings = world.machine._context.memory(LineMemory).standings
    return sum(_check_partition(world, name, it) for name, it in standings.items())


def _check_partition(world: ChaoticWorld, partition: str, standing: Standing) -> int:
    state, context = world.state, world.machine._context
    looked = 0
    for pool in standing.pools:
        for name in pool.members:
            instance = state.instances[name]
            ready = instance.state is InstanceState.READY and instance.id in state.sessions
            if name in pool.closed or not ready or not state.can_place(instance.id):
                continue
            looked += 1
            free = _free(state, instance)
            for line in standing.lines:
                if pool.name not in line.pools or (line.only and name not in line.only):
                    continue
                for job in map(state.jobs.__getitem__, line.jobs):
                    if job.partition != partition:
                        continue  # it has moved, and the next plan says so
                    if not _may_start(job, context.now) or not _has_cap_left(state, line, job):
                        continue
                    if not _within(state, job) or availability.held_back(context, job.id):
                        continue
                    for run in _standing_in(state, line, job):
                        if run.not_before_ms > context.now:
                            continue
                        need = state.task(run).demand_on(instance.offering.type.family)
                        assert need is None or not need.fits(free), f"{run.id} fits on {name}"
    return looked


def _check_bound(world: ChaoticWorld) -> None:
    """No task waits for an instance that a line has given it, and nobody comes to a drained one."""
    for run in world.state.runs.values():
        assert not (run.pool and run.state is RunState.WAITING), run
    for name in world.state.membership.draining:
        for run in world.state.places.targeting(name):
            assert run.instance == name, f"{run.id} is on its way to {name}"
    for instance in world.state.instances.values():
        if instance.state is InstanceState.TERMINATING and instance.reason == "empty":
            assert not instance.pool or instance.drain is not None, instance


def _live(world: ChaoticWorld, story: Story) -> int:
    looked = 0
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.arrivals) and world.quiet():
                return looked
        assert world.timeline.now() < 20 * CHAOS_MS, _stuck(world)
        world.step()
        _check_now(world)
        _check_bound(world)
        looked += _check_lines(world)


def _check_pools(world: ChaoticWorld) -> None:
    """The rows of pools are parts of what instances cost, and add up whoever has died meanwhile."""
    accounts, rows = world.state.instance_accounts.values(), world.state.totals.pools
    for account in accounts:
        stood = dict(account.standing).values()
        assert sum(it.charged for it in stood) <= account.charged
        assert all(0 <= it.idle <= it.charged for it in stood)
    for pool, row in rows.items():
        there = [dict(it.standing)[pool] for it in accounts if pool in dict(it.standing)]
        assert row.charged == sum(it.charged for it in there)
        assert row.idle == sum(it.idle for it in there)


def _with_lines(story: Story, drained: list[tuple[int, int, bool]]) -> ChaoticWorld:
    other = CapriciousPolicy(story.seed, CHAOS_MS)
    world = _world(story, policy=CapriciousLines(story.seed, CHAOS_MS, other))

    def drain(index: int, moves: bool) -> None:
        live = sorted(world.state.live)
        if live:
            command = f"drain-{world.timeline.now()}"
            world.inbox.post(DrainRequested(command, live[index % len(live)], moves, "ops"))

    for at, index, moves in drained:
        world.timeline.after(at, lambda i=index, m=moves: drain(i, m))
    return world


@drawn(8)
@given(stories, drains)
def test_no_room_stays_free_for_which_a_task_stands_in_line(
    story: Story, drained: list[tuple[int, int, bool]]
) -> None:
    world = _with_lines(story, drained)
    _live(world, story)
    _check_end(world, story)
    _check_pools(world)


@drawn(2)
@given(stories, drains)
def test_the_same_seed_fills_the_same_rooms(
    story: Story, drained: list[tuple[int, int, bool]]
) -> None:
    def history() -> list[object]:
        world = _with_lines(story, drained)
        _live(world, story)
        return [world.history.starts, [it.history for it in world.state.instances.values()]]

    assert history() == history()
