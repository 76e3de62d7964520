"""A round looks through the members of a gang as often in a large gang as in a small one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import SupportsIndex

import pytest

from benchmarks.calls import Calls
from eva_lab.runs import named_policy
from eva_master.app.policy_registry import policies
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import Configuration
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.lasting import lasting
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import RunId

NAMES = [*policies()]


class Members(tuple[RunId, ...]):
    """Members of a gang; counts how often something goes through all of them."""

    looks = 0

    def __iter__(self) -> Iterator[RunId]:
        Members.looks += 1
        return super().__iter__()

    def __contains__(self, item: object) -> bool:
        Members.looks += 1
        return super().__contains__(item)

    def __getitem__(self, index):
        Members.looks += not isinstance(index, SupportsIndex)
        return super().__getitem__(index)


def counted(cluster: Cluster) -> Snapshot:
    snapshot = cluster.snapshot()
    jobs = tuple(replace(job, runs=Members(job.runs)) for job in snapshot.jobs)
    Members.looks = 0
    return replace(snapshot, jobs=jobs)


def bought(members: int) -> Cluster:
    catalog = offer("small", (0, 2, 8), 0.1), offer("large", (0, 8, 32), 0.38)
    return Cluster(*catalog).job("g", *[task("w", any=(0, 1, 1))] * members)


def there(members: int) -> Cluster:
    cluster = Cluster(offer("large", (0, 8, 32), 0.38))
    for number in range(members // 4):
        cluster.instance(f"i{number:04}", "large")
    return cluster.job("g", *[task("w", any=(0, 1, 1))] * members)


def looks(policy: str, members: int, of) -> int:
    snapshot = counted(of(members))
    plan, _ = named_policy(policy)[0].plan(snapshot, None)
    assert plan.entries
    return Members.looks


@pytest.mark.parametrize("of", [bought, there])
@pytest.mark.parametrize("policy", NAMES)
def test_a_policy_looks_through_a_gang_no_more_often_if_it_is_large(policy: str, of) -> None:
    assert looks(policy, 160, of) <= looks(policy, 40, of) + 4


def calls_of_a_member(members: int) -> float:
    """Calls of functions while the parts of a change are looked for, per member with a place."""
    cluster = Cluster(offer("small", (0, 2, 8), 0.1)).job(
        "g", *[task("w", any=(0, 1, 1))] * members
    )
    problem, calls = Problem(cluster.snapshot(), Valuation()), Calls(builtins=True)
    runs = [run.id for run in problem.snapshot.runs]
    after = Configuration({run: host for host, run in enumerate(runs)}, {}, (), {})
    with calls.counting():
        assert lasting(problem, CostWeights(), Configuration({}, {}, (), {}), after) is after
    return calls.made / members


def test_parts_of_a_change_are_found_as_quickly_where_each_member_has_its_own_instance() -> None:
    assert calls_of_a_member(800) < 1.3 * calls_of_a_member(100)
