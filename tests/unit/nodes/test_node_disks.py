"""Disks of owned nodes: as stated, or as their workers measure them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.resolving.placement import unplaceable
from eva_master.app.nodes.settings import CapacitySection, NodeSection, clashes
from eva_master.control.machine import Machine
from eva_master.control.measure.memory import fit
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.changes import Changes
from eva_master.model.events import WorkerRegistered
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode, offerings
from eva_master.model.job import Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Millis, Price, Workload

GIB = 1_024
FIRST, SECOND = InstanceId("rack1"), InstanceId("rack2")


class Rack:
    """Two nodes of one type.

    Args:
        stated: GiB of disk that the operator states; 0 for none.
    """

    def __init__(self, stated: int = 0) -> None:
        self.size = Resources(0, 4_000, 8 * GIB, stated * GIB)
        machine = InstanceType("own.4", Family("own"), self.size)
        offering = Offering(machine, Price(0), NODE_ZONE, Purchase.OWNED)
        nodes = {name: OwnedNode(name, offering, 60_000) for name in (FIRST, SECOND)}
        self.catalog = offerings(nodes.values())
        self.machine = Machine(State(self.catalog), replace(Settings(), nodes=nodes))
        self.now = 0

    def joins(self, name: InstanceId, disk: int) -> None:
        self.now += 1_000
        size = replace(self.size, disk_mib=disk * GIB)
        self.machine.handle([WorkerRegistered(name, self.now, size, ())], Millis(self.now))

    def disks(self) -> list[int]:
        """GiB of the offering, and of each node that is here."""
        state = self.machine.state
        live = [state.instances[name].offering for name in sorted(state.live)]
        return [offering.type.capacity.disk_mib // GIB for offering in (*state.catalog, *live)]


def test_the_least_that_workers_measure_counts_for_a_type() -> None:
    rack = Rack()
    assert rack.disks() == [0]
    rack.joins(FIRST, 500)
    assert rack.disks() == [500, 500]
    rack.joins(SECOND, 800)
    assert rack.disks() == [500, 500, 500]
    rack.joins(SECOND, 300)
    assert rack.disks() == [300, 300, 300]


def test_it_is_known_after_a_restart_of_the_master() -> None:
    rack = Rack()
    rack.joins(FIRST, 500)
    written = rack.machine.state.take_changes()
    restored = State.restored(rack.catalog, Changes(values=written.documents()))
    fit(restored)
    assert restored.catalog[0].type.capacity.disk_mib == 500 * GIB


def test_a_stated_disk_counts_and_a_node_with_less_gets_no_tasks() -> None:
    rack = Rack(stated=400)
    rack.joins(FIRST, 900)
    assert rack.disks() == [400, 400]
    rack.joins(SECOND, 399)
    assert rack.machine.state.can_place(FIRST)
    assert not rack.machine.state.can_place(SECOND)
    drain = rack.machine.state.instances[SECOND].drain
    assert drain is not None
    assert "399 GiB of disk and is stated with 0 GPUs, 4 vCPUs, 8 GiB, 400 GiB" in drain.lacks


@pytest.mark.parametrize(("disk", "message"), [(500, ""), (501, "own.4, lacks 1 GiB of disk")])
def test_a_job_that_no_node_has_the_disk_for_is_refused(disk: int, message: str) -> None:
    rack = Rack()
    rack.joins(FIRST, 500)
    need = Resources(0, 1_000, GIB, disk * GIB)
    task = TaskSpec(Workload("w"), Program("true"), ((Family("own"), need),))
    said = unplaceable(task, rack.machine.state.catalog)
    assert message in said
    assert bool(message) is bool(said)


def test_a_node_may_be_of_a_type_that_a_cloud_sells_with_another_disk() -> None:
    capacity = CapacitySection(cpus=2, memory="8GiB", disk="2TiB")  # type: ignore[arg-type]
    section = NodeSection(type="c7i.large", capacity=capacity)
    size = replace(capacity.resources, disk_mib=16_284 * GIB)
    sold = Offering(InstanceType("c7i.large", Family("c7i"), size, sized_disk=True), Price(1), "a")
    assert capacity.resources.disk_mib == 2_048 * GIB
    assert clashes({"rack1": section}, (sold,)) == []
    assert clashes(
        {"rack1": section}, (replace(sold, type=replace(sold.type, capacity=Resources(0, 1, 1))),)
    )
