"""Builds the RunInstances request of a launch."""

from __future__ import annotations

import hashlib
from typing import Any

from eva_master.adapters.ec2.launching.images import MachineImage, narrowest
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import ATTEMPT_TAG, CLUSTER_TAG, INSTANCE_TAG
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import Offering, Purchase
from eva_wire.values.ids import InstanceId


def client_token(cluster: str, instance: InstanceId, attempt: int) -> str:
    """The client token of a launch, for which EC2 makes at most one instance; 64 characters."""
    return hashlib.sha256(f"{cluster}\0{instance}\0{attempt}".encode()).hexdigest()


def launch_request(
    settings: Ec2Settings, action: LaunchInstance, image: MachineImage, user_data: str
) -> dict[str, Any]:
    """The parameters of RunInstances, as plain JSON so that they can be recorded.

    Args:
        settings: Where to launch, and how.
        action: The launch.
        image: The image to boot.
        user_data: The user data as plain text, at most 16 KiB.
    """
    offering = action.offering
    ours = {
        CLUSTER_TAG: settings.cluster,
        INSTANCE_TAG: action.instance,
        ATTEMPT_TAG: str(action.attempt),
    }
    named = {"Name": f"{settings.cluster} {action.instance}", **settings.tags, **ours}
    tags = [{"Key": key, "Value": value} for key, value in named.items()]
    spot = offering.purchase is Purchase.SPOT
    tagged = ("instance", "volume", "spot-instances-request") if spot else ("instance", "volume")
    request: dict[str, Any] = {
        "ClientToken": client_token(settings.cluster, action.instance, action.attempt),
        "ImageId": image.ami,
        "InstanceType": offering.type.name,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceInitiatedShutdownBehavior": "terminate",
        # The worker and its tasks use the host's network, so no second hop is needed.
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 1,
        },
        "BlockDeviceMappings": [
            {"DeviceName": image.root_device, "Ebs": _root_volume(settings, offering)}
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
        "UserData": user_data,
        "Placement": {"AvailabilityZone": offering.zone},
    }
    if offering.zone in settings.subnets:
        request["SubnetId"] = settings.subnets[offering.zone]
    if settings.security_groups:
        request["SecurityGroupIds"] = list(settings.security_groups)
    if settings.instance_profile:
        request["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if spot:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    return request


def _root_volume(settings: Ec2Settings, offering: Offering) -> dict[str, Any]:
    machine = offering.type
    # An offering on record is launched as it was bought, whatever the settings say by now.
    root_gib = offering.attached.root_gib or narrowest(settings.root_volumes, machine) or 0
    volume: dict[str, Any] = {
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
        "VolumeSize": root_gib + machine.capacity.disk_mib // 1024,
    }
    if settings.kms_key:
        volume["KmsKeyId"] = settings.kms_key
    return volume
