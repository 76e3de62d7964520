"""The quotas of an account on instances: their names, values and use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eva_master.adapters.ec2.client import Aws
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_wire.values.errors import CloudError


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """A limit on the vCPUs of running instances of some families together.

    Attributes:
        code: Its code in Service Quotas.
        name: Its name in Service Quotas.
        families: Prefixes of the names of its families.
    """

    code: str
    name: str
    families: tuple[str, ...]


_STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
QUOTAS: Mapping[Purchase, tuple[VcpuQuota, ...]] = {
    Purchase.ON_DEMAND: (
        VcpuQuota("L-6E869C2A", "Running On-Demand DL instances", ("dl",)),
        VcpuQuota("L-74FC7D96", "Running On-Demand F instances", ("f",)),
        VcpuQuota("L-DB2E81BA", "Running On-Demand G and VT instances", ("g", "vt")),
        VcpuQuota("L-F7808C92", "Running On-Demand HPC instances", ("hpc",)),
        VcpuQuota("L-43DA4232", "Running On-Demand High Memory instances", ("u",)),
        VcpuQuota("L-1945791B", "Running On-Demand Inf instances", ("inf",)),
        VcpuQuota("L-417A185B", "Running On-Demand P instances", ("p",)),
        VcpuQuota("L-2C3B7624", "Running On-Demand Trn instances", ("trn",)),
        VcpuQuota("L-7295265B", "Running On-Demand X instances", ("x",)),
        VcpuQuota(
            "L-1216C47A",
            "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
            _STANDARD,
        ),
    ),
    Purchase.SPOT: (
        VcpuQuota("L-85EED4F7", "All DL Spot Instance Requests", ("dl",)),
        VcpuQuota("L-88CF9481", "All F Spot Instance Requests", ("f",)),
        VcpuQuota("L-3819A6DF", "All G and VT Spot Instance Requests", ("g", "vt")),
        VcpuQuota("L-B5D1601B", "All Inf Spot Instance Requests", ("inf",)),
        VcpuQuota("L-C4BD4855", "All P5 Spot Instance Requests", ("p5",)),
        VcpuQuota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p4", "p3", "p2")),
        VcpuQuota("L-6B0D517C", "All Trn Spot Instance Requests", ("trn",)),
        VcpuQuota("L-E3A00192", "All X Spot Instance Requests", ("x",)),
        VcpuQuota(
            "L-34B43A08",
            "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
            _STANDARD,
        ),
    ),
}
_APART = frozenset({"dl", "hpc", "inf", "mac", "trn", "vt"})
"""Families that have other quotas or none."""
_FAMILY = re.compile(r"([a-z]+)([0-9]*)")


def quota_of(type_name: str, purchase: Purchase) -> VcpuQuota | None:
    """The quota that an instance counts against; `None` if it is not known.

    The first letter of a family decides, so that ``gr6`` is G; but ``inf2`` is Inf and not I, and
    some generations of P have a quota of their own.
    """
    match = _FAMILY.match(type_name)
    if match is None:
        return None
    letters, generation = match.groups()
    names = {letters} if letters in _APART else {letters[0], letters + generation}
    return next((quota for quota in QUOTAS[purchase] if not names.isdisjoint(quota.families)), None)


def also_over(offering: Offering, other: Offering) -> bool:
    """Whether a full quota refuses another offering too: one of it that is at least as large."""
    quota = quota_of(offering.type.name, offering.purchase)
    return (
        quota is not None
        and quota_of(other.type.name, other.purchase) == quota
        and other.type.capacity.milli_cpus >= offering.type.capacity.milli_cpus
    )


def in_words(offering: Offering, catalog: Catalog, aws: Aws) -> str:
    """Describe the quota that an offering exceeds, and how much of it is in use.

    Args:
        offering: The refused offering.
        catalog: Tells the vCPUs of instance types, which EC2's listing does not contain.
        aws: Makes the calls.

    Returns:
        A sentence. If AWS does not answer, it only says what is known without asking.
    """
    quota = quota_of(offering.type.name, offering.purchase)
    if quota is None:
        return f"a quota on {offering.type.name}"
    needed = offering.type.capacity.milli_cpus // 1000
    try:
        name, value, used = standing(quota, (*catalog, offering), aws)
    except CloudError:
        return f"the quota {quota.name!r} ({quota.code}) has no room for {needed} vCPUs"
    return (
        f"the quota {name!r} ({quota.code}) is {value:g} vCPUs, {used} are in use, "
        f"and {offering.type.name} needs {needed}"
    )


def standing(quota: VcpuQuota, catalog: Catalog, aws: Aws) -> tuple[str, float, int]:
    """Name and value of a quota, and the vCPUs that count against it now; raises `CloudError`."""
    vcpus = {sold.type.name: sold.type.capacity.milli_cpus // 1000 for sold in catalog}
    request = {"ServiceCode": "ec2", "QuotaCode": quota.code}
    answer = aws.call("service-quotas", "get_service_quota", request)
    alive = {
        "Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}],
        "MaxResults": 1000,
    }
    used = sum(
        _vcpus(instance, vcpus)
        for page in aws.pages("ec2", "describe_instances", alive)
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
        if quota_of(instance["InstanceType"], _purchase(instance)) == quota
    )
    return answer["Quota"]["QuotaName"], answer["Quota"]["Value"], used


def _purchase(instance: Mapping[str, Any]) -> Purchase:
    spot = instance.get("InstanceLifecycle") == "spot"
    return Purchase.SPOT if spot else Purchase.ON_DEMAND


def _vcpus(instance: Mapping[str, Any], known: Mapping[str, int]) -> int:
    if options := instance.get("CpuOptions"):
        return int(options["CoreCount"]) * int(options["ThreadsPerCore"])
    return known.get(instance["InstanceType"], 1)
