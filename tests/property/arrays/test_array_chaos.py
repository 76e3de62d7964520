"""Whatever goes wrong, each task of an array ends once, and no more have a place than may."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.work import Work
from eva_master.control.readside import shown_tasks
from eva_master.control.readside.model import ClusterModel
from eva_master.control.state.store import State
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.job import ArrayRules, FailureRules, JobSpec, Program, TaskSpec
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_master.ports.reading import TaskPage
from eva_wire.values.bounds import ASKS_FOR_RETRY, JobKind
from eva_wire.values.ids import Family, JobId, Millis, RunId, Workload
from eva_wire.values.states import TERMINAL_RUN, JobState, RunState
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.property.test_control_loop import CATALOG, QUICK, _check_now, _pick, _stuck
from tests.property.test_read_model import Audience

CHAOS_MS = 600_000
RETRIES = 2
SMALL = 5
"""Larger jobs are not shown whole to those who read."""


@dataclass(frozen=True)
class Array:
    """An array that arrives.

    Attributes:
        kinds: How many CPUs its tasks need, in turn.
        fails: How often its tasks fail, in turn.
    """

    at_ms: int
    tasks: int
    concurrency: int | None
    kinds: tuple[int, ...]
    fails: tuple[int, ...]
    duration_s: int
    cancel_after_ms: int | None


@dataclass(frozen=True)
class Story:
    seed: int
    arrays: list[Array]
    trouble: float
    fuses: list[int]
    cuts: list[tuple[int, int, int]]
    deaths: list[tuple[int, int]]


times = st.integers(0, CHAOS_MS // 1000).map(lambda s: s * 1000)
arrays = st.builds(
    Array,
    at_ms=times,
    tasks=st.integers(2, 16),
    concurrency=st.none() | st.integers(1, 5),
    kinds=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3).map(tuple),
    fails=st.lists(st.integers(0, RETRIES + 1), min_size=1, max_size=4).map(tuple),
    duration_s=st.integers(1, 120),
    cancel_after_ms=st.none() | st.integers(0, 300_000),
)
stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrays=st.lists(arrays, min_size=1, max_size=2),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(0, 60), max_size=4),
    cuts=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 100_000)), max_size=3),
    deaths=st.lists(st.tuples(times, st.integers(0, 9)), max_size=3),
)


def _spec(number: int, array: Array) -> JobSpec:
    tasks = [
        TaskSpec(Workload(f"w{cpus}"), Program("true"), ((Family("c"), _cpus(cpus)),))
        for cpus in array.kinds
    ]
    return JobSpec(
        f"array{number}",
        "me",
        tuple(tasks[index % len(tasks)] for index in range(array.tasks)),
        kind=JobKind.ARRAY,
        duration_ms=array.duration_s * 1000,
        failing=FailureRules(retries=RETRIES),
        array=ArrayRules(concurrency=array.concurrency),
    )


def _cpus(number: int) -> Resources:
    return Resources(0, number * 1000, 1024)


def _world(story: Story) -> tuple[ChaoticWorld, Audience]:
    def work_of(run: RunId) -> Work:
        record = world.state.runs[run]
        name = world.state.jobs[record.job].spec.name
        array = story.arrays[int(name.removeprefix("array"))]
        often = array.fails[record.index % len(array.fails)]
        return Work(array.duration_s * 1000, failures=[ASKS_FOR_RETRY] * often)

    world = ChaoticWorld(
        CATALOG,
        CapriciousPolicy(story.seed, CHAOS_MS),
        seed=story.seed,
        trouble=story.trouble,
        fuses=story.fuses,
        settings=QUICK,
        work_of=work_of,
        truth=lambda _workload, others: 0.9 ** len(others),
    )
    audience = Audience(world.answers.replies)
    world.answers = world.loop._replies = audience
    for number, array in enumerate(story.arrays):
        _schedule(world, number, array)
    for at, index, back in story.cuts:
        world.timeline.after(at, lambda i=index, b=back: _pick(world, i, "cut", b))
    for at, index in story.deaths:
        world.timeline.after(at, lambda i=index: _pick(world, i, "die", 0))
    return world, audience


def _schedule(world: ChaoticWorld, number: int, array: Array) -> None:
    command = f"submit-{number}"

    def arrive() -> None:
        # A user whose master died submits again, with the same command id.
        if command not in world.answers.replies:
            world.inbox.post(JobSubmitted(command, _spec(number, array)))
            world.timeline.after(20_000, arrive)

    def cancel() -> None:
        reply = world.answers.replies.get(command)
        if reply is not None and reply.job is not None:
            world.inbox.post(CancelRequested(f"cancel-{number}", reply.job))

    world.timeline.after(array.at_ms, arrive)
    if array.cancel_after_ms is not None:
        world.timeline.after(array.at_ms + array.cancel_after_ms, cancel)


def _check_counts(state: State) -> None:
    """What is counted with each change is what a walk over all records finds."""
    for name, job in state.jobs.items():
        runs = list(state.members(name))
        tasks = state.tasks[name]
        assert +Counter(tasks.counts) == Counter(run.state for run in runs)
        held = {it.id for it in runs if it.instance is not None or it.target is not None}
        assert tasks.in_hand.keys() == held
        if job.spec.array.concurrency is not None:
            assert len(held) <= job.spec.array.concurrency, (job.id, held)
    for name in state.live:
        occupants = state.occupants(name)
        total = NOTHING
        for run in occupants:
            total = total + (state.task(run).demand_on(Family("c")) or NOTHING)
        assert state.company.taken(name) == total
        assert list(state.company.jobs_on(name)) == list(
            dict.fromkeys(run.job for run in occupants)
        )
        running = [run for run in occupants if run.state is RunState.RUNNING]
        groups = Counter((it.job, it.progress.rate, id(state.task(it))) for it in running)
        found = {
            (it.job, it.progress.rate, id(state.task(it))): count
            for it, count in state.company.groups(name)
        }
        assert found == groups


def _check_readers(state: State, model: ClusterModel) -> None:
    """Readers are told the same, whichever tasks they ask for, and of few where there are many."""
    now = Millis(model.at_ms)
    for name, job in state.jobs.items():
        runs = list(state.members(name))
        size = len(runs)
        record = model.record(name, now)
        assert record.states == Counter(run.state for run in runs)
        assert set(record.runs) <= set(runs)
        assert model.in_hand(name) == tuple(
            it for it in runs if it.instance is not None or it.target is not None
        )
        page = TaskPage(size // 2, 3)
        assert list(model.record(name, now, page).runs) == runs[size // 2 :][:3]
        failed = [run for run in runs if run.state is RunState.FAILED]
        assert list(model.record(name, now, TaskPage(0, 1_000, failed=True)).runs) == failed
        if size > SMALL:
            _check_shown(job, runs, record.runs)


def _check_shown(job: Job, runs: list[TaskRun], shown: tuple[TaskRun, ...]) -> None:
    assert len({run.id for run in shown}) == len(shown)
    seen = {run.id for run in shown}
    mattering = [it for it in runs if it.state is RunState.FAILED or it.suspension is not None]
    assert all(it.id in seen for it in mattering if it.suspension is None), job.id
    ended = sorted((it.history[-1][1] for it in runs if it.state in TERMINAL_RUN), reverse=True)
    if ended and job.outcome is None:
        assert any(it.state in TERMINAL_RUN and it.history[-1][1] == ended[0] for it in shown)


def _live(story: Story) -> ChaoticWorld:
    world, audience = _world(story)
    steps = 0
    while world.timeline.now() < CHAOS_MS or not _over(world, story):
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
        assert world.timeline.now() < 30 * CHAOS_MS, _stuck(world)
        world.step()
        steps += 1
        _check_now(world)
        _check_concurrency(world)
        if steps % 7 == 0:
            _check_counts(world.state)
            model = audience.model
            if model is not None and model.at_ms == world.machine._context.now:
                _check_readers(world.state, model)
    _check_counts(world.state)
    return world


def _over(world: ChaoticWorld, story: Story) -> bool:
    accepted = sum(command.startswith("submit-") for command in world.answers.replies)
    return accepted == len(story.arrays) and world.quiet()


def _check_concurrency(world: ChaoticWorld) -> None:
    """On the machines themselves no more tasks of a job run than it allows."""
    there = Counter(world.state.runs[run].job for run in world.workers.running())
    for name, count in there.items():
        most = world.state.jobs[name].spec.array.concurrency
        assert most is None or count <= most, f"{count} tasks of {name} run"


def _check_end(world: ChaoticWorld, story: Story) -> None:
    state = world.state
    # Of a failure on a machine that is lost nobody may hear.
    heard = not (story.deaths or story.cuts or story.fuses or story.trouble)
    for number, array in enumerate(story.arrays):
        job = state.jobs[JobId(str(world.answers.replies[f"submit-{number}"].job))]
        doomed = any(often > RETRIES for often in array.fails[: array.tasks])
        allowed = {JobState.FAILED} if doomed and heard else {JobState.SUCCEEDED}
        if doomed:
            allowed.add(JobState.FAILED)
        if array.cancel_after_ms is not None:
            allowed.add(JobState.CANCELLED)
        assert job.state in allowed, (job.id, job.state, job.reason)
        for run in state.members(job.id):
            ends = [name for name, _ in run.history if RunState(name) in TERMINAL_RUN]
            assert ends == [run.history[-1][0]], f"{run.id} ended {len(ends)} times"
            often = array.fails[run.index % len(array.fails)]
            assert run.failures <= often, run
            if job.state is JobState.SUCCEEDED:
                assert run.state is RunState.SUCCEEDED
                assert run.failures == often or not heard, run


def _check_restart(world: ChaoticWorld) -> None:
    """A master that begins with the journal knows what this one knows."""
    state = world.state
    again = State.restored(CATALOG, world.journal.load())
    assert dict(again.jobs) == dict(state.jobs)
    assert dict(again.runs) == dict(state.runs)
    for name in state.jobs:
        assert again.tasks[name].counts == state.tasks[name].counts
        finished = state.finished_tasks.of(state.jobs[name])
        assert (
            again.tasks[name].counted(finished).ended == state.tasks[name].counted(finished).ended
        )


@drawn(20)
@given(stories)
def test_each_task_of_an_array_ends_once_whatever_goes_wrong(story: Story) -> None:
    with patch.object(shown_tasks, "SMALL_JOB", SMALL):
        world = _live(story)
        _check_end(world, story)
        _check_restart(world)
        assert _live(story).journal.load() == world.journal.load(), "the same story went otherwise"
