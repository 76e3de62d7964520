"""Where a cluster is deployed: in a VPC of its own, or in existing subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from eva_master.adapters.deployment.account import listed
from eva_wire.values.errors import CloudError, InvalidConfig

_MAIN = "main"
_TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId"),
    *("VpcPeeringConnectionId", "LocalGatewayId", "CoreNetworkArn", "CarrierGatewayId"),
)
_UNCHECKED = "--set PublicMaster=false"


def network_of(ec2: Any, subnets: Sequence[str], *, routes: bool = True) -> dict[str, str]:
    """The parameters of the template for existing subnets. The master goes to the first.

    Args:
        ec2: A client of `Account.clients`.
        subnets: Their ids; none for a new VPC, which takes no parameters.
        routes: Whether to see that instances in them can reach the internet.

    Raises:
        InvalidConfig: They are not in one VPC, or two are in one zone, or an instance in one of
            them could fetch nothing.
    """
    if not subnets:
        return {}
    try:
        answer = ec2.describe_subnets(SubnetIds=sorted(set(subnets)))["Subnets"]
    except CloudError as error:
        raise InvalidConfig(error.message, hint="see --subnet and --region") from error
    subnets_by_id = {str(subnet["SubnetId"]): subnet for subnet in answer}
    first = subnets_by_id[subnets[0]]
    by_zone = {subnet["AvailabilityZone"]: name for name, subnet in subnets_by_id.items()}
    if len({subnet["VpcId"] for subnet in answer}) > 1:
        raise InvalidConfig("the subnets are in several VPCs", hint="name subnets of one")
    if len(by_zone) < len(subnets_by_id):
        raise InvalidConfig("two subnets are in one zone", hint="name one subnet for each zone")
    public = _ways_out(ec2, first["VpcId"], subnets_by_id) if routes else frozenset[str]()
    addresses = sorted(zone for zone, name in by_zone.items() if _gives(subnets_by_id[name]))
    return {
        "VpcId": first["VpcId"],
        "SubnetId": subnets[0],
        "Zone": first["AvailabilityZone"],
        "SubnetsByZone": yaml.safe_dump(by_zone, default_flow_style=True, width=10_000).strip(),
        "PublicZones": f"[{', '.join(addresses)}]",
        "PublicMaster": "true" if subnets[0] in public else "false",
    }


def _ways_out(ec2: Any, vpc: str, subnets: Mapping[str, Any]) -> frozenset[str]:
    """Which subnets reach the internet by public addresses; raises `InvalidConfig`."""
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    tables: dict[str, Any] = {}
    for table in listed(ec2, "describe_route_tables", "RouteTables[]", Filters=filters):
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
        if not _gives(subnet):
            raise InvalidConfig(
                f"workers in {name} would have no public address, so they reach nothing",
                hint="aws ec2 modify-subnet-attribute --map-public-ip-on-launch --subnet-id "
                f"{name}; or name a subnet behind a NAT gateway",
            )
    return frozenset(public)


def _gives(subnet: Mapping[str, Any]) -> bool:
    """Whether instances in a subnet get public addresses."""
    return bool(subnet.get("MapPublicIpOnLaunch"))


def _target(route: Mapping[str, Any]) -> str | None:
    """Where a route to the whole internet leads; `None` for another route, or one that is dead."""
    if route.get("DestinationCidrBlock") != "0.0.0.0/0" or route.get("State") == "blackhole":
        return None
    targets = (str(route[key]) for key in _TARGETS if route.get(key))
    return next(targets, None)
