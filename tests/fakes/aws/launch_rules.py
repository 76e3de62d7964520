"""Launches that EC2 refuses for what they ask, or for what the account already has.

moto takes them. Codes and words: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fakes.aws.service import REGION

FORBIDDEN_TYPE = "UnauthorizedOperation/policy of the organization"
"""A code, and after the slash what it is about."""
_ALIVE = ("pending", "running")
_CODES: Mapping[bool, tuple[tuple[str, str], ...]] = {
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits
    False: (
        ("g vt", "L-DB2E81BA"),
        ("p", "L-417A185B"),
        ("a c d h i m r t z", "L-1216C47A"),
    ),
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html
    True: (
        ("g vt", "L-3819A6DF"),
        ("p", "L-7212CCBC"),
        ("a c d h i m r t z", "L-34B43A08"),
    ),
}
"""Codes of quotas by the letters with which families begin, for spot instances and others."""


def refusal(form: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """The code with which EC2 refuses a launch; empty if it takes it.

    Args:
        form: The call's.
        facts: Facts of the account, see `Aws.be`.
    """
    return next(_refusals(form, facts), "")


def _refusals(form: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[str]:
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

    name = form["InstanceType"]
    spot = form.get("InstanceMarketOptions.MarketType") == "spot"
    if name in facts.get("forbidden", ()):
        yield FORBIDDEN_TYPE
    yield from _incoherent(form)
    # "The specified instance type is not eligible for Free Tier."
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-free-tier-usage.html
    if facts.get("free") and not INSTANCE_TYPES[name].get("FreeTierEligible"):
        yield "InvalidParameterCombination"
    # "The requested configuration is currently not supported": a type that is not sold there, or
    # not in that way. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
    # That a usage class is refused with the same code is a guess.
    zone = _zone(form)
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"][REGION]
    sold = {entry["Location"] for entry in offered if entry["InstanceType"] == name}
    wanted = "spot" if spot else "on-demand"
    if (
        name in facts.get("unsold", ())
        or (zone and zone not in sold)
        or wanted not in INSTANCE_TYPES[name]["SupportedUsageClasses"]
    ):
        yield "Unsupported"
    yield from _above_quota(name, facts.get("quotas", {}), spot=spot)


def _incoherent(form: Mapping[str, str]) -> Iterator[str]:
    """Subnet, groups and zone must be of one network.

    "Security group sg-1 and subnet subnet-2 belong to different networks" is InvalidParameter;
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html.
    """
    backend = _backend()
    subnet = _subnet(form)
    groups = [value for key, value in form.items() if re.fullmatch(r"SecurityGroupId\.\d+", key)]
    if "SubnetId" in form and subnet is None:
        yield "InvalidSubnetID.NotFound"
        return
    vpc = subnet.vpc_id if subnet is not None else backend.get_default_vpc().id
    for group in groups:
        stored = backend.get_security_group_from_id(group)
        if stored is None:
            yield "InvalidGroup.NotFound"
        elif stored.vpc_id != vpc:
            yield "InvalidParameter"
    if subnet is not None:
        zone = form.get("Placement.AvailabilityZone", subnet.availability_zone)
        if zone != subnet.availability_zone:
            yield "InvalidParameterValue"
        if subnet.available_ip_address_count <= 0:
            yield "InsufficientFreeAddressesInSubnet"


def _above_quota(name: str, quotas: Mapping[str, float], *, spot: bool) -> Iterator[str]:
    """Quotas that a test has stated count the vCPUs of all instances that run or are to."""
    code = _code(name, spot=spot)
    if code in quotas:
        used = sum(
            _vcpus(instance.instance_type)
            for reservation in _backend().reservations.values()
            for instance in reservation.instances
            if instance.state in _ALIVE
            and (instance.lifecycle == "spot") is spot
            and _code(instance.instance_type, spot=spot) == code
        )
        if used + _vcpus(name) > quotas[code]:
            yield "MaxSpotInstanceCountExceeded" if spot else "VcpuLimitExceeded"


def _code(name: str, *, spot: bool) -> str:
    letters = re.match(r"[a-z]+", name)
    assert letters is not None, name
    return next((code for families, code in _CODES[spot] if letters[0] in families.split()), "")


def _vcpus(name: str) -> int:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return int(INSTANCE_TYPES[name]["VCpuInfo"]["DefaultVCpus"])


def _zone(form: Mapping[str, str]) -> str:
    subnet = _subnet(form)
    stated = form.get("Placement.AvailabilityZone", "")
    return stated or ("" if subnet is None else str(subnet.availability_zone))


def _subnet(form: Mapping[str, str]) -> Any:
    subnets = {
        name: subnet for zone in _backend().subnets.values() for name, subnet in zone.items()
    }
    return subnets.get(form.get("SubnetId", ""))


def _backend() -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2 import ec2_backends

    return ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
