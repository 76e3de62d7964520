"""Jobs that limits forbid for ever are refused at submission, with the room that there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.events import JobSubmitted, MoveRequested
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode, offerings
from eva_master.model.fleet.partitions import (
    Budget,
    Partition,
    PartitionLimits,
    Partitions,
    Rule,
    with_nodes,
)
from eva_master.model.job import ElasticGang, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import EvaError, Unplaceable
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, Workload

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
    return JobSpec(
        "j",
        "me",
        (task,) * tasks,
        kind=JobKind.GANG,
        elastic=ElasticGang(least=least),
        partition=partition,
    )


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


# -- limits of the partition, the user and the cluster --------------------------------------------

C = Family("c")
SMALL = Offering(InstanceType("c.small", C, Resources(0, 2_000, 4_096)), Price(100_000))
LARGE = Offering(InstanceType("c.large", C, Resources(0, 4_000, 8_192)), Price(180_000))


def _cpus(tasks: int, cpus: int = 2, least: int | None = None, **more: object) -> JobSpec:
    task = TaskSpec(Workload("w"), Program("true"), ((C, Resources(0, cpus * 1_000, 1_024)),))
    spec = JobSpec("j", "me", (task,) * tasks, kind=JobKind.GANG, elastic=ElasticGang(least=least))
    return with_values(spec, more)


def _limited(
    *catalog: Offering,
    limits: Limits = Limits(),  # noqa: B008
    part: Partition | None = None,
    **more: object,
) -> Machine:
    parts = Partitions() if part is None else Partitions((part, Partition("rest")))
    settings = replace(Settings(), limits=limits, partitions=parts)
    return Machine(State(catalog), replace(settings, **more))  # type: ignore[arg-type]


def _part(**more: object) -> Partition:
    return replace(Partition("p", default=True), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (
            _limited(SMALL, part=_part(limits=PartitionLimits(instances=1))),
            "partition p has room for 1 of them when it is empty: 1 on c.small; it may have 1"
            " instances (partitions.p.limits.instances)",
        ),
        (
            _limited(SMALL, part=_part(budget=Budget(per_hour=150_000))),
            "partition p has room for 1 of them when it is empty: 1 on c.small; it may spend $0.15"
            " per hour (partitions.p.budget.usd_per_hour)",
        ),
        (
            _limited(SMALL, limits=Limits(instances=1)),
            "the cluster has room for 1 of them when it is empty: 1 on c.small; the cluster"
            " may have 1 instances (limits.instances)",
        ),
        (
            _limited(SMALL, limits=Limits(instances_per_user=1)),
            "tasks of me may be on 1 instances (limits.instances_per_user)",
        ),
        (
            _limited(SMALL, limits=Limits(instances_per_job=1)),
            "tasks of a job may be on 1 instances (limits.instances_per_job)",
        ),
        (
            _limited(
                SMALL,
                LARGE,
                part=_part(packs=False, policy="no_packing"),
                limits=Limits(instances=1),
            ),
            "partition p has room for 1 of them when it is empty: 1 on c.small; the cluster"
            " may have 1 instances (limits.instances)",
        ),
        (
            _limited(replace(LARGE, limit=1), part=_part(packs=False, policy="no_packing")),
            "partition p has room for 1 of them when it is empty: 1 on c.large; its policy,"
            " no_packing, gives each task an instance of its own",
        ),
    ],
)
def test_a_gang_of_two_instances_is_refused_where_one_is_allowed(
    machine: Machine, told: str
) -> None:
    error = _submit(machine, _cpus(2))
    assert isinstance(error, Unplaceable)
    assert error.message.startswith("the gang has 2 tasks that run together, and ")
    assert error.message.endswith(told)
    assert error.hint


@pytest.mark.parametrize(
    "machine",
    [
        _limited(SMALL, LARGE, part=_part(limits=PartitionLimits(instances=1))),
        _limited(SMALL, LARGE, part=_part(budget=Budget(per_hour=180_000))),
        _limited(SMALL, LARGE, limits=Limits(instances=1)),
        _limited(SMALL, LARGE, limits=Limits(instances_per_user=1, instances_per_job=1)),
        _limited(SMALL, part=_part(budget=Budget(per_hour=200_000))),
    ],
)
def test_one_that_fits_on_fewer_or_cheaper_instances_is_accepted(machine: Machine) -> None:
    assert _submit(machine, _cpus(2)) is None


def test_an_elastic_gang_needs_room_for_its_least_members() -> None:
    machine = _limited(SMALL, limits=Limits(instances_per_job=2))
    assert _submit(machine, _cpus(5, least=2)) is None
    machine = _limited(SMALL, limits=Limits(instances_per_job=2))
    error = _submit(machine, _cpus(5, least=3))
    assert error is not None
    assert "3 tasks at least that run together" in error.message


def test_a_task_of_an_array_that_only_a_dear_type_holds_is_refused() -> None:
    part = _part(budget=Budget(per_hour=150_000))
    small, large = _cpus(1).tasks[0], _cpus(1, cpus=4).tasks[0]
    array = JobSpec("j", "me", (small,) * 40, kind=JobKind.ARRAY)
    assert _submit(_limited(SMALL, LARGE, part=part), array) is None
    error = _submit(_limited(SMALL, LARGE, part=part), replace(array, tasks=(small, large)))
    assert isinstance(error, Unplaceable)
    assert error.message == (
        "a task of the job cannot run in partition p even when it is empty; it may spend $0.15 per"
        " hour (partitions.p.budget.usd_per_hour)"
    )


def test_members_that_differ_are_looked_at_together() -> None:
    small, large = _cpus(1).tasks[0], _cpus(1, cpus=4).tasks[0]
    spec = replace(_cpus(1), tasks=(small, large))
    machine = _limited(replace(LARGE, limit=1))
    error = _submit(machine, spec)
    assert isinstance(error, Unplaceable)
    assert "2 tasks that run together, and the cluster cannot run them" in error.message
    assert _submit(_limited(replace(LARGE, limit=2)), spec) is None


def test_what_costs_many_times_what_tasks_are_worth_is_no_room() -> None:
    huge = Offering(InstanceType("c.huge", C, Resources(0, 64_000, 65_536)), Price(3_200_000))
    few = replace(SMALL, limit=1)
    error = _submit(_limited(few, huge), _cpus(3))
    assert isinstance(error, Unplaceable)
    assert "price_limit" in error.message
    assert _submit(_limited(few, huge, price_limit_ppm=None), _cpus(3)) is None
    assert _submit(_limited(few, huge), _cpus(9)) is None


def test_it_moves_to_no_partition_whose_limits_forbid_it() -> None:
    part = _part(default=False, limits=PartitionLimits(instances=1))
    parts = Partitions((Partition("main", default=True), part))
    machine = _limited(SMALL, partitions=parts)
    assert _submit(machine, _cpus(2)) is None
    event = MoveRequested("m", JobId("j-1"), "p", "me", operator=True)
    (reply,) = (it for it in machine.handle([event], Millis(2_000)) if isinstance(it, Reply))
    assert isinstance(reply.error, Unplaceable)
    assert "partitions.p.limits.instances" in reply.error.message


def test_a_rule_leads_to_the_same_refusal() -> None:
    brief = _part(default=False, limits=PartitionLimits(instances=1), rule=Rule(below_ms=60_000))
    parts = Partitions((brief, Partition("main", default=True)))
    assert _submit(_limited(SMALL, partitions=parts), _cpus(2, duration_ms=90_000)) is None
    error = _submit(_limited(SMALL, partitions=parts), _cpus(2, duration_ms=30_000))
    assert isinstance(error, Unplaceable)


def test_a_gang_of_thousands_is_counted_at_once() -> None:
    machine = _limited(SMALL, LARGE, limits=Limits(instances=1_000))
    assert _submit(machine, _cpus(2_000)) is None
    error = _submit(_limited(SMALL, LARGE, limits=Limits(instances=1_000)), _cpus(2_001))
    assert error is not None
    assert "room for 2,000 of them" in error.message
