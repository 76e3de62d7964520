"""The resources of stacks: what there is of each, and which changes need another one in its place.

That a property is immutable is in CloudFormation's reference: "Update requires: Replacement".
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from tests.fakes.aws.service import CREDENTIALS, REGION

INSTANCE, ATTACHMENT = "AWS::EC2::Instance", "AWS::EC2::VolumeAttachment"
IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    INSTANCE: ("ImageId", "LaunchTemplate", "NetworkInterfaces", "BlockDeviceMappings"),
    ATTACHMENT: ("InstanceId", "VolumeId", "Device"),
    "AWS::EC2::Volume": ("AvailabilityZone", "Encrypted"),
    "AWS::EC2::NetworkInterface": ("SubnetId",),
    "AWS::EC2::EIPAssociation": ("AllocationId", "NetworkInterfaceId"),
    "AWS::EC2::VPC": ("CidrBlock",),
    "AWS::EC2::Subnet": ("AvailabilityZone", "CidrBlock", "VpcId"),
    "AWS::EC2::SecurityGroup": ("GroupDescription", "VpcId"),
    "AWS::EC2::RouteTable": ("VpcId",),
    "AWS::EC2::VPCEndpoint": ("ServiceName", "VpcEndpointType", "VpcId"),
    "AWS::S3::BucketPolicy": ("Bucket",),
}
INTERRUPTS: Mapping[str, tuple[str, ...]] = {INSTANCE: ("InstanceType", "UserData")}
"""Changes for which an instance is stopped and started."""


class Failed(Exception):
    """A resource that cannot be made or removed; says what CloudFormation says."""


class Account:
    """The account, through its API.

    Args:
        url: Of the API.
        published: Parameters of Systems Manager that have another value than moto's.
    """

    def __init__(self, url: str, published: Mapping[str, str]) -> None:
        self._clients: dict[str, Any] = {}
        self._url = url
        self._published = published

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = boto3.session.Session().client(
                service, region_name=REGION, endpoint_url=self._url, **CREDENTIALS
            )
        return self._clients[service]

    def look_up(self, parameter: str) -> str:
        if parameter in self._published:
            return self._published[parameter]
        return str(self.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"])

    def zones(self) -> list[str]:
        if "zones" in self._published:
            return self._published["zones"].split(",")
        found = self.client("ec2").describe_availability_zones()["AvailabilityZones"]
        return [it["ZoneName"] for it in found]

    def pseudo(self, stack: str) -> dict[str, str]:
        return {
            "AWS::Region": REGION,
            "AWS::AccountId": "123456789012",
            "AWS::Partition": "aws",
            "AWS::StackName": stack,
            "AWS::URLSuffix": "amazonaws.com",
        }

    def create(
        self, kind: str, properties: Any, stack: str, name: str
    ) -> tuple[str, dict[str, str]]:
        """Make a resource; returns its id and attributes, or raises `Failed`."""
        makers: dict[str, Callable[[Any], tuple[str, dict[str, str]]]] = {
            INSTANCE: self._instance,
            ATTACHMENT: self._attachment,
            "AWS::EC2::VPC": self._vpc,
            "AWS::EC2::Subnet": self._subnet,
            "AWS::EC2::Volume": self._volume,
            "AWS::EC2::NetworkInterface": self._interface,
            "AWS::EC2::EIP": self._address,
            "AWS::S3::Bucket": lambda _: self._bucket(stack),
            "AWS::EC2::LaunchTemplate": lambda _: (_new("lt"), {"LatestVersionNumber": "1"}),
        }
        with _told():
            return makers.get(kind, lambda _: (_new(f"{stack}-{name}"), {}))(properties)

    def change(
        self, kind: str, physical: str, properties: Any, changed: Iterable[str]
    ) -> dict[str, str]:
        """Change a resource in place; returns attributes that are others now."""
        return {"LatestVersionNumber": _new("v")} if kind == "AWS::EC2::LaunchTemplate" else {}

    def delete(self, kind: str, physical: str, properties: Any) -> None:
        """Remove a resource, or raise `Failed`."""
        ec2 = self.client("ec2")
        with _told():
            match kind:
                case "AWS::EC2::Instance":
                    ec2.terminate_instances(InstanceIds=[physical])
                case "AWS::EC2::VolumeAttachment":
                    self._detach(properties["InstanceId"], properties["VolumeId"])
                case "AWS::EC2::Subnet":
                    ec2.delete_subnet(SubnetId=physical)
                case "AWS::EC2::VPC":
                    ec2.delete_vpc(VpcId=physical)
                case "AWS::EC2::Volume":
                    ec2.delete_volume(VolumeId=physical)
                case "AWS::EC2::NetworkInterface":
                    if self._users(physical):
                        raise Failed(f"Network interface '{physical}' is currently in use.")
                    ec2.delete_network_interface(NetworkInterfaceId=physical)
                case "AWS::EC2::EIP":
                    ec2.release_address(PublicIp=physical)
                case "AWS::S3::Bucket":
                    self.client("s3").delete_bucket(Bucket=physical)

    # -- kinds -----------------------------------------------------------------------------------

    def _bucket(self, stack: str) -> tuple[str, dict[str, str]]:
        name = f"{stack}-bucket-{uuid.uuid4().hex[:12]}"
        self.client("s3").create_bucket(Bucket=name)
        return name, {"Arn": f"arn:aws:s3:::{name}"}

    def _vpc(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_vpc(CidrBlock=properties["CidrBlock"])
        return made["Vpc"]["VpcId"], {}

    def _subnet(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_subnet(
            VpcId=properties["VpcId"],
            CidrBlock=properties["CidrBlock"],
            AvailabilityZone=properties["AvailabilityZone"],
        )
        return made["Subnet"]["SubnetId"], {}

    def _volume(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_volume(
            AvailabilityZone=properties["AvailabilityZone"], Size=int(properties["Size"])
        )
        return made["VolumeId"], {}

    def _interface(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_network_interface(SubnetId=properties["SubnetId"])
        made = made["NetworkInterface"]
        return made["NetworkInterfaceId"], {"PrimaryPrivateIpAddress": made["PrivateIpAddress"]}

    def _address(self, _: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").allocate_address(Domain="vpc")
        return made["PublicIp"], {"AllocationId": made["AllocationId"]}

    def _instance(self, properties: Any) -> tuple[str, dict[str, str]]:
        ec2 = self.client("ec2")
        (interface,) = (it["NetworkInterfaceId"] for it in properties["NetworkInterfaces"])
        if self._users(interface):
            raise Failed(f"Interface: [{interface}] in use.")
        found = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])
        made = ec2.run_instances(
            ImageId=properties["ImageId"],
            InstanceType=properties["InstanceType"],
            SubnetId=found["NetworkInterfaces"][0]["SubnetId"],
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": _USES, "Value": interface}]}
            ],
        )["Instances"][0]
        return made["InstanceId"], {}

    def _attachment(self, properties: Any) -> tuple[str, dict[str, str]]:
        volume = self.client("ec2").describe_volumes(VolumeIds=[properties["VolumeId"]])["Volumes"]
        if self._alive([it["InstanceId"] for it in volume[0]["Attachments"]]):
            raise Failed(f"{properties['VolumeId']} is already attached to an instance")
        self.client("ec2").attach_volume(**properties)
        return _new("attachment"), {}

    def _detach(self, instance: str, volume: str) -> None:
        if self._alive([instance], "running"):
            raise Failed(f"Volume {volume} is still attached: its file system is in use")
        if self._alive([instance]):
            self.client("ec2").detach_volume(InstanceId=instance, VolumeId=volume)

    def _users(self, interface: str) -> list[str]:
        """Instances that have an interface."""
        pages = (
            self.client("ec2")
            .get_paginator("describe_instances")
            .paginate(Filters=[{"Name": f"tag:{_USES}", "Values": [interface]}])
        )
        ids = [
            it["InstanceId"]
            for page in pages
            for one in page["Reservations"]
            for it in one["Instances"]
        ]
        return self._alive(ids)

    def _alive(self, ids: list[str], *states: str) -> list[str]:
        if not ids:
            return []
        wanted = states or ("pending", "running", "stopping", "stopped")
        found = self.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
        return [
            it["InstanceId"]
            for one in found
            for it in one["Instances"]
            if it["State"]["Name"] in wanted
        ]


_USES = "stand-in:interface"


@contextlib.contextmanager
def _told() -> Any:
    try:
        yield
    except ClientError as error:
        raise Failed(str(error)) from error


def _new(start: str) -> str:
    return f"{start}-{uuid.uuid4().hex[:12]}"
