"""Proves that nothing of a cluster is left in an account."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from deploy.acceptance.spending import Account

_GONE = ("NotFound", "NoSuch", "404", "does not exist", "Malformed")


def leftovers(account: Account, made: Mapping[str, tuple[str, str]]) -> list[str]:
    """Look for everything that the cluster ever had.

    Args:
        account: The account; its sightings name all instances.
        made: Type and physical name of the resources that the stack had.

    Returns:
        A line for each that is still there.
    """
    ec2 = account.client("ec2")
    account.look()
    remains = [f"instance {each.ec2_id}" for each in account.seen.values() if each.ended is None]
    tagged = [{"Name": "tag:eva:cluster", "Values": [account.cluster]}]
    remains += [
        f"volume {volume['VolumeId']}"
        for volume in ec2.describe_volumes(Filters=tagged)["Volumes"]
        if volume["State"] not in ("deleting", "deleted")
    ]
    volumes = [name for kind, name in made.values() if kind == "AWS::EC2::Volume"]
    for filters in (tagged, [{"Name": "volume-id", "Values": volumes or ["vol-none"]}]):
        snapshots = ec2.describe_snapshots(OwnerIds=["self"], Filters=filters)["Snapshots"]
        remains += [f"snapshot {snapshot['SnapshotId']}" for snapshot in snapshots]
    path = f"/eva/{account.cluster}/"
    parameters = account.client("ssm").get_parameters_by_path(Path=path, Recursive=True)
    remains += [f"parameter {each['Name']}" for each in parameters["Parameters"]]
    if account.has_stack():
        remains.append(f"stack eva-{account.cluster}")
    for kind, name in made.values():
        remains += _still_there(account, kind, name)
    return sorted(set(remains))


def _still_there(account: Account, kind: str, name: str) -> Iterator[str]:
    looks: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "AWS::EC2::Volume": ("ec2", lambda it: it.describe_volumes(VolumeIds=[name])),
        "AWS::EC2::EIP": ("ec2", lambda it: it.describe_addresses(PublicIps=[name])),
        "AWS::EC2::VPC": ("ec2", lambda it: it.describe_vpcs(VpcIds=[name])),
        "AWS::EC2::Subnet": ("ec2", lambda it: it.describe_subnets(SubnetIds=[name])),
        "AWS::EC2::SecurityGroup": (
            "ec2",
            lambda it: it.describe_security_groups(GroupIds=[name]),
        ),
        "AWS::EC2::NetworkInterface": (
            "ec2",
            lambda it: it.describe_network_interfaces(NetworkInterfaceIds=[name]),
        ),
        "AWS::S3::Bucket": ("s3", lambda it: it.head_bucket(Bucket=name)),
        "AWS::IAM::Role": ("iam", lambda it: it.get_role(RoleName=name)),
        "AWS::IAM::InstanceProfile": (
            "iam",
            lambda it: it.get_instance_profile(InstanceProfileName=name),
        ),
    }
    if kind not in looks:
        return
    service, look = looks[kind]
    try:
        look(account.client(service))
    except ClientError as error:
        if any(word in str(error) for word in _GONE):
            return
        yield f"{kind} {name}: not checked, {error}"
    else:
        yield f"{kind} {name}"
