"""Elastic gangs whose sizes change all the time keep their work, whatever goes wrong on the way."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.policies.sizes import Fickle
from tests.property.test_control_loop import (
    CHAOS_MS,
    Story,
    _check_end,
    _live,
    _world,
    arrivals,
    stories,
)

elastic = st.builds(
    replace,
    arrivals,
    at_ms=st.integers(0, 300).map(lambda s: s * 1000),
    kind=st.just(JobKind.GANG),
    tasks=st.integers(1, 2),
    cpus=st.integers(1, 2),
    duration_s=st.integers(300, 900),
    more=st.integers(1, 4),
    after=st.just(()),
)
elastic_stories = st.builds(
    replace,
    stories,
    arrivals=st.lists(elastic, min_size=1, max_size=2),
    trouble=st.sampled_from([0.0, 0.1]),
)


def _fickle(story: Story) -> Fickle:
    return Fickle(CapriciousPolicy(story.seed, CHAOS_MS), story.seed, CHAOS_MS, share=0.7)


@drawn(25)
@given(elastic_stories)
def test_one_size_at_a_time_from_one_checkpoint(story: Story) -> None:
    world = _world(story, policy=_fickle(story))
    _live(world, story)
    _check_end(world, story)
    _check_nothing_done_twice(world)


def _check_nothing_done_twice(world: ChaoticWorld) -> None:
    """Each attempt begins from what was stored, or from something newer than the one before."""
    latest: dict[JobId, tuple[int, int]] = {}
    orders = sorted(world.history.orders.values(), key=lambda order: order.attempt)
    for order in orders:
        attempt, generation = latest.get(order.job, (0, 0))
        assert order.resume is not None
        assert order.resume >= generation, f"{order.job}: {attempt} to {order.attempt} goes back"
        latest[order.job] = order.attempt, order.resume


@drawn(3)
@given(elastic_stories)
def test_the_same_changes_of_size_make_the_same_history(story: Story) -> None:
    def history() -> list[object]:
        world = _world(story, policy=_fickle(story))
        _live(world, story)
        return [job.history for job in world.state.jobs.values()], world.history.orders

    assert history() == history()
