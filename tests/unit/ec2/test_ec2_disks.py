"""Size of the volume that an instance of EC2 is launched with."""

from __future__ import annotations

import pytest

from eva_master.adapters.ec2.launching.images import MachineImage
from eva_master.adapters.ec2.launching.run_instances_request import launch_request
from eva_master.adapters.ec2.memory import for_tasks
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import (
    Attached,
    InstanceType,
    Offering,
    sold_as,
    told_apart,
    with_disk,
)
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Price

GIB = 1_024
LARGE = Offering(
    InstanceType("c7i.large", Family("c7i"), Resources(0, 2_000, 4_096)), Price(1), "a"
)
VOLUME = Attached(root_gib=100)


@pytest.mark.parametrize(
    ("needs_mib", "size_gib"),
    [(0, 100), (1, 101), (200 * GIB, 300), (200 * GIB + 1, 301), (16_284 * GIB, 16_384)],
)
def test_the_volume_has_room_for_images_and_for_what_tasks_state(
    needs_mib: int, size_gib: int
) -> None:
    settings = Ec2Settings("lab", "us-east-1")
    offering = with_disk(for_tasks(LARGE, VOLUME), needs_mib)
    action = LaunchInstance(InstanceId("i00001"), offering)
    request = launch_request(settings, action, MachineImage("ami-1", "/dev/xvda"), "")
    (mapping,) = request["BlockDeviceMappings"]
    assert mapping["Ebs"]["VolumeSize"] == size_gib


def test_no_volume_is_larger_than_ec2_makes_them() -> None:
    sold = for_tasks(LARGE, VOLUME)
    assert sold.type.capacity.disk_mib == (16_384 - 100) * GIB
    assert with_disk(sold, 10**9).type.capacity.disk_mib == (16_384 - 100) * GIB


def test_instances_of_unlike_disks_have_ids_of_their_own_and_one_in_the_catalog() -> None:
    sold = for_tasks(LARGE, VOLUME)
    small, large = (told_apart(with_disk(sold, gib * GIB)) for gib in (0, 200))
    assert len({sold.id, small.id, large.id}) == 3
    assert sold_as(small) == sold_as(large) == sold_as(sold) == sold.id
    assert told_apart(LARGE) is LARGE
    assert with_disk(LARGE, 5) is LARGE
