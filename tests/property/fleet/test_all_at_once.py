"""Partitions, pools, sizes and extra runs that change all the time, and whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.job import Stragglers
from eva_master.ports import Policy
from tests.drawing import drawn
from tests.fakes.policies.sizes import Fickle
from tests.fakes.pools.policy import CapriciousLines
from tests.property.fleet import test_partition_loop as parts
from tests.property.fleet.test_partition_loop import NAMES, PartStory
from tests.property.replicas.test_replicas import CapriciousReplicas, _look
from tests.property.test_control_loop import CHAOS_MS, _check_end, arrivals, stories, times

busy = st.builds(
    replace,
    arrivals,
    at_ms=st.integers(0, 500).map(lambda s: s * 1000),
    cpus=st.sampled_from([1, 2, 4]),
    tasks=st.integers(1, 4),
    duration_s=st.integers(60, 900),
    stragglers=st.just(Stragglers.DUPLICATE),
    slow=st.sampled_from([1, 3]),
)
mixed = st.builds(
    replace,
    parts.part_stories,
    story=st.builds(replace, stories, arrivals=st.lists(busy, min_size=2, max_size=6)),
    moves=st.lists(st.tuples(times, st.integers(0, 5), st.sampled_from(NAMES[:3])), max_size=8),
)


def _policies(story: PartStory) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for seed, name in enumerate(NAMES, start=story.story.seed):
        whims = CapriciousReplicas(seed, CHAOS_MS)
        lines = CapriciousLines(seed, CHAOS_MS, whims)
        found[name] = lines if name in story.pooled else Fickle(whims, seed, CHAOS_MS, share=0.5)
    return found


@drawn(3)
@given(mixed)
def test_everything_holds_at_once(story: PartStory) -> None:
    with patch.object(parts, "_policies", _policies):
        world = parts._divided(story)
    seen: Counter[str] = Counter()
    step = world.step

    def stepped() -> None:
        step()
        _look(world, seen)

    world.step = stepped  # type: ignore[method-assign]
    stays = parts._live_divided(world, story)
    _check_end(world, story.story)
    parts._check_books(world, stays)
