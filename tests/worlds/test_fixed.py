"""A hundred fixed worlds under the default policy, and fifteen under each of others."""

from __future__ import annotations

import pytest

from tests.worlds.drawing import draw
from tests.worlds.fixed import EXPECTED, Case, cases, excepted
from tests.worlds.oracles import findings, findings_beside
from tests.worlds.oracles.costs import apart
from tests.worlds.oracles.waiting import Waits
from tests.worlds.running import run


@pytest.mark.parametrize("case", cases(), ids=lambda case: "-".join(map(str, case)))
def test_oracles_object_to_nothing_in_a_fixed_world(case: Case) -> None:
    policy, flavour, seed = case
    story = run(draw(seed, flavour), policy)
    found = findings(story)
    if policy == "eva" and not story.world.nodes:
        found += findings_beside(story, run)
    allowed = excepted(policy) | EXPECTED.get(case, frozenset())
    assert not [str(it) for it in found if it.oracle not in allowed]


def test_the_default_costs_no_more_than_each_task_alone_in_the_mean() -> None:
    ratios = []
    for flavour in ("plain", "limits", "chains", "arrays", "gangs", "speeds", "priorities"):
        for seed in range(2):
            story = run(draw(seed, flavour))
            ratios.append(story.cost() / apart(story, Waits(story)))
    assert sum(ratios) / len(ratios) <= 1.0
