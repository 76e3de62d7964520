"""A gang that is alone on an idle cluster begins under every policy if it fits, or is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.packing.elastic.fixed import built
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import Unplaceable
from eva_wire.values.ids import Family, InstanceId, Price, Workload
from eva_wire.values.states import RunState
from tests.drawing import NEW
from tests.fakes.policies.whole import WHOLE

FAMILY = Family("c")
HOUR_MS = 3_600_000
APART = {name for name, kind in policies().items() if not getattr(kind, "packs", True)}
"""Policies that give each task an instance of its own."""


@dataclass(frozen=True, slots=True)
class World:
    """A gang and an idle cluster.

    Attributes:
        rented: Sizes in vCPUs of instances that may be launched, one for each.
        owned: Those of nodes.
        needs: Those of the members.
    """

    rented: tuple[int, ...]
    owned: tuple[int, ...]
    needs: tuple[int, ...]


def _world(seed: int) -> World:
    draw = random.Random(seed)
    sizes = draw.sample([1, 2, 4, 8], draw.randint(1, 3))
    rented = tuple(size for size in sizes for _ in range(draw.randint(0, 2)))
    owned = tuple(draw.choice([2, 4]) for _ in range(draw.choice([0, 0, 1, 2])))
    members, small = draw.randint(2, 5), draw.choice([1, 1, 2])
    needs = [small] * members
    if draw.random() < 0.3:
        needs[0] = 2 * small
    return World(rented, owned, tuple(needs))


WORLDS = (
    World(rented=(4,), owned=(), needs=(1, 1, 1, 1)),
    World(rented=(4,), owned=(), needs=(1, 1)),
    World(rented=(), owned=(4,), needs=(2, 1, 1)),
    *map(_world, range(12 if NEW else 4)),
)


def _fits(needs: Sequence[int], sizes: Sequence[int], *, apart: bool) -> bool:
    """Whether every member has room, by trying all instances for each in turn."""
    if not needs:
        return True
    return any(
        _fits(
            needs[1:], (*sizes[:at], 0 if apart else size - needs[0], *sizes[at + 1 :]), apart=apart
        )
        for at, size in enumerate(sizes)
        if size >= needs[0]
    )


def _machine(name: str, cpus: int) -> InstanceType:
    size = Resources(0, cpus * 1000, cpus * 2048)
    return InstanceType(name, FAMILY, size, acquisition_ms=10_000, setup_ms=20_000)


def _catalog(world: World) -> Catalog:
    return tuple(
        Offering(
            _machine(f"c.{cpus}", cpus),
            Price(40_000 + cpus * 10_000),
            limit=world.rented.count(cpus),
        )
        for cpus in sorted({*world.rented})
    )


def _nodes(world: World) -> Iterator[OwnedNode]:
    for number, cpus in enumerate(world.owned):
        machine = _machine(f"own.{cpus}", cpus)
        offering = Offering(machine, Price(0), NODE_ZONE, Purchase.OWNED)
        yield OwnedNode(InstanceId(f"n{number}"), offering, 60_000)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", WHOLE)
def test_a_lone_gang_begins_if_it_fits_and_is_refused_if_not(name: str, world: World) -> None:
    kind, apart = policies()[name], name in APART
    tasks = tuple(
        TaskSpec(
            Workload("w"), Program("true"), ((FAMILY, Resources(0, cpus * 1000, cpus * 1024)),)
        )
        for cpus in world.needs
    )
    sizes = (*world.rented, *world.owned)
    if not sizes or max(sizes) < max(world.needs):
        return  # No type holds a member: the job file is refused.
    cluster = SimulatedCluster(
        _catalog(world),
        built(kind, kind.config()),
        settings=Settings(
            nodes={node.name: node for node in _nodes(world)},
            partitions=Partitions(whole=Partition(default=True, packs=not apart)),
        ),
        delays=EqualDelays(report_ms=5_000),
        work_of=lambda _run: Work(30 * HOUR_MS),
    )
    cluster.timeline.after(5_000, lambda: None)
    assert cluster.run(lambda: cluster.timeline.now() >= 5_000)
    command = cluster.submit(JobSpec("g", "me", tasks, kind=JobKind.GANG))
    assert cluster.run(lambda: command in cluster.answers.replies, limit_ms=60_000)
    error = cluster.answers.replies[command].error
    if not _fits(world.needs, sizes, apart=apart):
        assert isinstance(error, Unplaceable), world
        return
    assert error is None, error
    job = cluster.answers.replies[command].job
    assert job is not None

    def begun() -> bool:
        return all(run.state is RunState.RUNNING for run in cluster.state.members(job))

    assert cluster.run(begun, limit_ms=HOUR_MS), (
        world,
        [(run.id, run.waiting_for) for run in cluster.state.members(job)],
    )
