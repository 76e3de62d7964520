"""Claimants whose purchase a limit forbids get the room that they claim, if it is empty."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.rounds.rules import claimed_room
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PlanEntry
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.plan_effect import PlanEffect
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import InstanceId, JobId, RunId

TYPE = offer("any.4", (0, 4, 8), 1)
ONE = task(any=(0, 2, 1))
CUT = "the cluster may have 2 instances (limits.instances)"


def snapshot(*, pool: str = "", busy: bool = False) -> Snapshot:
    cluster = Cluster(TYPE).instance("i-1", "any.4").instance("i-2", "any.4")
    cluster.job("old", ONE, on=["i-1" if busy else "i-2"])
    cluster.job("urgent", ONE, priority=1)
    cluster.job("gang", ONE, ONE)
    made = cluster.snapshot()
    views = tuple(replace(it, pool=pool) if it.id == "i-1" else it for it in made.instances)
    return replace(made, instances=views)


def claim(job: str, *runs: str) -> Claim:
    names = InstanceId("i-1"), InstanceId("i-2")
    return Claim(JobId(job), tuple(map(RunId, runs)), 1, names, (), "has a higher priority")


def plans(*runs: str) -> tuple[Plan, Plan]:
    """A policy's plan that buys an instance for each, and what a limit leaves of it."""
    bought = tuple(NewInstance(number, TYPE) for number in range(len(runs)))
    wanted: tuple[PlanEntry, ...] = tuple(
        Assign(RunId(run), number) for number, run in enumerate(runs)
    )
    held = tuple(Hold(RunId(run), CUT) for run in runs)
    return Plan(entries=held), Plan(launches=bought, entries=wanted)


def seated(plan: Plan, wanted: Plan, now: Snapshot, claims: list[Claim]) -> Plan:
    plans = PlanEffect(now, plan), PlanEffect(now, wanted)
    return claimed_room.seated(*plans, claims).plan


URGENT = claim("urgent", "urgent/0")


def test_the_claimant_gets_the_empty_one() -> None:
    left, wanted = plans("urgent/0")
    plan = seated(left, wanted, snapshot(), [URGENT])
    assert plan.entries == (Assign(RunId("urgent/0"), InstanceId("i-1")),)


def test_room_that_others_have_or_come_to_or_of_pools_is_left_alone() -> None:
    left, wanted = plans("urgent/0")
    for now in (snapshot(busy=True), snapshot(pool="short.steady")):
        others = replace(now, instances=tuple(it for it in now.instances if it.id == "i-1"))
        assert seated(left, wanted, others, [URGENT]) is left
    comes = Plan(entries=(*left.entries, Assign(RunId("gang/0"), InstanceId("i-1"))))
    assert seated(comes, wanted, snapshot(), [URGENT]) is comes


def test_nothing_is_given_without_a_claim_nor_where_the_policy_bought_nothing() -> None:
    left, wanted = plans("urgent/0")
    assert seated(left, wanted, snapshot(), []) is left
    assert seated(left, left, snapshot(), [URGENT]) is left


def test_a_gang_gets_room_as_a_whole_or_none() -> None:
    left, wanted = plans("gang/0", "gang/1")
    gang = claim("gang", "gang/0", "gang/1")
    assert seated(left, wanted, snapshot(), [gang]) is left
    now = snapshot()
    free = replace(now, instances=tuple(replace(it, residents=()) for it in now.instances))
    plan = seated(left, wanted, free, [gang])
    assert {it.on for it in plan.entries if isinstance(it, Assign)} == {"i-1", "i-2"}
