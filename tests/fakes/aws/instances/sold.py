"""Instance types that moto does not know, and the price list."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.aws.service import AHEAD, REGION

P3 = {"p3.2xlarge": (8, 61, 1), "p3.8xlarge": (32, 244, 4), "p3.16xlarge": (64, 488, 8)}
"""vCPUs, GiB, GPUs."""
ON_DEMAND = {
    "c7i.large": "0.0892500000",
    "c7i.xlarge": "0.1785000000",
    "g5.xlarge": "1.0060000000",
    "t3.small": "0.0208000000",
}
"""Dollars per hour; whatever is not here costs 4 cents per vCPU."""


def products(request: dict[str, Any]) -> dict[str, Any]:
    """GetProducts of the Price List API, for one type."""
    wanted = {each["Field"]: each["Value"] for each in request["Filters"]}
    if wanted.get("productFamily") == "Storage":
        assert wanted["volumeApiName"] == "gp3", wanted
        return {"FormatVersion": "aws_v1", "PriceList": [_product("gp3", "0.08", "GB-Mo")]}
    assert wanted["operatingSystem"] == "Linux", wanted
    found = [_product(t) for t in _types_in(wanted)]
    if wanted.get("marketoption") != "OnDemand":
        # Capacity that is paid ahead has all other attributes in common.
        found += [_product(t, dollars="0.0000010000") for t in _types_in(wanted)]
    return {"FormatVersion": "aws_v1", "PriceList": found}


def _types_in(wanted: dict[str, str]) -> list[str]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    if "instanceType" in wanted:
        return [wanted["instanceType"]]
    prefix = f"{wanted['instanceFamily']}." if "instanceFamily" in wanted else ""
    return [name for name in INSTANCE_TYPES if name.startswith(prefix)]


def _product(name: str, dollars: str = "", unit: str = "Hrs") -> str:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    if not dollars:
        vcpus = INSTANCE_TYPES[name]["VCpuInfo"]["DefaultVCpus"]
        dollars = ON_DEMAND.get(name, f"{vcpus * 4 / 100:.10f}")
    dimension = {"unit": unit, "pricePerUnit": {"USD": dollars}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name, "regionCode": REGION}},
            "terms": {"OnDemand": {"a.b": {"priceDimensions": {"a.b.c": dimension}}}},
        }
    )


def add_missing_types() -> None:
    """Have moto know the types that the project comes with."""
    from moto.ec2.models.instance_types import (
        INSTANCE_TYPE_OFFERINGS,
        INSTANCE_TYPES,
        InstanceType,
        InstanceTypeBackend,
    )

    for name, (vcpus, memory_gib, gpus) in (P3 | {AHEAD: (192, 2048, 8)}).items():
        INSTANCE_TYPES[name] = {
            **INSTANCE_TYPES["g5.xlarge"],
            "InstanceType": name,
            "VCpuInfo": {"DefaultVCpus": vcpus},
            "MemoryInfo": {"SizeInMiB": memory_gib * 1024},
            "GpuInfo": {"Gpus": [{"Name": "V100", "Manufacturer": "NVIDIA", "Count": gpus}]},
            "SupportedUsageClasses": ["capacity-block"] if name == AHEAD else ["on-demand", "spot"],
        }
        InstanceTypeBackend.instance_types.append(InstanceType(name))
        for zone in ("a", "b", "c"):
            sold = {
                "InstanceType": name,
                "Location": f"{REGION}{zone}",
                "LocationType": "availability-zone",
            }
            INSTANCE_TYPE_OFFERINGS["availability-zone"][REGION].append(sold)
