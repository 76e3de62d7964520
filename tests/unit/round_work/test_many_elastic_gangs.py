"""A round looks at as many elastic gangs as its budget allows, those of all owners in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eva_master.control.state.parts.policy_memories import document_of, memory_of
from eva_master.model.catalog import Purchase
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, Snapshot
from eva_master.packing.elastic.trial import SizeTrial
from eva_master.packing.round_work import WorkKind
from eva_master.policies.eva import POLICY
from eva_master.policies.eva.policy import Eva
from eva_master.testing.job_views import changed
from eva_master.testing.plan_checks import check
from eva_wire.values.ids import InstanceId
from tests.unit.elastic.test_elastic_sizes import Cluster, offering

GANGS, MOST = 60, 8
WORK_OF_TEN = 10 * WorkKind.RESIZED * (GANGS + 1) * MOST // 200 + 1
"""A fifth of it is for sizes, in microseconds."""


def crowded() -> Snapshot:
    """Sixty elastic gangs of one user and one of another, and own nodes with room."""
    cluster = Cluster(offering(2, 0.1), offering(8, 0.4))
    for number in range(GANGS + 1):
        cluster.gang(f"e{number}", 1, MOST)
    snapshot = cluster.snapshot()
    node = replace(offering(48, 0.0), purchase=Purchase.OWNED, limit=0)
    nodes = (InstanceView(InstanceId(f"n{n}"), node, (), ready=True) for n in range(4))
    jobs = [changed(job, owner="many") for job in snapshot.jobs]
    jobs[-1] = changed(jobs[-1], owner="one")
    return replace(snapshot, jobs=tuple(jobs), instances=tuple(nodes), work=WORK_OF_TEN)


def rounds(snapshot: Snapshot, count: int) -> Iterator[Plan]:
    """Plans of rounds in which nothing happens, each after a restart."""
    policy, memory = POLICY.build(POLICY.config()), None
    for _ in range(count):
        plan, after = policy.plan(snapshot, memory)
        assert isinstance(after, PolicyMemory)
        memory = memory_of(json.loads(json.dumps(document_of(after))))
        yield plan


def test_no_more_gangs_are_resized_than_the_budget_allows(monkeypatch) -> None:
    sizes = 0
    grown = SizeTrial.grown

    def counted(self, *arguments):
        nonlocal sizes
        sizes += 1
        return grown(self, *arguments)

    monkeypatch.setattr(SizeTrial, "grown", counted)
    (plan,) = rounds(crowded(), 1)
    check(with_sizes(crowded(), {size.job: size.members for size in plan.sizes}), plan)
    assert 0 < len(plan.sizes) <= 10
    assert sizes <= 10 * MOST.bit_length()


def test_a_user_with_one_gang_is_looked_at_at_once_and_all_others_in_turn() -> None:
    snapshot = crowded()
    (own,) = (job.id for job in snapshot.jobs if job.spec.owner == "one")
    plans = [*rounds(snapshot, 8)]
    looked_at = [{resize.job for resize in plan.sizes} for plan in plans]
    assert all(own in jobs for jobs in looked_at[:2])
    assert set().union(*looked_at) == {job.id for job in snapshot.jobs}


@pytest.mark.parametrize(("work", "plans"), [(1 << 40, 2), (100_000, 1)])
def test_tasks_that_wait_count_for_each_plan_of_a_round(monkeypatch, work, plans) -> None:
    """Each size that is tried is a plan for all tasks that wait."""
    cluster, policy = Cluster(offering(8, 0.4, limit=1)), POLICY.build(POLICY.config())
    cluster.gang("elastic", 2, 8)
    cluster.round(policy)
    for number in range(100):
        cluster.gang(f"other{number}", 1, 1, cpus=3)
    asked: list[Snapshot] = []
    plan = Eva.plan

    def counted(self, snapshot, memory):
        asked.append(snapshot)
        return plan(self, snapshot, memory)

    monkeypatch.setattr(Eva, "plan", counted)
    policy.plan(replace(cluster.snapshot(), work=work), cluster.memory)
    assert len(asked) == plans
