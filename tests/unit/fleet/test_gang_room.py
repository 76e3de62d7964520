"""A gang that could never run together is refused when it is submitted, with the largest room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.errors import EvaError, Unplaceable
from eva_master.model.events import JobSubmitted, MoveRequested
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode, offerings
from eva_master.model.fleet.partitions import Partition, Partitions, with_nodes
from eva_master.model.ids import Family, InstanceId, JobId, Millis, Price, Workload
from eva_master.model.job import JobKind, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources

GPU = Resources(1, 1_000, 1_024)
ROOM = Resources(4, 8_000, 8_192)
BOTH = ((Family("v100"), GPU), (Family("k80"), GPU))


def _node(name: str, family: str) -> OwnedNode:
    machine = InstanceType(f"{family}.node", Family(family), ROOM)
    return OwnedNode(
        InstanceId(name), Offering(machine, Price(0), NODE_ZONE, Purchase.OWNED), 60_000
    )


NODES = {it.name: it for it in (_node("a", "v100"), _node("b", "k80"), _node("c", "k80"))}
FOR_RENT = Offering(InstanceType("v100.big", Family("v100"), ROOM), Price(1))
PARTS = with_nodes(
    (
        Partition("fast", nodes=frozenset({InstanceId("a"), InstanceId("c")})),
        Partition("main", default=True),
    ),
    {name: node.offering.id for name, node in NODES.items()},
)


def _machine(more: Catalog = (), parts: Partitions | None = None) -> Machine:
    settings = replace(Settings(), nodes=NODES)
    if parts is not None:
        settings = replace(settings, partitions=parts)
    return Machine(State((*offerings(NODES.values()), *more)), settings)


def _spec(tasks: int, least: int | None = None, partition: str = "") -> JobSpec:
    task = TaskSpec(Workload("w"), Program("true"), BOTH)
    return JobSpec("j", "me", (task,) * tasks, kind=JobKind.GANG, least=least, partition=partition)


def _submit(machine: Machine, spec: JobSpec) -> EvaError | None:
    told = machine.handle([JobSubmitted("c", spec)], Millis(1_000))
    (reply,) = (it for it in told if isinstance(it, Reply))
    return reply.error


@pytest.mark.parametrize(("tasks", "least"), [(12, None), (40, 12), (1, None)])
def test_a_gang_that_fits_the_empty_fleet_is_accepted(tasks: int, least: int | None) -> None:
    assert _submit(_machine(), _spec(tasks, least)) is None


@pytest.mark.parametrize(("tasks", "least"), [(13, None), (40, 13)])
def test_one_that_is_larger_is_refused_with_the_largest_room(tasks: int, least: int | None) -> None:
    error = _submit(_machine(), _spec(tasks, least))
    assert isinstance(error, Unplaceable)
    assert "13 tasks" in error.message
    assert "the cluster has room for 12 of them" in error.message
    assert "8 on k80.node, 4 on v100.node" in error.message
    assert error.hint


def test_what_can_be_rented_without_limit_holds_any_gang() -> None:
    assert _submit(_machine((FOR_RENT,)), _spec(100)) is None
    assert _submit(_machine((replace(FOR_RENT, limit=1),)), _spec(16)) is None
    assert _submit(_machine((replace(FOR_RENT, limit=1),)), _spec(17)) is not None
    assert _submit(_machine((replace(FOR_RENT, limit=0),)), _spec(13)) is not None


def test_an_array_waits_for_room_however_many_tasks_it_has() -> None:
    assert _submit(_machine(), replace(_spec(100), kind=JobKind.ARRAY)) is None


@pytest.mark.parametrize(("partition", "room"), [("fast", 8), ("main", 4)])
def test_only_the_nodes_of_its_partition_count(partition: str, room: int) -> None:
    assert _submit(_machine(parts=PARTS), _spec(room, partition=partition)) is None
    error = _submit(_machine(parts=PARTS), _spec(room + 1, partition=partition))
    assert isinstance(error, Unplaceable)
    assert f"partition {partition} has room for {room} of them" in error.message


def test_it_moves_to_no_partition_that_is_too_small() -> None:
    machine = _machine(parts=PARTS)
    assert _submit(machine, _spec(8, partition="fast")) is None
    event = MoveRequested("m", JobId("j-1"), "main", "me", operator=True)
    (reply,) = (it for it in machine.handle([event], Millis(2_000)) if isinstance(it, Reply))
    assert isinstance(reply.error, Unplaceable)
    assert machine.state.jobs[JobId("j-1")].partition == "fast"
