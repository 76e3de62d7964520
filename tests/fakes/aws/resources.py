"""The resources of stacks: what there is of each, and which changes need another one in its place.

That a property is immutable is in CloudFormation's reference: "Update requires: Replacement".
"""

from __future__ import annotations

import base64
import contextlib
import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from tests.fakes.aws.iam.demands import ACCOUNT
from tests.fakes.aws.service import CREDENTIALS, REGION

INSTANCE, ATTACHMENT = "AWS::EC2::Instance", "AWS::EC2::VolumeAttachment"
_GROUP = "AWS::EC2::SecurityGroup"
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
            "AWS::AccountId": ACCOUNT,
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
            "AWS::EC2::EIPAssociation": self._association,
            "AWS::S3::Bucket": lambda _: self._bucket(stack),
            "AWS::IAM::Role": lambda _: _role(_new(f"{stack}-{name}")),
            "AWS::IAM::InstanceProfile": lambda _: self._profile(_new(f"{stack}-{name}")),
            _GROUP: lambda it: self._group(it, f"{stack}-{name}"),
            "AWS::EC2::SecurityGroupIngress": self._ingress,
            "AWS::EC2::LaunchTemplate": lambda _: (_new("lt"), {"LatestVersionNumber": "1"}),
        }
        with _told():
            return makers.get(kind, lambda _: (_new(f"{stack}-{name}"), {}))(properties)

    def change(
        self, kind: str, physical: str, properties: Any, changed: Iterable[str]
    ) -> dict[str, str]:
        """Change a resource in place; returns attributes that are others now."""
        if kind == _GROUP and "SecurityGroupIngress" in changed:
            ec2 = self.client("ec2")
            (group,) = ec2.describe_security_groups(GroupIds=[physical])["SecurityGroups"]
            own = [rule for rule in group["IpPermissions"] if rule["IpRanges"]]
            kept = [{**rule, "UserIdGroupPairs": []} for rule in own]
            ec2.revoke_security_group_ingress(GroupId=physical, IpPermissions=kept)
            self._admit(physical, properties["SecurityGroupIngress"])
        return {"LatestVersionNumber": _new("v")} if kind == "AWS::EC2::LaunchTemplate" else {}

    def delete(self, kind: str, physical: str, properties: Any) -> None:
        """Remove a resource, or raise `Failed`."""
        ec2, iam = self.client("ec2"), self.client("iam")
        if kind == "AWS::EC2::NetworkInterface" and self._users(physical):
            raise Failed(f"Network interface '{physical}' is currently in use.")
        ways: dict[str, Callable[[], Any]] = {
            INSTANCE: lambda: ec2.terminate_instances(InstanceIds=[physical]),
            ATTACHMENT: lambda: self._detach(properties["InstanceId"], properties["VolumeId"]),
            "AWS::IAM::InstanceProfile": lambda: iam.delete_instance_profile(
                InstanceProfileName=physical
            ),
            "AWS::EC2::SecurityGroupIngress": lambda: ec2.revoke_security_group_ingress(
                GroupId=properties["GroupId"], IpPermissions=[_permission(properties)]
            ),
            "AWS::EC2::SecurityGroup": lambda: ec2.delete_security_group(GroupId=physical),
            "AWS::EC2::Subnet": lambda: ec2.delete_subnet(SubnetId=physical),
            "AWS::EC2::VPC": lambda: ec2.delete_vpc(VpcId=physical),
            "AWS::EC2::Volume": lambda: ec2.delete_volume(VolumeId=physical),
            "AWS::EC2::NetworkInterface": lambda: ec2.delete_network_interface(
                NetworkInterfaceId=physical
            ),
            "AWS::EC2::EIPAssociation": lambda: ec2.disassociate_address(AssociationId=physical),
            "AWS::EC2::EIP": lambda: ec2.release_address(PublicIp=physical),
            "AWS::S3::Bucket": lambda: self.client("s3").delete_bucket(Bucket=physical),
        }
        with _told():
            ways.get(kind, lambda: None)()

    # -- kinds -----------------------------------------------------------------------------------

    def _bucket(self, stack: str) -> tuple[str, dict[str, str]]:
        name = f"{stack}-bucket-{uuid.uuid4().hex[:12]}"
        self.client("s3").create_bucket(Bucket=name)
        return name, {"Arn": f"arn:aws:s3:::{name}"}

    def _vpc(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_vpc(CidrBlock=properties["CidrBlock"])
        return made["Vpc"]["VpcId"], {}

    def _profile(self, name: str) -> tuple[str, dict[str, str]]:
        self.client("iam").create_instance_profile(InstanceProfileName=name)
        return name, {}

    def _group(self, properties: Any, name: str) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_security_group(
            GroupName=_new(name),
            Description=properties["GroupDescription"],
            VpcId=properties["VpcId"],
        )
        self._admit(made["GroupId"], properties.get("SecurityGroupIngress", []))
        return made["GroupId"], {"GroupId": made["GroupId"]}

    def _ingress(self, properties: Any) -> tuple[str, dict[str, str]]:
        self._admit(properties["GroupId"], [properties])
        return _new("sgr"), {}

    def _admit(self, group: str, rules: list[Any]) -> None:
        if rules:
            self.client("ec2").authorize_security_group_ingress(
                GroupId=group, IpPermissions=[_permission(rule) for rule in rules]
            )

    def _subnet(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_subnet(
            VpcId=properties["VpcId"],
            CidrBlock=properties["CidrBlock"],
            AvailabilityZone=properties["AvailabilityZone"],
        )
        return made["Subnet"]["SubnetId"], {}

    def _volume(self, properties: Any) -> tuple[str, dict[str, str]]:
        ec2 = self.client("ec2")
        made = ec2.create_volume(
            AvailabilityZone=properties["AvailabilityZone"],
            Size=int(properties["Size"]),
            TagSpecifications=[{"ResourceType": "volume", "Tags": properties.get("Tags", [])}],
        )
        while made["State"] != "available":
            made = ec2.describe_volumes(VolumeIds=[made["VolumeId"]])["Volumes"][0]
        return made["VolumeId"], {}

    def _interface(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").create_network_interface(SubnetId=properties["SubnetId"])
        made = made["NetworkInterface"]
        return made["NetworkInterfaceId"], {"PrimaryPrivateIpAddress": made["PrivateIpAddress"]}

    def _association(self, properties: Any) -> tuple[str, dict[str, str]]:
        made = self.client("ec2").associate_address(
            AllocationId=properties["AllocationId"],
            NetworkInterfaceId=properties["NetworkInterfaceId"],
        )
        return made["AssociationId"], {}

    def _address(self, _: Any) -> tuple[str, dict[str, str]]:
        # All of that network is this machine, so that a master can listen there.
        address = f"127.{random.randint(64, 126)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
        made = self.client("ec2").allocate_address(Domain="vpc", Address=address)
        return made["PublicIp"], {"AllocationId": made["AllocationId"]}

    def _instance(self, properties: Any) -> tuple[str, dict[str, str]]:
        ec2 = self.client("ec2")
        (interface,) = (it["NetworkInterfaceId"] for it in properties["NetworkInterfaces"])
        if self._users(interface):
            raise Failed(f"Interface: [{interface}] in use.")
        found = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])
        # "The credit option for CPU usage of the burstable performance instance": others have none.
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
        credited = properties.get("CreditSpecification", {}).get("CPUCredits", "")
        if credited and not properties["InstanceType"].startswith("t"):
            raise Failed(f"{properties['InstanceType']} has no credits")
        made = ec2.run_instances(
            ImageId=properties["ImageId"],
            InstanceType=properties["InstanceType"],
            SubnetId=found["NetworkInterfaces"][0]["SubnetId"],
            MinCount=1,
            MaxCount=1,
            # As CloudFormation has it, and boto3 would encode it once more.
            IamInstanceProfile={"Name": properties["IamInstanceProfile"]},
            UserData=base64.b64decode(properties["UserData"]).decode(),
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [
                        {"Key": _USES, "Value": interface},
                        {"Key": CREDITS, "Value": credited},
                    ],
                }
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


CREDITS = "stand-in:credits"
"""Tag of an instance: how it computes above its baseline."""
_USES = "stand-in:interface"
"""Tag of an instance; moto makes it another interface than the one that is asked for."""


@contextlib.contextmanager
def _told() -> Any:
    try:
        yield
    except ClientError as error:
        raise Failed(str(error)) from error


def _permission(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule of a security group in the words of EC2's API."""
    source: dict[str, Any] = {"IpRanges": [{"CidrIp": rule.get("CidrIp")}]}
    if "SourceSecurityGroupId" in rule:
        source = {"UserIdGroupPairs": [{"GroupId": rule["SourceSecurityGroupId"]}]}
    ports = {"FromPort": int(rule["FromPort"]), "ToPort": int(rule["ToPort"])}
    return {"IpProtocol": rule["IpProtocol"], **ports, **source}


def _role(name: str) -> tuple[str, dict[str, str]]:
    return name, {"Arn": f"arn:aws:iam::{ACCOUNT}:role/{name}"}


def _new(start: str) -> str:
    return f"{start}-{uuid.uuid4().hex[:12]}"
