"""Suspends, resumes and preemptions in crowded clusters where everything goes wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from eva_master.model.actions import FetchFiles
from eva_master.model.planning.suspension import Preemption, Suspender
from eva_wire.values.bounds import JobKind
from tests.drawing import drawn
from tests.fakes.chaos import ChaoticWorld
from tests.property.test_control_loop import (
    Arrival,
    Story,
    _check_end,
    _check_now,
    _live,
    _world,
)

times = st.integers(0, 900).map(lambda s: s * 1000)
crowds = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrivals=st.lists(
        st.builds(
            Arrival,
            at_ms=st.integers(0, 400).map(lambda s: s * 1000),
            kind=st.sampled_from(JobKind),
            tasks=st.integers(1, 3),
            cpus=st.sampled_from([2, 4, 8]),
            duration_s=st.integers(100, 900),
            failures=st.integers(0, 1),
            all_publish=st.booleans(),
            cancel_after_ms=st.just(None),
            after=st.just(()),
            priority=st.integers(0, 3),
            rests=st.just(())
            | st.tuples(st.tuples(st.integers(50_000, 900_000), st.integers(0, 200_000))),
        ),
        min_size=3,
        max_size=6,
    ),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(20, 300), max_size=4),
    cuts=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 100_000)), max_size=3),
    deaths=st.lists(st.tuples(times, st.integers(0, 9)), max_size=2),
    wipes=st.just([]),
    risks=st.lists(st.tuples(times, st.integers(0, 9)), max_size=2),
    terminate_ms=st.just(1_000),
    sold_out=st.just(0.0),
    preemption=st.sampled_from(Preemption),
)


class Watched:
    """Counts what happens in a world, and checks what must not."""

    def __init__(self, world: ChaoticWorld) -> None:
        self.seen: Counter[str] = Counter()
        self._world = world
        execute = world.workers.execute

        def sent(action: object) -> None:
            if isinstance(action, FetchFiles):
                run = world.state.runs[action.order.run]
                self.seen["fetched while it waits"] += run.state.value == "waiting"
            execute(action)

        world.workers.execute = sent  # type: ignore[method-assign]

    def look(self) -> None:
        """Note who is suspended, and by whom."""
        state = self._world.state
        for name in state.active:
            job = state.jobs[name]
            self.seen["at rest"] += job.resting_ms is not None
            for run in state.members(name):
                if run.suspension is None:
                    continue
                self.seen[run.suspension.by] += 1
                if run.suspension.by is Suspender.PRIORITY:
                    assert run.suspension.job is not None
                    other = state.jobs[run.suspension.job]
                    assert other.spec.priority > job.spec.priority


def _lived(story: Story) -> Counter[str]:
    world = _world(story)
    watched = Watched(world)
    step = world.step

    def stepped() -> None:
        step()
        watched.look()

    world.step = stepped  # type: ignore[method-assign]
    _live(world, story)
    _check_end(world, story)
    _check_now(world)
    return watched.seen


def _gang(at_s: int, tasks: int, cpus: int, duration_s: int, priority: int) -> Arrival:
    return Arrival(
        at_ms=at_s * 1000,
        kind=JobKind.GANG,
        tasks=tasks,
        cpus=cpus,
        duration_s=duration_s,
        failures=1,
        all_publish=True,
        cancel_after_ms=None,
        after=(),
        priority=priority,
        rests=(),
    )


# A gang lost a member's place, and a more urgent one waited for those that it kept.
WAITED_FOR_EACH_OTHER = Story(
    seed=110162613,
    arrivals=[
        replace(_gang(213, 2, 4, 275, 1), rests=((746_476, 7_532),)),
        replace(_gang(189, 1, 8, 867, 0), rests=((128_230, 199_999),), all_publish=False),
        _gang(118, 3, 2, 420, 2),
        replace(_gang(135, 2, 8, 297, 3), rests=((477_649, 65_536),), all_publish=False),
        replace(_gang(63, 2, 2, 764, 0), all_publish=False),
        replace(_gang(294, 1, 2, 653, 1), rests=((768_041, 40),), all_publish=False),
    ],
    trouble=0.1,
    fuses=[],
    cuts=[],
    deaths=[(474_000, 6), (658_000, 6)],
    wipes=[],
    risks=[],
    terminate_ms=1_000,
    sold_out=0.0,
    preemption=Preemption.SUSPEND,
)


@drawn(8)
@example(WAITED_FOR_EACH_OTHER)
@given(crowds)
def test_nothing_is_lost_while_jobs_are_suspended(story: Story) -> None:
    _lived(story)


def _crowd(seed: int) -> Story:
    """Large and small jobs of several priorities, one after the other, more than there is room."""
    arrivals = [
        Arrival(
            at_ms=number * 90_000,
            kind=JobKind.GANG if number % 2 else JobKind.ARRAY,
            tasks=3 if number % 2 else 2,
            cpus=8 if number != 2 else 4,
            duration_s=600,
            failures=0,
            all_publish=True,
            cancel_after_ms=None,
            after=(),
            priority=number,
            rests=((200_000, 60_000),) if number == 1 else (),
        )
        for number in range(5)
    ]
    return Story(
        seed,
        arrivals,
        0.1,
        [40, 200],
        [(300_000, 0, 5_000)],
        [],
        [],
        [],
        1_000,
        0.0,
        Preemption.SUSPEND,
    )


def test_all_of_it_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(3):
        seen += _lived(_crowd(seed))
    for what in (Suspender.PRIORITY, Suspender.POLICY, "at rest", "fetched while it waits"):
        assert seen[what], (what, seen)
