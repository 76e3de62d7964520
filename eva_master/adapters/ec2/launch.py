"""What is asked of RunInstances for one launch."""

from __future__ import annotations

import hashlib
from typing import Any

from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import ATTEMPT_TAG, CLUSTER_TAG, INSTANCE_TAG
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import Purchase
from eva_master.model.ids import InstanceId


def client_token(cluster: str, instance: InstanceId, attempt: int) -> str:
    """Names a launch for EC2, which makes at most one instance of it; 64 characters."""
    return hashlib.sha256(f"{cluster}\0{instance}\0{attempt}".encode()).hexdigest()


def launch_request(settings: Ec2Settings, action: LaunchInstance, user_data: str) -> dict[str, Any]:
    """Parameters of RunInstances, the same whenever the same launch is asked for.

    Args:
        settings: Where to launch, and what to boot.
        action: The launch.
        user_data: What the instance runs at boot, in clear; at most 16 KiB. It must not change
            from one try to the next: EC2 refuses a token that comes with other parameters.
    """
    offering = action.offering
    tags = [
        {"Key": CLUSTER_TAG, "Value": settings.cluster},
        {"Key": INSTANCE_TAG, "Value": action.instance},
        {"Key": ATTEMPT_TAG, "Value": str(action.attempt)},
    ]
    request: dict[str, Any] = {
        "ClientToken": client_token(settings.cluster, action.instance, action.attempt),
        "ImageId": settings.image,
        "InstanceType": offering.type.name,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
        ],
        "UserData": user_data,
        "Placement": {"AvailabilityZone": offering.zone},
    }
    if offering.zone in settings.subnets:
        request["SubnetId"] = settings.subnets[offering.zone]
    if settings.security_groups:
        request["SecurityGroupIds"] = list(settings.security_groups)
    if settings.instance_profile:
        request["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if offering.purchase is Purchase.SPOT:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    return request
