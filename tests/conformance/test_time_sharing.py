"""The suite over a policy that has tasks take turns, and what it says of one that does it wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.policy_suite import PolicySuite, Variant
from eva_master.testing.snapshots import Cluster, offer, task
from eva_master.testing.turns import check_turns
from tests.fakes.policies.turns import TURNS, Config, Turns

LEASE_MS = 600_000


class TestTurns(PolicySuite):
    variants: ClassVar[Mapping[str, Variant]] = {"turns": Variant(TURNS)}


def _crowded() -> Snapshot:
    cluster = Cluster(offer("box", (0, 4, 16), 0.4, limit=1)).instance("i", "box")
    cluster.job("a", task(any=(0, 4, 8)), on=["i"]).job("b", task(any=(0, 4, 8)))
    return cluster.job("c", task(any=(0, 2, 4))).snapshot()


def _roomy() -> Snapshot:
    cluster = Cluster(offer("box", (0, 4, 16), 0.4, limit=1)).instance("i", "box")
    return cluster.job("a", task(any=(0, 4, 8)), on=["i"]).snapshot()


@pytest.mark.parametrize("event", [False, True])
def test_turns_are_lawful(event: bool) -> None:
    check_turns(Turns(Config()), _crowded(), LEASE_MS, event=event)
    check_turns(Turns(Config()), _roomy(), LEASE_MS, event=event)


def test_a_lease_that_is_cut_short_is_noticed() -> None:
    with pytest.raises(AssertionError, match="had its place for"):
        check_turns(Turns(Config(honest=False)), _crowded(), LEASE_MS, event=False)


def test_who_does_not_rest_is_noticed() -> None:
    with pytest.raises(AssertionError):
        check_turns(Turns(Config(restless=True)), _roomy(), LEASE_MS, event=False)
