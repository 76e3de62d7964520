"""A member of a large gang costs Synergy as much as one of a small gang, and fits where it did."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.calls import Calls
from eva_lab.runs import named_policy
from eva_master.packing.bins.task_set_value import Tnrp
from eva_master.packing.interference.throughput import ExactThroughput
from eva_master.packing.planner_cache import PlannerCache
from eva_master.testing.snapshots import Cluster, offer, task
from eva_policies.synergy.best_fit import BestFit
from eva_policies.synergy.valued_instances import ValuedInstances
from eva_wire.values.ids import MILLION, RunId

CATALOG = (
    offer("small", (0, 2, 8), 0.1),
    offer("large", (0, 8, 32), 0.38),
    offer("other", (0, 8, 32), 0.39, family="other"),
)


def calls_of_a_member(members: int) -> float:
    """Calls of functions in the plan of a gang, per member."""
    snapshot = Cluster(*CATALOG).job("g", *[task("w", any=(0, 1, 1))] * members).snapshot()
    policy, calls = named_policy("synergy")[0], Calls(builtins=True)
    with calls.counting():
        plan, _ = policy.plan(snapshot, None)
    assert len(plan.entries) == members
    return calls.made / members


def test_a_member_of_a_large_gang_costs_as_much_as_one_of_a_small_gang() -> None:
    assert calls_of_a_member(400) < 1.2 * calls_of_a_member(100)


def cluster_of(drawn: random.Random) -> Cluster:
    """Instances with some tasks of gangs and of single jobs, and tasks that wait."""
    kinds = [task(f"w{n % 3}", any=(0, 1 + n % 2, 1 + n), other=(0, 1, 2)) for n in range(5)]
    cluster, free = Cluster(*CATALOG), {}
    for number in range(drawn.randint(2, 10)):
        name, offering = f"i{number:02}", drawn.choice(["small", "large", "other"])
        cluster.instance(name, offering)
        free[name] = 2 if offering == "small" else 8
    for number in range(drawn.randint(2, 12)):
        members = drawn.randint(1, 3)
        places = []
        for _ in range(members):
            fitting = [name for name, cpus in free.items() if cpus >= 2]
            places.append(drawn.choice(fitting) if fitting else None)
            if fitting:
                free[places[-1]] -= 2
        if None not in places:
            kind = drawn.choice(kinds)
            cluster.job(f"p{number}", *[kind] * members, on=places)
    return cluster.job("q", *[drawn.choice(kinds)] * 3).job("r", drawn.choice(kinds))


@pytest.mark.parametrize("seed", range(25))
def test_a_task_joins_the_instance_that_is_best_of_all_that_are_looked_at_one_by_one(
    seed: int,
) -> None:
    drawn = random.Random(seed)
    snapshot = cluster_of(drawn).snapshot()
    alone = frozenset(drawn.sample([run.id for run in snapshot.runs], 1))
    instances = ValuedInstances(snapshot, PlannerCache().snapshot_shapes(snapshot), alone)
    loss = {(a, b): drawn.randint(800_000, MILLION) for a in "012" for b in "012"}
    model = ExactThroughput(
        lambda key: loss[key[0][-1], key[1][0][-1]] if len(key[1]) == 1 else None, 900_000
    )
    value = Tnrp(instances, model)
    best_fit = BestFit(instances, value)
    waiting = [run.id for run in snapshot.runs if run.instance is None]
    for run in waiting:
        if run in alone:
            continue
        chosen = best_fit.of(run)
        assert chosen == best_one_by_one(instances, value, alone, run)
        if chosen is not None and drawn.random() < 0.7:
            instances.put(run, chosen)


def best_one_by_one(
    instances: ValuedInstances, value: Tnrp, alone: frozenset[RunId], run: RunId
) -> int | None:
    priced = instances.priced(run)
    ranked = []
    for row in range(len(instances)):
        there, price = instances.residents[row], instances.offerings[row].price
        if there and alone.isdisjoint(there) and instances.holds(row, priced):
            worth = value.of((*there, run), instances.family(row))
            if worth >= price * MILLION:
                fit = float(instances.alignment(priced, np.array([row]))[0])
                ranked.append((worth / (price * MILLION), fit, -row))
    return -max(ranked)[2] if ranked else None


def test_instances_at_other_prices_or_of_other_sizes_are_not_alike() -> None:
    kind = task("w", any=(0, 1, 1), other=(0, 1, 1))
    cluster = Cluster(*CATALOG, offer("dear", (0, 8, 32), 0.5))
    for name, offering in (("i", "large"), ("j", "large"), ("k", "dear"), ("l", "other")):
        cluster.instance(name, offering).job(name, kind, on=[name])
    cluster.job("n", kind)
    snapshot = cluster.snapshot()
    shapes = PlannerCache().snapshot_shapes(snapshot)
    instances = ValuedInstances(snapshot, shapes, frozenset())
    rows = instances.joinable(instances.priced(RunId("n/0"))).tolist()
    assert [snapshot.instances[row].id for row in rows] == ["i", "k", "l"]
