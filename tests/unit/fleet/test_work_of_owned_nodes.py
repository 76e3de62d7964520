"""Work that is left counts on one family, for users and policies alike, whoever is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.planning.owned import limited, shown
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.packing.fleet.contenders import Contenders
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.testing.snapshots import Cluster, task
from eva_wire.values.ids import Family, Price
from tests.fakes.hand_driven import JOB, SIZE
from tests.fakes.hand_driven import Cluster as Master

K80, V100 = Family("k80"), Family("v100")
ON_K80, ON_V100 = 10_000_000, 50_000_000
FREE, CHEAP_K80, CHEAP_V100 = (0, 0), (100_000, 1_000_000), (100_000, 400_000)


def nodes(prices: tuple[int, int]) -> Catalog:
    """A type of owned nodes per family, at micro-dollars per hour."""
    return tuple(
        Offering(InstanceType(f"{family}.1", family, SIZE), Price(usd), purchase=Purchase.OWNED)
        for family, usd in zip((K80, V100), prices, strict=True)
    )


def seen(catalog: Catalog, there: tuple[int, int]) -> Catalog:
    """What policies see of it while so many nodes of each type are there."""
    counts = tuple((it.id, number) for it, number in zip(catalog, there, strict=True))
    return limited(tuple(map(shown, catalog)), counts)


@pytest.mark.parametrize(
    ("prices", "home"), [(FREE, ON_V100), (CHEAP_K80, ON_K80), (CHEAP_V100, ON_V100)]
)
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("there", [(2, 2), (0, 2), (2, 0), (0, 0)])
def test_policies_count_work_on_the_family_on_which_it_is_told(
    prices: tuple[int, int], home: int, members: int, split: bool, there: tuple[int, int]
) -> None:
    each = task("w", k80=(0, 1, 1), v100=(0, 1, 1))
    tasks = [replace(each, throughput=((K80, ON_K80), (V100, ON_V100)))] * members
    for catalog in (nodes(prices), seen(nodes(prices), there)):
        assert JobValuation(catalog).paces(tasks, split=split).home == home


@pytest.mark.parametrize("prices", [FREE, CHEAP_K80])
def test_a_job_takes_as_long_on_one_type_whether_nodes_of_another_are_there_or_not(
    prices: tuple[int, int],
) -> None:
    master = Master(State(nodes(prices)))
    master.submit(JOB + "throughput: {k80: 10, v100: 50}\ntotal_steps: 30000\n", name="job")
    assert master.request is not None
    told = master.request.snapshot
    for there in ((1, 1), (0, 1)):
        fleet = Cluster(*seen(nodes(prices), there))
        for number, offering in zip(there, fleet.catalog, strict=True):
            if number:
                fleet.instance(offering.type.name, offering.type.name)
        snapshot = replace(fleet.snapshot(), jobs=told.jobs, runs=told.runs)
        _, (one,) = Contenders().of(snapshot, 0)
        assert one.alone_ms[V100] == 600_000


def test_who_waits_for_free_nodes_is_told_the_time_on_the_fastest() -> None:
    master = Master(State(nodes(FREE)))
    master.submit(JOB + "throughput: {k80: 10, v100: 50}\ntotal_steps: 30000\n", name="job")
    assert master.outlook().left_ms == 600_000
