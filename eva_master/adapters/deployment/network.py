"""Where a cluster is deployed: in a VPC of its own, or in existing subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from botocore.exceptions import ClientError

from eva_master.model.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Network:
    """Existing subnets for a cluster.

    Attributes:
        vpc: Id of their VPC; empty for a new one, and then all other fields are empty.
        master: The master's subnet.
        zone: That subnet's zone.
        subnets: Workers' subnets by zone.
    """

    vpc: str
    master: str
    zone: str
    subnets: Mapping[str, str]

    def parameters(self) -> dict[str, str]:
        """The parameters of the template for these subnets."""
        if not self.vpc:
            return {}
        by_zone = yaml.safe_dump(dict(self.subnets), default_flow_style=True, width=10_000)
        return {
            "VpcId": self.vpc,
            "SubnetId": self.master,
            "Zone": self.zone,
            "SubnetsByZone": by_zone.strip(),
        }


NEW = Network("", "", "", {})
"""A VPC of its own."""


def find_network(ec2: Any, subnets: Sequence[str]) -> Network:
    """Look up subnets. The master goes to the first.

    Args:
        ec2: A client of boto3.
        subnets: Their ids; none for a new VPC.

    Raises:
        InvalidConfig: They are not in one VPC, or two are in one zone.
    """
    if not subnets:
        return NEW
    try:
        answer = ec2.describe_subnets(SubnetIds=sorted(set(subnets)))["Subnets"]
    except ClientError as error:
        raise InvalidConfig(str(error), hint="see --subnet and --region") from error
    known = {found["SubnetId"]: found for found in answer}
    first = known[subnets[0]]
    by_zone = {found["AvailabilityZone"]: name for name, found in known.items()}
    if len({found["VpcId"] for found in answer}) > 1:
        raise InvalidConfig("the subnets are in several VPCs", hint="name subnets of one")
    if len(by_zone) < len(known):
        raise InvalidConfig("two subnets are in one zone", hint="name one subnet for each zone")
    return Network(first["VpcId"], subnets[0], first["AvailabilityZone"], by_zone)


def address_of(ec2: Any, made: Mapping[str, str]) -> str:
    """The address at which users reach the master of a stack.

    Args:
        ec2: A client of boto3.
        made: See `Stack.resources`.
    """
    if public := made.get("MasterAddress"):
        return public
    found = ec2.describe_network_interfaces(NetworkInterfaceIds=[made["MasterInterface"]])
    return str(found["NetworkInterfaces"][0]["PrivateIpAddress"])
