"""Everything that packs asks the throughput model: where it says half, all of them believe it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eva_lab.runs import named_policy
from eva_master.model.planning.plan import Plan
from eva_master.packing.greedy.algorithm1 import pack
from eva_master.packing.interference.throughput import (
    ExactThroughput,
    JoinLosses,
    ThroughputModel,
)
from eva_master.packing.interference.throughput_rows import PairwiseThroughput
from eva_master.packing.local_search import search
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.lp.pricing.greedy_columns import GreedyColumns
from eva_master.packing.lp.pricing.knapsack import KnapsackProblem
from eva_master.packing.lp.pricing.workload_multisets import MultisetSearch
from eva_master.packing.problem import Problem, Valuation
from tests.fakes.snapshots import Cluster, offer, table, task

MILLION = 1_000_000
PPM = 950_000
PACKING = ["eva", "eva_published", "synergy", "owl"]


def halve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever shares an instance runs at half of what they did."""

    def replace(owner: type, name: str, halved: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda self, *asked: halved(original(self, *asked), *asked)
        )

    def several(task_set: tuple[tuple[int, int], ...]) -> bool:
        return sum(tasks for _, tasks in task_set) > 1

    def after_join(losses: JoinLosses, task_set: tuple[tuple[int, int], ...]) -> JoinLosses:
        return (
            JoinLosses(*(MILLION - (MILLION - lost) // 2 for lost in losses))
            if task_set
            else losses
        )

    replace(ExactThroughput, "exact", lambda ppm, s: tuple(one // (1 + several(s)) for one in ppm))
    replace(ThroughputModel, "after_join", after_join)
    halved = property(lambda self: self.pairs / MILLION / 2)
    monkeypatch.setattr(ThroughputModel, "fractions", halved)
    replace(PairwiseThroughput, "beside", lambda found, _: found / 2)
    replace(
        PairwiseThroughput,
        "lost_to_newcomer",
        lambda lost, held: held.sum(axis=1, keepdims=True) / 2 + lost / 2,
    )


def cluster(*, placed: bool = False) -> Cluster:
    """Two tasks that share an instance at 95 % of their speed, and may be on one already."""
    made = Cluster(offer("box", (0, 8, 32), 1.0))
    if placed:
        made.instance("i", "box")
    for name in ("a", "b"):
        made.job(name, task(name, any=(0, 4, 8)), on=["i"] if placed else ())
    made.throughput = table({("a", ("b",)): PPM / MILLION, ("b", ("a",)): PPM / MILLION})
    return made


def planned(policy: str, made: Cluster, **settings: object) -> Plan:
    return named_policy(policy, settings)[0].plan(made.snapshot(), None)[0]


@pytest.mark.parametrize("policy", PACKING)
def test_policies_share_an_instance_as_long_as_the_model_says_that_it_pays(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The search would discount the loss to neighbours; its kernel works throughput out by itself.
    monkeypatch.setattr(search, "compiled", lambda: None)
    settings: dict[str, object] = {"lost_ppm": MILLION} if policy == "eva" else {}
    assert len(planned(policy, cluster(), **settings).launches) == 1
    halve(monkeypatch)
    # 2 x 0.475 is less than the one dollar that the instance costs.
    assert len(planned(policy, cluster(), **settings).launches) == 2


@pytest.mark.parametrize("policy", [*PACKING, "owl:profiled"])
def test_reasons_say_what_the_model_does(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    halve(monkeypatch)
    settings: dict[str, object] = {}
    if policy == "owl:profiled":
        policy, settings = "owl", {"profile": (("a", "b", PPM), ("b", "a", PPM)), "migrate": False}
    elif policy == "owl":
        settings = {"migrate": False}
    elif policy == "eva_published":
        settings = {"full": False, "partial": False}
    elif policy == "eva":
        settings = {"iterations": 0}
    (hosting,) = planned(policy, cluster(placed=True), **settings).reasons.hostings
    assert [occupant.throughput_ppm for occupant in hosting.occupants] == [PPM // 2] * 2
    assert hosting.value_micro_usd_per_hour == PPM


def packed(tier: Tier) -> tuple[int, int | None]:
    """How many instances are bought, and the lower bound in micro-dollars per hour."""
    problem = Problem(cluster().snapshot(), Valuation())
    counts, supply = problem.counts(problem.class_of), dict.fromkeys(problem.by_id)
    if tier is Tier.GREEDY:
        sets, left = pack(problem, counts, supply)
        bound = None
    else:
        optimizer = Optimizer(problem, tier)
        sets, left = optimizer.pack(counts, supply)
        bound = optimizer.bound(counts, supply)
    assert not left.any()
    return sum(one.times for one in sets), None if bound is None else round(bound / MILLION)


def test_algorithm_1_and_the_lp_go_by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed(Tier.GREEDY) == (1, None)
    instances, bound = packed(Tier.LP)
    assert instances == 1
    # One dollar, and a tenth of one for the throughput that the two lose.
    assert bound == pytest.approx(1_100_000, rel=1e-3)
    halve(monkeypatch)
    assert packed(Tier.GREEDY) == (2, None)
    instances, bound = packed(Tier.LP)
    assert instances == 2
    assert bound == pytest.approx(2_000_000, rel=1e-3)


def found_sets() -> list[int]:
    """How many sets of two each of the LP's searches finds that are worth one and a half."""
    problem = Problem(cluster().snapshot(), Valuation())
    model, ones = problem.throughput, np.ones(2)
    need = next(iter(problem.need.values()))[:, : problem.width]
    capacity = np.array([0, 8_000, 32 * 1024])
    question = KnapsackProblem(capacity, need, ones, np.array([1, 1]), 1.5, 1_000)
    return [
        len(MultisetSearch(model, problem.workloads, ones).run(question).task_sets),
        len(GreedyColumns(problem.workloads, ones, model.pairwise).task_sets(question)),
    ]


def test_every_search_of_the_lp_goes_by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_sets() == [1, 1]
    halve(monkeypatch)
    assert found_sets() == [0, 0]
