"""Reasons name a limit only where a task has no room, and pools know their members that can go."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.rounds.rules.limit_reasons import LimitReasons
from eva_master.control.settings import Limits
from eva_master.control.standing.membership import Membership
from eva_master.model.catalog import Purchase
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.records import Instance
from eva_master.packing.bins.placement_groups import NO_ROOM
from eva_master.packing.plan_effect import PlanEffect
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import InstanceId, Millis, RunId

BOX = offer("box", (0, 4, 8), 1, limit=1)


def test_a_limit_is_the_reason_only_without_room() -> None:
    cluster = Cluster(BOX).instance("i1", "box")
    cluster.job("running", task(any=(0, 3, 1)), on=["i1"])
    cluster.job("small", task(any=(0, 1, 1))).job("large", task(any=(0, 2, 1)))
    small, large = RunId("small/0"), RunId("large/0")
    plan = Plan(entries=(Hold(large, NO_ROOM), Hold(small, NO_ROOM)))
    effect = PlanEffect(cluster.snapshot(), plan)
    reasons = LimitReasons(Limits(), 1, lambda _: "me").told(effect).held
    assert reasons[small] == NO_ROOM, "it fits beside the task that runs"
    assert "box" in reasons[large]


def test_members_that_are_not_owned_are_known_while_they_stand() -> None:
    membership, history = Membership(), (("ready", 1),)
    member = Instance(InstanceId("i1"), BOX, history, Millis(1), pool="steady")
    owned = replace(BOX, purchase=Purchase.OWNED)
    membership.follow(member)
    membership.follow(Instance(InstanceId("n1"), owned, history, Millis(1), pool="steady"))
    assert [*membership.standing] == ["i1", "n1"]
    assert [*membership.bought] == ["i1"]
    membership.follow(replace(member, pool=""))
    assert not membership.bought
