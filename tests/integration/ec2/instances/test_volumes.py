"""Rules of the stand-in for volumes and snapshots, which the how-to of a restore keeps to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws, shared

A, B = f"{REGION}a", f"{REGION}b"


@pytest.fixture
def ec2() -> Any:
    return shared().client("ec2")


@pytest.fixture
def instance(ec2: Any) -> Iterator[str]:
    launched = ec2.run_instances(
        ImageId=OLD_IMAGE,
        InstanceType="t3.small",
        MinCount=1,
        MaxCount=1,
        Placement={"AvailabilityZone": A},
    )
    name = launched["Instances"][0]["InstanceId"]
    yield name
    ec2.terminate_instances(InstanceIds=[name])


def volume(ec2: Any, zone: str = A, **made_of: Any) -> str:
    """A new volume, which is being created."""
    made = ec2.create_volume(AvailabilityZone=zone, **(made_of or {"Size": 20}))
    assert made["State"] == "creating"
    return str(made["VolumeId"])


def state(ec2: Any, name: str) -> str:
    return str(ec2.describe_volumes(VolumeIds=[name])["Volumes"][0]["State"])


def available(ec2: Any, zone: str = A) -> str:
    name = volume(ec2, zone)
    assert [state(ec2, name), state(ec2, name)] == ["creating", "available"]
    return name


def refused(ec2: Any, name: str, instance: str, device: str = "/dev/sdg") -> str:
    with pytest.raises(ClientError) as caught:
        ec2.attach_volume(VolumeId=name, InstanceId=instance, Device=device)
    return str(caught.value.response["Error"]["Code"])


def test_a_volume_is_attached_once_it_is_available_in_its_zone(ec2: Any, instance: str) -> None:
    early = volume(ec2)
    assert refused(ec2, early, instance) == "IncorrectState"
    assert refused(ec2, available(ec2, B), instance) == "InvalidVolume.ZoneMismatch"
    name = available(ec2)
    ec2.attach_volume(VolumeId=name, InstanceId=instance, Device="/dev/sdg")
    assert state(ec2, name) == "in-use"
    assert refused(ec2, name, instance, "/dev/sdh") == "VolumeInUse"
    assert refused(ec2, available(ec2), instance) == "InvalidParameterValue"
    # The volume outlives the instance, to which nothing can be attached any more.
    ec2.terminate_instances(InstanceIds=[instance])
    assert state(ec2, name) == "available"
    assert refused(ec2, name, instance) == "IncorrectState"


class Clusters:
    """Clusters of one account."""

    def __init__(self, aws: Aws, home: Path) -> None:
        self.aws, self.cluster = aws, Deployer(aws, home)

    def snapshots(self) -> list[dict[str, Any]]:
        ours = [{"Name": "tag:eva:state", "Values": [self.cluster.cluster]}]
        answer = self.aws.client("ec2").describe_snapshots(OwnerIds=["self"], Filters=ours)
        return list(answer["Snapshots"])


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    aws = Aws()
    aws.publish(AMAZON_LINUX, OLD_IMAGE)
    yield Clusters(aws, tmp_path)
    aws.stop()


def test_the_state_has_a_snapshot_each_day_and_seven_stay(clusters: Clusters) -> None:
    aws, cluster = clusters.aws, clusters.cluster
    cluster.deploy(*USERS)
    state_volume = cluster.made()["StateVolume"]
    days = [aws.take_snapshots() for _ in range(8)]
    assert all([name for name, _ in taken] == [state_volume] for taken in days)
    listed = clusters.snapshots()
    assert [snapshot["SnapshotId"] for snapshot in listed] == [taken[0][1] for taken in days[1:]]
    assert {snapshot["State"] for snapshot in listed} == {"pending"}
    assert {snapshot["State"] for snapshot in clusters.snapshots()} == {"completed"}
    cluster.deploy("--set", "DailySnapshots=false")
    assert aws.take_snapshots() == []


def test_a_snapshot_is_made_a_volume_of_once_it_is_completed(clusters: Clusters) -> None:
    clusters.cluster.deploy(*USERS)
    ((_, name),) = clusters.aws.take_snapshots()
    ec2 = clusters.aws.client("ec2")
    with pytest.raises(ClientError, match="IncorrectState"):
        volume(ec2, SnapshotId=name)
    clusters.snapshots()
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        volume(ec2, SnapshotId=name, Size=1)
    assert state(ec2, volume(ec2, SnapshotId=name)) == "creating"
    assert clusters.cluster.run("teardown", "-y").exit_code == 0
    assert clusters.snapshots() == []
