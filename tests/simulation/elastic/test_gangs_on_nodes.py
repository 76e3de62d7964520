"""Elastic gangs on instances that stay though they are empty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import NodeRequested
from eva_master.model.fleet.nodes import NODE_ZONE, NodeVerb, OwnedNode
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec
from eva_master.model.resources import Resources
from eva_master.packing.elastic.fixed import built
from eva_wire.values.ids import Family, InstanceId, JobId, Price
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import job

MINUTE_MS = 60_000


def node(name: str, cpus: int = 4, usd: float = 0, family: str = "c") -> OwnedNode:
    """A node of so many CPUs."""
    kind = InstanceType(f"{family}.{cpus}", Family(family), Resources(0, cpus * 1000, cpus * 2048))
    price = Price(round(usd * 1e6))
    offering = Offering(kind, price, zone=NODE_ZONE, purchase=Purchase.OWNED)
    return OwnedNode(InstanceId(name), offering, fence_ms=60_000)


class World:
    """A cluster of owned nodes alone, in which elastic gangs of 2 CPUs a member run."""

    def __init__(self, *nodes: OwnedNode, partitions: Partitions | None = None) -> None:
        kind = policies()["eva"]
        policy = built(kind, kind.config())
        settings = Settings(
            nodes={it.name: it for it in nodes},
            partitions=partitions or Partitions(),
            round_gap_ms=5_000,
        )
        self.cluster = SimulatedCluster((), policy, settings=settings)

    def gang(self, name: str, *, least: int = 2, most: int = 4, **more: object) -> JobId:
        """Submit an elastic gang."""
        return self.submit(job(name, *[2] * most, minutes=20, least=least, **more))

    def submit(self, spec: JobSpec) -> JobId:
        """Submit a job and go on until it is there."""
        known = set(self.cluster.state.jobs)
        self.cluster.submit(spec)
        assert self.cluster.run(lambda: set(self.cluster.state.jobs) > known)
        (name,) = set(self.cluster.state.jobs) - known
        return name

    def members(self, name: JobId) -> list[InstanceId | None]:
        """The places of the members that run, once a minute has passed."""
        end = self.cluster.timeline.now() + MINUTE_MS
        assert self.cluster.run(lambda: self.cluster.timeline.now() >= end)
        runs = self.cluster.state.members(name)
        return sorted(it.instance for it in runs if it.state is RunState.RUNNING)  # type: ignore[type-var]


@pytest.mark.parametrize("usd", [0, 1])
def test_a_gang_grows_onto_an_empty_node(usd: float) -> None:
    world = World(node("one", usd=usd), node("two", usd=usd))
    gang = world.gang("g")
    assert world.members(gang) == ["one", "one", "two", "two"]


def test_a_gang_grows_onto_a_node_that_empties() -> None:
    world = World(node("one"), node("two"))
    other = world.submit(job("other", 4, minutes=3))
    gang = world.gang("g")
    assert len(world.members(gang)) == 2
    assert world.cluster.run(
        lambda: world.cluster.state.jobs[other].state is JobState.SUCCEEDED,
        limit_ms=10 * MINUTE_MS,
    )
    assert len(world.members(gang)) == 4


def test_several_gangs_share_the_nodes() -> None:
    world = World(*(node(name) for name in ("one", "two", "three", "four")))
    first, second = world.gang("g"), world.gang("h")
    assert len(world.members(first)) == 4
    assert len(world.members(second)) == 4


def test_a_gang_makes_room_for_others_again() -> None:
    world = World(node("one"), node("two"))
    gang = world.gang("g")
    assert len(world.members(gang)) == 4
    other = world.submit(job("other", 4, minutes=3))
    assert len(world.members(gang)) == 2
    assert world.cluster.state.jobs[other].state is JobState.RUNNING


def test_a_node_of_another_partition_is_left_alone() -> None:
    nodes = node("one"), node("two")
    offering = frozenset({nodes[0].offering.id})
    mine = Partition("mine", default=True, nodes=frozenset({InstanceId("one")}), owned=offering)
    theirs = Partition("theirs", nodes=frozenset({InstanceId("two")}), owned=offering)
    world = World(*nodes, partitions=Partitions((mine, theirs)))
    assert world.members(world.gang("g", partition="mine")) == ["one", "one"]


def test_a_node_that_an_operator_drains_is_left_alone() -> None:
    world = World(node("one"), node("two"))
    order = NodeRequested("drain", InstanceId("two"), NodeVerb.DRAIN, owner="root")
    world.cluster.inbox.post(order)
    assert world.members(world.gang("g")) == ["one", "one"]


def test_a_slower_node_is_left_alone_unless_members_divide_batches() -> None:
    def members(**more: object) -> int:
        world = World(node("one"), node("two", family="d"))
        (task,) = job("g", 2).tasks
        need = task.demand[0][1]
        demand = ((Family("c"), need), (Family("d"), need))
        rates = ((Family("c"), 10_000_000), (Family("d"), 4_000_000))
        task = replace(task, demand=demand, throughput=rates)
        spec = replace(job("g", 2, minutes=20, least=2, **more), tasks=(task,) * 4)
        return len(world.members(world.submit(spec)))

    assert members() == 2
    assert members(split_batch=True) == 4
