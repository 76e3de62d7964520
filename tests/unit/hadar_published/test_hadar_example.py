"""The example of section II-A of Hadar: what no scheduler can beat, by trying every schedule."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.fakes.fleets.every_schedule import (
    FLEET,
    GANGS,
    Best,
    Gang,
    Pace,
    best,
    own,
    slowest,
    slowest_of_each,
)


@pytest.mark.parametrize(
    ("pace", "one_type", "rounds", "mean"),
    [
        (slowest, True, 6, Fraction(13, 3)),
        (slowest, False, 6, Fraction(4)),
        (slowest_of_each, True, 3, Fraction(7, 3)),
        (slowest_of_each, False, 3, Fraction(2)),
        (own, True, 6, Fraction(13, 3)),
        (own, False, 5, Fraction(11, 3)),
    ],
)
def test_the_fewest_rounds_of_the_paper_s_example(
    pace: Pace, one_type: bool, rounds: int, mean: Fraction
) -> None:
    found = best(list(GANGS.values()), tuple(FLEET.values()), pace, one_type=one_type)
    assert found == Best(rounds, mean)


def test_the_search_finds_what_can_be_seen() -> None:
    twins = [Gang(1, 2, (2, 1)), Gang(1, 2, (2, 1))]
    # One after the other on the fast GPU, or both at once, the second at half the pace.
    assert best(twins, (1, 1), slowest, one_type=True) == Best(2, Fraction(3, 2))
    # A gang of two needs both GPUs, and goes at the pace of the slower one.
    assert best([Gang(2, 2, (2, 1))], (1, 1), slowest, one_type=False) == Best(2, Fraction(2))
    assert best([Gang(2, 3, (2, 1))], (1, 1), own, one_type=False) == Best(2, Fraction(2))
