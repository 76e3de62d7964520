"""`eva explain` says why a forked job has no more forks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.catalog import Purchase
from eva_master.model.events import PlanReady, WorkerRegistered
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.planning.plan import Assign, Plan
from eva_wire.values.ids import InstanceId, JobId, Millis
from tests.fakes.hand_driven import CATALOG, FAST, SETTINGS, Cluster

FORKED = """run: train
resources: {cpus: 3, memory: 1GiB}
forks: 2
total_steps: 1000
throughput: 1
"""
NODE = replace(FAST, purchase=Purchase.OWNED, zone=NODE_ZONE)


def told(cluster: Cluster, job: str = "job-1") -> str:
    """Words about a job's forks."""
    return cluster.machine.published().unforked(JobId(job), Millis(cluster.now))


def with_nodes(*names: str) -> Cluster:
    """A cluster of owned nodes that have joined."""
    nodes = {InstanceId(it): OwnedNode(InstanceId(it), NODE, 60_000) for it in names}
    settings = replace(SETTINGS, nodes=nodes)
    cluster = Cluster(State((*CATALOG, NODE)), settings)
    for action in cluster.machine.recover(Millis(0)):
        if isinstance(action, RequestPlan):
            cluster.handle(PlanReady(action.round, Plan(), None), at=0)
    for number, name in enumerate(nodes):
        registered = WorkerRegistered(name, number + 1, NODE.type.capacity, ())
        cluster.handle(registered, at=0)
        cluster.sessions = number + 1
        if (request := cluster.request) is not None:
            cluster.request = None
            cluster.handle(PlanReady(request.round, Plan(), None), at=0)
    return cluster


def test_where_no_machine_stays_the_reason_is_that() -> None:
    cluster = Cluster()
    cluster.start(FORKED)
    assert told(cluster) == (
        "it has 1 of 2 forks: others begin only on machines that stay, and there is none: own nodes"
        " (`nodes`), or instances that stand in a pool"
    )


def test_before_fork_0_has_a_place_no_other_begins() -> None:
    cluster = Cluster()
    cluster.submit(FORKED, name="job")
    assert "before fork 0 has a place" in told(cluster)


def test_a_job_without_forks_is_told_nothing() -> None:
    cluster = Cluster()
    cluster.start("run: train\nresources: {cpus: 1, memory: 1GiB}\n")
    assert told(cluster) == ""


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (["n1"], "others begin only on machines that stay; one machine stays: 1 with a fork of it"),
        (["n1", "n2"], ""),
    ],
)
def test_the_machines_that_stay_are_told_with_what_is_in_the_way(
    nodes: list[str], says: str
) -> None:
    cluster = with_nodes(*nodes)
    cluster.submit(FORKED, name="job", at=1_000)
    request = cluster.request
    assert request is not None
    (run,) = request.snapshot.runs
    place = Plan((), (Assign(run.id, InstanceId("n1")),))
    cluster.handle(PlanReady(request.round, place, None), at=2_000)
    assert says in told(cluster)
    assert bool(told(cluster)) is bool(says)
