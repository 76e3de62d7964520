"""Volumes take time to be made, have a zone, and are one instance's at a time, unlike moto's.

Codes and words: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html. Time
is counted in looks, so that no test depends on a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.fakes.aws.iam.roles import Made
from tests.fakes.aws.service import REGION

STARTS = "stand-in:starts"
"""Tag of an instance: how often it was rebooted through the API."""
_ALIVE = ("pending", "running", "stopping", "stopped")
_POLICY = "AWS::DLM::LifecyclePolicy"


def refusal(form: Mapping[str, str]) -> str:
    """The code with which EC2 refuses a call about volumes; empty if it takes it."""
    rules: dict[str, Callable[[Mapping[str, str]], Iterator[str]]] = {
        "AttachVolume": _attachment,
        "CreateVolume": _from_snapshot,
    }
    return next(rules[form["Action"]](form), "") if form.get("Action") in rules else ""


def follow(form: Mapping[str, str], answer: bytes) -> bytes:
    """Note what a call that EC2 took has begun, and what has been done by the time of a look.

    Returns:
        The answer: moto's, but for what it says of a volume that is new.
    """
    backend = _backend()
    match form.get("Action"):
        case "CreateVolume":
            newest = [*backend.volumes.values()][-1]
            newest.creating = True
            answer = answer.replace(b">available<", b">creating<")
        case "DescribeVolumes":
            for name in _named(form, "VolumeId"):
                backend.volumes[name].creating = False
        case "DescribeSnapshots":
            for snapshot in backend.snapshots.values():
                snapshot.status = "completed"
        case "TerminateInstances":
            _release()
        case "RebootInstances":
            for name in _named(form, "InstanceId"):
                instance = _instances()[name]
                starts = int(_tags(instance).get(STARTS, 0)) + 1
                instance.add_tag(STARTS, str(starts))
    return answer


def take_snapshots(resources: list[Made]) -> list[tuple[str, str]]:
    """Carry out the lifecycle policies of all stacks once, as Data Lifecycle Manager does each day.

    Policies "target" volumes by tag, `CopyTags` copies the volume's tags, and the oldest snapshots
    beyond the count go: https://docs.aws.amazon.com/ebs/latest/userguide/snapshot-lifecycle.html.

    Returns:
        The volume and the snapshot, for each that was taken; the snapshots are pending.
    """
    taken = []
    backend = _backend()
    for resource in resources:
        if resource.kind != _POLICY or resource.properties.get("State") != "ENABLED":
            continue
        details = resource.properties["PolicyDetails"]
        (schedule,) = details["Schedules"]
        wanted = {(tag["Key"], tag["Value"]) for tag in details["TargetTags"]}
        for volume in [*backend.volumes.values()]:
            tags = _tags(volume)
            if wanted.isdisjoint(tags.items()):
                continue
            made = backend.create_snapshot(volume.id, "Created by a lifecycle policy")
            made.status = "pending"
            made.add_tags({**(tags if schedule["CopyTags"] else {}), "dlm:managed": "true"})
            taken.append((volume.id, made.id))
            of_volume = [each for each in backend.snapshots.values() if each.volume is volume]
            for old in of_volume[: -int(schedule["RetainRule"]["Count"])]:
                del backend.snapshots[old.id]
    return taken


def install() -> None:
    """Have moto's volumes say that they are being made."""
    from moto.ec2.models.elastic_block_store import Volume

    # "The volume is being created": https://docs.aws.amazon.com/ebs/latest/userguide/ebs-describing-volumes.html
    usual = Volume.status.fget
    Volume.status = property(
        lambda volume: "creating" if getattr(volume, "creating", False) else usual(volume)
    )


def _attachment(form: Mapping[str, str]) -> Iterator[str]:
    """Attaches "to a running or stopped instance"; "the volume and instance must be within the same
    Availability Zone": https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AttachVolume.html.
    """
    backend = _backend()
    volume = backend.volumes.get(form["VolumeId"])
    instance = _instances().get(form["InstanceId"])
    if volume is None:
        yield "InvalidVolume.NotFound"
        return
    if instance is None:
        yield "InvalidInstanceID.NotFound"
        return
    # "If you are trying to attach a volume that is still being created, ensure that the volume is
    # in the 'available' state": the page of codes.
    if volume.status == "creating":
        yield "IncorrectState"
    # "The specified Amazon EBS volume is attached to an instance": the page of codes.
    if volume.attachment is not None:
        yield "VolumeInUse"
    if instance.state not in ("running", "stopped"):
        yield "IncorrectState"
    if volume.availability_zone != instance.placement.zone:
        yield "InvalidVolume.ZoneMismatch"
    # "Attachment point is already in use": its code is a guess.
    if form["Device"] in instance.block_device_mapping:
        yield "InvalidParameterValue"


def _from_snapshot(form: Mapping[str, str]) -> Iterator[str]:
    """A snapshot is used once it is completed; velero-io/velero#1799 is a report of the other case.

    "The volume size must be equal or larger than the snapshot size":
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html.
    """
    if "SnapshotId" not in form:
        return
    snapshot = _backend().snapshots.get(form["SnapshotId"])
    if snapshot is None:
        yield "InvalidSnapshot.NotFound"
        return
    if snapshot.status != "completed":
        yield "IncorrectState"
    if int(form.get("Size", snapshot.volume.size)) < snapshot.volume.size:
        yield "InvalidParameterValue"


def _release() -> None:
    """A terminated instance's volumes that do not go with it are available again.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
    """
    for volume in _backend().volumes.values():
        if volume.attachment is not None and volume.attachment.instance.state not in _ALIVE:
            volume.attachment = None


def _tags(resource: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in resource.get_tags()}


def _named(form: Mapping[str, str], name: str) -> list[str]:
    return [value for key, value in form.items() if re.fullmatch(rf"{name}\.\d+", key)]


def _instances() -> dict[str, Any]:
    return {
        instance.id: instance
        for reservation in _backend().reservations.values()
        for instance in reservation.instances
    }


def _backend() -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2 import ec2_backends

    return ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
