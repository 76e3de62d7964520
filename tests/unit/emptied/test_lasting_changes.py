"""A change is made only if it pays before the tasks have ended that it concerns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from eva_master.model.catalog import Purchase
from eva_master.model.planning.plan import Assign, NewInstance
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import Configuration
from eva_master.packing.reconfiguration.costs_to_the_end import CostsToTheEnd
from eva_master.policies import eva
from eva_master.policies.eva.config import Config
from eva_master.policies.eva.policy import Eva
from eva_master.policies.eva.recent_moves import made
from eva_wire.values.ids import MILLION, Family, InstanceId, Millis, RunId
from tests.fakes.snapshots import START, Cluster, offer, task

SMALL = offer("small", (0, 2, 8), 0.50, setup_s=100)
LARGE = offer("large", (0, 4, 16), 0.90, setup_s=100)
HALF = task("w", any=(0, 2, 4))


def pair(*left_s: int | None) -> Cluster:
    """Two tasks on an instance each, which a larger one would hold for a tenth less."""
    cluster = Cluster(SMALL, LARGE).instance("i", "small").instance("j", "small")
    for name, place, left in zip("ab", "ij", left_s, strict=True):
        cluster.job(name, HALF, on=[place], left_s=left, checkpoint_s=1, launch_s=1)
    return cluster


def launched(snapshot: Snapshot) -> list[str]:
    plan, _ = eva.POLICY.build(eva.POLICY.config(interference=False)).plan(snapshot, None)
    return [it.offering.type.name for it in plan.launches]


@pytest.mark.parametrize(
    ("left_s", "large"),
    [
        # A tenth of a dollar per hour is saved, and both are paid for while the large one boots.
        ((7_200, 7_200), True),
        ((3_000, 3_000), True),
        ((900, 900), False),
        # Beyond the end of the shorter one the large one costs more, or is left with another boot.
        ((900, 3_000), False),
    ],
)
def test_tasks_move_together_if_both_last_long_enough(left_s: tuple[int, int], large: bool) -> None:
    assert launched(pair(*left_s).snapshot()) == ["large"] * large


@pytest.mark.parametrize("age_s", [600, 3_000])
def test_tasks_of_unknown_length_move_as_soon_as_that_saves_by_the_hour(age_s: int) -> None:
    """No later plan would see it pay: none is made while nothing happens."""
    cluster = pair(None, None)
    cluster.now_ms = Millis(START + age_s * 1_000)
    assert launched(cluster.snapshot()) == ["large"]


@pytest.mark.parametrize(("left_s", "large"), [(600, False), (3_400, True)])
def test_a_task_of_unknown_length_moves_only_beside_what_goes_on(left_s: int, large: bool) -> None:
    assert launched(pair(None, left_s).snapshot()) == ["large"] * large


@pytest.mark.parametrize(("kind", "seconds"), [("box.4", 96 + 600), ("fast.8", 131 + 200)])
def test_tasks_end_sooner_on_a_fast_family(kind: str, seconds: int) -> None:
    box = offer("box.4", (0, 4, 8), 0.2, family="box", setup_s=96)
    fast = offer("fast.8", (0, 8, 16), 0.7, family="fast", setup_s=131)
    rates, need = ((Family("box"), MILLION), (Family("fast"), 3 * MILLION)), (0, 4, 4)
    spec = replace(task("w", box=need, fast=need), throughput=rates)
    policy = Eva(Config())
    problem = policy.problem(Cluster(box, fast).job("a", spec, left_s=600).snapshot())
    sold, name = next(sold for sold in (box, fast) if sold.type.name == kind), RunId("a/0")
    tasks = Counter({problem.class_of[name]: 1})
    alone = Configuration({name: 0}, {0: tasks}, (NewInstance(0, sold),), {})
    costs = CostsToTheEnd(problem, policy.terms)
    assert costs.since(alone, costs.stays(alone, [name]), 0) == sold.price * seconds * 1_000


@pytest.mark.parametrize(("rate", "seconds"), [(MILLION, 600), (MILLION // 10, 6_000)])
def test_a_gang_goes_on_for_as_long_as_its_family_is_slow(rate: int, seconds: int) -> None:
    """A member on a slow family may be worth less than nothing, which is no speed."""
    fast = offer("fast.4", (0, 4, 8), 0.2, family="fast")
    slow = offer("slow.4", (0, 4, 8), 0.3, family="slow")
    need = (0, 2, 4)
    spec = replace(
        task("w", fast=need, slow=need),
        throughput=((Family("fast"), MILLION), (Family("slow"), rate)),
    )
    cluster = Cluster(fast, slow).instance("i", "slow.4")
    problem = (policy := Eva(Config())).problem(
        cluster.job("g", spec, spec, on=["i", "i"], left_s=600).snapshot()
    )
    names = [RunId("g/0"), RunId("g/1")]
    there = Configuration(dict.fromkeys(names, InstanceId("i")), {}, (), {})
    stays = CostsToTheEnd(problem, policy.terms).stays(there, names)
    assert [stay.until_ms for stay in stays[InstanceId("i")]] == [seconds * 1_000] * 2


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_the_longer_stay_on_a_node_that_costs_nothing_is_a_loss(speed: float) -> None:
    sold = offer("box.4", (0, 4, 8), 0.2, family="box")
    free = replace(offer("rack.4", (0, 4, 8), 0.0, family="rack"), purchase=Purchase.OWNED, limit=1)
    rates = ((Family("box"), MILLION), (Family("rack"), round(speed * MILLION)))
    spec = replace(task("w", box=(0, 4, 4), rack=(0, 4, 4)), throughput=rates)
    cluster = Cluster(sold, free).instance("i", "rack.4")
    policy = Eva(Config())
    problem = policy.problem(cluster.job("a", spec, on=["i"], left_s=600).snapshot())
    name = RunId("a/0")
    there = Configuration({name: InstanceId("i")}, {}, (), {})
    costs = CostsToTheEnd(problem, policy.terms)
    longer_s = 600 / speed - 600
    expected = problem.classes[problem.class_of[name]].most * longer_s * 1_000
    assert costs.since(there, costs.stays(there, [name]), 0) == pytest.approx(expected)


def test_a_part_that_pays_is_made_without_another_that_does_not() -> None:
    cluster = pair(7_200, 7_200)
    other = [
        replace(it.type, name=f"g.{it.type.name}", family=Family("g")) for it in (SMALL, LARGE)
    ]
    cluster.catalog += tuple(
        replace(it, type=kind) for it, kind in zip((SMALL, LARGE), other, strict=True)
    )
    cluster.instance("k", "g.small").instance("l", "g.small")
    for name, place in zip("cd", "kl", strict=True):
        spec = task("v", g=(0, 2, 4))
        cluster.job(name, spec, on=[place], left_s=600, checkpoint_s=1, launch_s=1)
    plan, _ = eva.POLICY.build(eva.POLICY.config(interference=False)).plan(cluster.snapshot(), None)
    assert {it.run for it in plan.entries if isinstance(it, Assign)} == {"a/0", "b/0"}
    assert [it.offering.type.name for it in plan.launches] == ["large"]


def test_a_move_that_was_decided_and_withdrawn_is_no_move() -> None:
    snapshot = pair(7_200, 7_200).snapshot()
    before = ((RunId("a/0"), Millis(START - 50_000)), (RunId("b/0"), Millis(START - 50_000)))
    runs = tuple(
        replace(run, running_since_ms=Millis(START - since))
        for run, since in zip(snapshot.runs, (90_000, 10_000), strict=True)
    )
    assert made(before, replace(snapshot, runs=runs)) == {"b/0": START - 50_000}
