"""Own nodes in the pool of a policy in front serve the policy behind as well."""

from __future__ import annotations

from dataclasses import replace

from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.values.ids import InstanceId, Price
from eva_wire.values.states import JobState
from tests.fakes.jobs import MEDIUM, job
from tests.simulation.standing.test_given_up_members import SHORT, World


def slearn_in_front() -> Policy:
    """The policy ``slearn`` for short jobs, in front of ``eva``."""
    kinds = policies()
    front, back = (kinds[name].build(kinds[name].config()) for name in ("slearn", "eva"))
    return Splitter.of_short(front, back, SHORT.below_ms, shares=False)


def world(count: int) -> World:
    """A cluster of own nodes alone."""
    owned = replace(MEDIUM, price=Price(0), zone=NODE_ZONE, purchase=Purchase.OWNED, limit=count)
    names = [InstanceId(f"n{number}") for number in range(count)]
    nodes = {name: OwnedNode(name, owned, 600_000) for name in names}
    return World(
        (),
        slearn_in_front(),
        Settings(nodes=nodes, partitions=Partitions(whole=Partition(default=True, short=SHORT))),
    )


def test_a_long_job_runs_on_the_only_node() -> None:
    there = world(1)
    long = there.submit(job("long", 4, minutes=5))
    there.until(long, JobState.SUCCEEDED, minutes=7)


def test_short_jobs_that_wait_come_first_and_leave_the_other_node_to_a_long_one() -> None:
    there = world(2)
    short = there.submit(job("short", 4, minutes=1))
    first = there.submit(job("first", 4, minutes=5))
    second = there.submit(job("second", 4, minutes=5))
    there.until(short, JobState.SUCCEEDED, minutes=2)
    assert there.cluster.state.jobs[first].state is JobState.RUNNING
    there.until(second, JobState.SUCCEEDED, minutes=8)
