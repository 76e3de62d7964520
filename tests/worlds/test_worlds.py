"""Random worlds go through the production loop to their end."""

from __future__ import annotations

import pytest

from tests.worlds.drawing import FLAVOURS, draw
from tests.worlds.oracles import findings
from tests.worlds.running import run


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_world_is_drawn_alike_from_a_seed_and_runs_alike(flavour: str) -> None:
    assert draw(1, flavour) == draw(1, flavour)
    story = run(draw(1, flavour))
    assert set(story.fates) == {job.name for job in story.world.jobs}
    assert all(it.oracle for it in findings(story))
