"""Features meet: all pairs of sixteen, and mixtures of three to ten."""

from __future__ import annotations

import pytest

from tests.worlds.drawing import draw
from tests.worlds.fixed import EXPECTED_PAIRS
from tests.worlds.oracles import findings
from tests.worlds.pairs import PAIRS, REFUSED, policy, world
from tests.worlds.running import run


@pytest.mark.long
@pytest.mark.parametrize("letters", PAIRS)
def test_two_features_work_together(letters: str) -> None:
    story = run(world(letters), policy(letters))
    refused = {name for name, fate in story.fates.items() if fate.refused}
    assert refused == ({"main"} if letters in REFUSED else set())
    allowed = EXPECTED_PAIRS.get(letters, frozenset())
    assert not [str(it) for it in findings(story) if it.oracle not in allowed]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 34))
def test_mixtures_of_features_end_well(seed: int) -> None:
    story = run(draw(seed, "mixed"))
    assert not [str(it) for it in findings(story) if it.oracle in ("ends", "launches")]
