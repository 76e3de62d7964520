"""The checks of plans know pools and lines: a policy that uses them passes, broken plans do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from eva_master.model.planning.plan import NewInstance, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.testing.clusters import clusters
from eva_master.testing.plan_checks import check
from eva_master.testing.policy_suite import drawn, with_found
from eva_master.testing.snapshots import Cluster, carried_out, ended, offer, task
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis
from tests.fakes.pools.policy import Config, PoolPolicy

SMALL = task(any=(0, 1, 1))


@drawn(60)
@given(snapshot=clusters())
@with_found
def test_plans_are_lawful_over_a_cluster_s_life(snapshot: Snapshot) -> None:
    policy = PoolPolicy(Config())
    memory: PolicyMemory | None = None
    for _ in range(4):
        plan, memory = policy.plan(snapshot, memory)
        check(snapshot, plan)
        snapshot = carried_out(snapshot, plan)
        again, _ = policy.plan(snapshot, memory)
        check(snapshot, again)
        first = [job.id for job in snapshot.jobs][:1]
        snapshot = ended(replace(snapshot, now_ms=Millis(snapshot.now_ms + 300_000)), *first)


def _cluster() -> Snapshot:
    cluster = Cluster(offer("t", (0, 4, 16), 1.0)).instance("i", "t")
    return cluster.job("a", *[SMALL] * 6, kind=JobKind.ARRAY).snapshot()


def test_what_stands_in_line_takes_the_room_that_there_is() -> None:
    snapshot = _cluster()
    plan = Plan(
        pools=(Pool("p", (InstanceId("i"),), "for small ones"),),
        lines=(Line(("p",), (JobId("a"),)),),
    )
    check(snapshot, plan)
    after = carried_out(snapshot, plan)
    assert [run.instance for run in after.runs] == ["i"] * 4 + [None] * 2
    assert [view.pool for view in after.instances] == ["p"]
    # Whoever leaves the pool is drained, and what runs there is no matter for plans.
    left = carried_out(after, Plan())
    assert not left.instances
    assert [view.id for view in left.draining] == ["i"]
    assert [run.id for run in left.runs] == ["a/4", "a/5"]


IN_POOL = Pool("p", (InstanceId("i"),), "why")
IN_LINE = Line(("p",), (JobId("a"),))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(pools=(IN_POOL,)),
        Plan(lines=(IN_LINE,)),
        Plan(pools=(IN_POOL, replace(IN_POOL, name="q")), lines=(IN_LINE,)),
        Plan(pools=(replace(IN_POOL, reason=""),), lines=(IN_LINE,)),
        Plan(pools=(replace(IN_POOL, members=(InstanceId("x"),)),), lines=(IN_LINE,)),
        Plan(pools=(replace(IN_POOL, members=(0,)),), lines=(IN_LINE,)),
        Plan(pools=(replace(IN_POOL, closed=(InstanceId("x"),)),), lines=(IN_LINE,)),
        Plan(pools=(IN_POOL,), lines=(replace(IN_LINE, weight_ppm=0),)),
        Plan(pools=(IN_POOL,), lines=(replace(IN_LINE, pools=("q",)),)),
        Plan(pools=(IN_POOL,), lines=(replace(IN_LINE, only=(InstanceId("x"),)),)),
        Plan(pools=(IN_POOL,), lines=(replace(IN_LINE, jobs=(JobId("a"), JobId("a"))),)),
        Plan(pools=(IN_POOL,), lines=(replace(IN_LINE, at_most=((JobId("b"), 1),)),)),
        Plan((NewInstance(0, offer("t", (0, 4, 16), 1.0)),), pools=(IN_POOL,), lines=(IN_LINE,)),
    ],
)
def test_a_plan_that_contradicts_itself_is_found_out(plan: Plan) -> None:
    with pytest.raises(AssertionError):
        check(_cluster(), plan)


def test_gangs_of_several_stand_in_no_line() -> None:
    cluster = Cluster(offer("t", (0, 4, 16), 1.0)).instance("i", "t").job("a", SMALL, SMALL)
    with pytest.raises(AssertionError, match="gangs"):
        check(cluster.snapshot(), Plan(pools=(IN_POOL,), lines=(IN_LINE,)))
