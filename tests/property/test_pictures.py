"""Snapshots are kept up to date piece by piece, and are those that would be made from scratch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given

from eva_master.control.planning import snapshot_builder
from eva_master.control.state.store import State
from eva_master.control.state.view_cache import ViewCache
from eva_master.model.planning.job_view import NO_GPU_TIME
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.model.records import TaskRun
from eva_master.testing.job_views import changed
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import LIVE, TERMINAL_RUN, InstanceState, JobState
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property.test_control_loop import CHAOS_MS, QUICK, Story, _world, stories


def _from_scratch(state: State, now: Millis) -> Snapshot:
    """All over again: nothing that was kept is looked at."""
    kept, state.view_cache = state.view_cache, ViewCache()
    for job in state.jobs:
        state.view_cache.job_changed(job)
    for instance in state.instances:
        state.view_cache.instance_changed(instance)
    made = snapshot_builder.snapshot(state, now, QUICK)
    state.view_cache = kept
    return made


def _place(state: State, run: TaskRun) -> InstanceId | None:
    """Where a task run should be, unless it is to leave there."""
    known = None if run.target is None else state.instances[run.target]
    return None if known is None or known.at_risk else known.id


def _check(state: State, now: Millis, seen: Snapshot) -> None:
    """What is in the snapshot is what the records say."""
    made = _from_scratch(state, now)
    assert _without_work(seen) == _without_work(made)
    # What was told of the work that is left stands until it is far off.
    assert [run.remaining is None for run in seen.runs] == [
        run.remaining is None for run in made.runs
    ]
    assert [job.id for job in seen.jobs] == sorted(
        job
        for job in state.active
        if state.jobs[job].state is not JobState.ENDING
        and not state.jobs[job].waits
        and state.jobs[job].suspension is None
    )
    shown = {job.id for job in seen.jobs}
    runs = {
        c.id: c
        for c in state.runs.values()
        # Members of an elastic gang beyond its size rest.
        if c.job in shown and c.state not in TERMINAL_RUN and c.index < state.jobs[c.job].members
        # While an extra run is in hand, the task's own waits for no plan.
        if c.in_hand or not any(it.in_hand for it in state.runs.others(c))
    }
    assert [(view.id, view.instance) for view in seen.runs] == [
        (name, _place(state, runs[name])) for name in sorted(runs)
    ]
    residents: defaultdict[InstanceId, list[RunId]] = defaultdict(list)
    for view in seen.runs:
        if view.instance is not None:
            residents[view.instance].append(view.id)
    assert list(seen.instances) == [
        InstanceView(
            name,
            seen_as.offering,
            tuple(residents[name]),
            state.instances[name].state is InstanceState.READY,
        )
        for seen_as in seen.instances
        for name in [seen_as.id]
    ]
    live = sorted(n for n, it in state.instances.items() if it.state in LIVE and not it.at_risk)
    assert [view.id for view in seen.instances] == live


def _timeless(seen: Snapshot) -> Snapshot:
    """What a snapshot says that only a new revision may change."""
    seen = _without_work(seen)
    runs = tuple(replace(run, since_ms=None) for run in seen.runs)
    jobs = tuple(changed(job, attained=NO_GPU_TIME, lease_ms=None) for job in seen.jobs)
    return replace(seen, now_ms=Millis(0), jobs=jobs, runs=runs)


def _without_work(seen: Snapshot) -> Snapshot:
    jobs = tuple(changed(job, estimate=None, steps_left=None) for job in seen.jobs)
    return replace(
        seen, jobs=jobs, runs=tuple(replace(run, remaining=None, ran=None) for run in seen.runs)
    )


def _live(world: ChaoticWorld) -> None:
    """Take a snapshot after every third step: what has changed meanwhile adds up."""
    before, view_cache, number = None, None, 0
    for step in range(100_000):
        if world.timeline.now() >= CHAOS_MS:
            return
        world.step()
        if step % 3:
            continue
        state, now = world.state, world.timeline.now()
        seen = snapshot_builder.snapshot(state, now, QUICK)
        _check(state, now, seen)
        revision = snapshot_builder.revision(state, now, QUICK)
        if before is not None and state.view_cache is view_cache and revision == number:
            assert _timeless(before) == _timeless(seen), "what is new has a new number"
        before, view_cache, number = seen, state.view_cache, revision
    raise AssertionError("time does not pass")


@drawn(12)
@given(stories)
def test_a_picture_kept_up_to_date_is_the_one_made_from_scratch(story: Story) -> None:
    _live(_world(story))
