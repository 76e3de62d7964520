"""Tasks with several runs: one winner each, never two runs in one place, whatever goes wrong."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.measure import ledger
from eva_master.model.job import Stragglers
from eva_master.model.planning.plan import ExtraRun, Plan, PolicyMemory, Retire
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis, own_run
from eva_wire.values.states import HOLDING, TERMINAL_RUN, JobState, RunState
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.property.test_control_loop import (
    CHAOS_MS,
    Arrival,
    Story,
    _check_end,
    _check_now,
    _live,
    _world,
)

times = st.integers(0, CHAOS_MS // 1000).map(lambda s: s * 1000)
arrays = st.builds(
    Arrival,
    at_ms=st.integers(0, 400).map(lambda s: s * 1000),
    kind=st.just(JobKind.ARRAY),
    tasks=st.integers(1, 4),
    cpus=st.sampled_from([1, 2, 3]),
    duration_s=st.integers(20, 600),
    failures=st.integers(0, 2),
    all_publish=st.booleans(),
    cancel_after_ms=st.none() | st.integers(0, 900_000),
    after=st.just(()) | st.lists(st.integers(0, 3), max_size=1).map(tuple),
    priority=st.integers(0, 2),
    rests=st.just(()) | st.tuples(st.tuples(st.integers(0, 900_000), st.integers(0, 200_000))),
    stragglers=st.just(Stragglers.DUPLICATE),
    slow=st.sampled_from([1, 2, 5]),
)
crowds = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrivals=st.lists(arrays, min_size=1, max_size=4),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(10, 200), max_size=5),
    cuts=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 100_000)), max_size=4),
    deaths=st.lists(st.tuples(times, st.integers(0, 9)), max_size=3),
    wipes=st.lists(st.tuples(times, st.integers(0, 9)), max_size=2),
    risks=st.lists(st.tuples(times, st.integers(0, 9)), max_size=2),
    terminate_ms=st.sampled_from([1_000, 45_000]),
    sold_out=st.just(0.0),
    preemption=st.sampled_from(Preemption),
)


class CapriciousReplicas(CapriciousPolicy):
    """Gives tasks extra runs as it likes, wherever they are and whatever fits, and stops some."""

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, memory = super().plan(snapshot, memory)
        rng = random.Random(f"replicas/{self._seed}/{snapshot.now_ms}")
        if snapshot.now_ms >= self._until_ms:
            return plan, memory
        entries = {entry.run: entry for entry in plan.entries}
        places = [view.id for view in snapshot.instances]
        for run in snapshot.runs:
            if run.ran is not None and places and rng.random() < 0.5:
                entries[run.id] = ExtraRun(run.id, rng.choice(places), "a whim")
            elif run.replica and rng.random() < 0.1:
                entries[run.id] = Retire(run.id, "a whim")
        kept = {entry.on for entry in entries.values() if hasattr(entry, "on")}
        launches = tuple(launch for launch in plan.launches if launch.key in kept)
        return replace(plan, launches=launches, entries=tuple(entries.values())), memory


def _look(world: ChaoticWorld, seen: Counter[str]) -> None:
    """No two runs of a task in one place, at most one winner, and no loser that is lost."""
    state = world.state
    on: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for run, places in world.workers.running().items():
        on[own_run(run), next(iter(places))].add(run)
    assert all(len(runs) == 1 for runs in on.values()), on
    for name in state.jobs:
        doubled = [run for run in state.members(name) if run.replicas]
        for own in doubled:
            runs = [own, *state.runs.extras(own)]
            won = [run for run in runs if run.state is RunState.SUCCEEDED]
            assert len(won) <= 1, won
            held = [run.instance for run in runs if run.state in HOLDING]
            assert len(held) == len(set(held)), runs
            aims = [run.target for run in runs if run.target is not None]
            assert len(aims) == len(set(aims)), runs
            for run in runs[1:]:
                assert run.in_hand or run.state in TERMINAL_RUN, run
            if won:
                going = [run for run in runs if run.state not in TERMINAL_RUN]
                assert all(run.state is RunState.STOPPING for run in going), going
            seen["doubled"] += 1
            seen["both at once"] += len(held) > 1
            seen["extra won"] += bool(won and won[0].extra)
            seen["own won"] += bool(won and not won[0].extra)


def _check_winners(world: ChaoticWorld) -> None:
    """Every task that succeeded has one winner, whose outputs are the task's."""
    state = world.state
    for job in state.jobs.values():
        runs = list(state.members(job.id))
        assert all(run.state in TERMINAL_RUN for run in runs), runs
        won = Counter(run.index for run in runs if run.state is RunState.SUCCEEDED)
        assert all(count == 1 for count in won.values())
        if job.state is JobState.SUCCEEDED:
            assert len(won) == len(job.spec.tasks)
        for run in runs:
            if run.extra and run.state is RunState.SUCCEEDED:
                if job.state is JobState.CANCELLED:
                    continue  # It waits for nothing any more.
                assert world.checkpoints.placed[own_run(run.id)] == run.id
                assert state.runs[own_run(run.id)].outputs_of == run.replica
            elif not run.extra and run.state is RunState.SUCCEEDED:
                assert run.id not in world.checkpoints.placed
    account = ledger.bill(state, world.timeline.now()).jobs
    for name, job in account.items():
        assert 0 <= job.replicas <= job.charged, name


def _lived(story: Story) -> tuple[Counter[str], ChaoticWorld]:
    seen: Counter[str] = Counter()
    world = _world(story, policy=CapriciousReplicas(story.seed, CHAOS_MS))
    step = world.step

    def stepped() -> None:
        step()
        _look(world, seen)

    world.step = stepped  # type: ignore[method-assign]
    _live(world, story)
    _check_now(world)
    _check_end(world, story)
    _check_winners(world)
    return seen, world


@drawn(25)
@given(crowds)
def test_one_run_of_each_task_wins(story: Story) -> None:
    _lived(story)


@drawn(3)
@given(crowds)
def test_replicas_have_the_same_history_again(story: Story) -> None:
    def history() -> list[object]:
        _, world = _lived(story)
        return [
            world.history.starts,
            [run.history for run in world.state.runs.values()],
            ledger.bill(world.state, Millis(0)),
        ]

    assert history() == history()
