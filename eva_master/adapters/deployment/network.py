"""Where a cluster is deployed: in a VPC of its own, or in existing subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from botocore.exceptions import ClientError

from eva_wire.values.errors import InvalidConfig

_MAIN = "main"
_TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId"),
    *("VpcPeeringConnectionId", "LocalGatewayId", "CoreNetworkArn", "CarrierGatewayId"),
)
_UNCHECKED = "--set PublicMaster=false"


@dataclass(frozen=True, slots=True)
class ExistingNetwork:
    """Existing subnets for a cluster.

    Attributes:
        vpc: Id of their VPC; empty for a new one, and then all other fields are empty.
        master: The master's subnet.
        zone: That subnet's zone.
        subnets: Workers' subnets by zone.
        public: Whether the master's subnet reaches the internet by public addresses alone.
    """

    vpc: str
    master: str
    zone: str
    subnets: Mapping[str, str]
    public: bool = False

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
            "PublicMaster": "true" if self.public else "false",
        }


NEW = ExistingNetwork("", "", "", {})
"""A VPC of its own."""


def find_network(ec2: Any, subnets: Sequence[str], *, routes: bool = True) -> ExistingNetwork:
    """Look up subnets. The master goes to the first.

    Args:
        ec2: A client of boto3.
        subnets: Their ids; none for a new VPC.
        routes: Whether to see that instances in them can reach the internet.

    Raises:
        InvalidConfig: They are not in one VPC, or two are in one zone, or an instance in one of
            them could fetch nothing.
    """
    if not subnets:
        return NEW
    try:
        answer = ec2.describe_subnets(SubnetIds=sorted(set(subnets)))["Subnets"]
    except ClientError as error:
        raise InvalidConfig(str(error), hint="see --subnet and --region") from error
    subnets_by_id = {str(subnet["SubnetId"]): subnet for subnet in answer}
    first = subnets_by_id[subnets[0]]
    by_zone = {subnet["AvailabilityZone"]: name for name, subnet in subnets_by_id.items()}
    if len({subnet["VpcId"] for subnet in answer}) > 1:
        raise InvalidConfig("the subnets are in several VPCs", hint="name subnets of one")
    if len(by_zone) < len(subnets_by_id):
        raise InvalidConfig("two subnets are in one zone", hint="name one subnet for each zone")
    public = _ways_out(ec2, first["VpcId"], subnets_by_id) if routes else frozenset[str]()
    return ExistingNetwork(
        first["VpcId"], subnets[0], first["AvailabilityZone"], by_zone, subnets[0] in public
    )


def _ways_out(ec2: Any, vpc: str, subnets: Mapping[str, Any]) -> frozenset[str]:
    """Which subnets reach the internet by public addresses; raises `InvalidConfig`."""
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    pages = ec2.get_paginator("describe_route_tables").paginate(Filters=filters)
    tables: dict[str, Any] = {}
    for table in (table for page in pages for table in page["RouteTables"]):
        for association in table["Associations"]:
            # A subnet of which no table speaks goes by the main one.
            tables[association.get("SubnetId", _MAIN)] = table["Routes"]
    public = set()
    for name, subnet in subnets.items():
        ways = [_target(route) for route in tables.get(name, tables.get(_MAIN, ())) if route]
        way = next(filter(None, ways), None)
        if way is None:
            raise InvalidConfig(
                f"from {name} no route leads to the internet, where instances fetch images",
                hint=f"add one (a NAT gateway), or, with endpoints for all: {_UNCHECKED}",
            )
        if not way.startswith("igw-"):
            continue
        public.add(name)
        if not subnet.get("MapPublicIpOnLaunch"):
            raise InvalidConfig(
                f"workers in {name} would have no public address, so they reach nothing",
                hint="aws ec2 modify-subnet-attribute --map-public-ip-on-launch --subnet-id "
                f"{name}; or name a subnet behind a NAT gateway",
            )
    return frozenset(public)


def _target(route: Mapping[str, Any]) -> str | None:
    """Where a route to the whole internet leads; `None` for another route, or one that is dead."""
    if route.get("DestinationCidrBlock") != "0.0.0.0/0" or route.get("State") == "blackhole":
        return None
    targets = (str(route[key]) for key in _TARGETS if route.get(key))
    return next(targets, None)


def address_of(ec2: Any, made: Mapping[str, str]) -> str:
    """The address at which users reach the master of a stack.

    Args:
        ec2: A client of boto3.
        made: See `Stack.resources`.
    """
    if public := made.get("MasterAddress"):
        return public
    described = ec2.describe_network_interfaces(NetworkInterfaceIds=[made["MasterInterface"]])
    return str(described["NetworkInterfaces"][0]["PrivateIpAddress"])
