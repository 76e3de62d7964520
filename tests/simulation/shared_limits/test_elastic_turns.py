"""Elastic gangs take turns at a limit that partitions share: they begin with what there is."""

from __future__ import annotations

import pytest

from eva_master.model.fleet.partitions import Partition
from tests.fakes.jobs import job
from tests.simulation.shared_limits.turns import CI, ML, TWO, come, order, whole, world_of


@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)], ids=["ml-ci", "ci-ml"])
@pytest.mark.parametrize("policy", ["eva", "no_packing"])
def test_an_elastic_gang_begins_in_its_turn_with_one_instance_of_two(
    parts: tuple[Partition, ...], policy: str
) -> None:
    """One of two instances is in use for an hour: the gang of one to two has the other."""
    world = world_of(*parts, catalog=TWO, policy=policy, long={"kept": 60})
    come(world, whole("kept", "ml"), whole("a", "ml"))
    come(world, job("gang", 8, 8, partition="ci", least=1))
    come(world, whole("b", "ml"), whole("c", "ml"))
    assert order(world) == ["kept", "a", "gang", "b", "c"]
