"""Asks AWS which instance types a region sells, and their prices."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from eva_master.adapters.catalog.snapshot import CatalogSnapshot, SoldType
from eva_master.adapters.ec2.client import Aws, ClientFactory, boto_client
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.spot import market, micro_dollars

PRICE_LIST_REGION = "us-east-1"
"""A region with the Price List API, which knows the prices of all regions."""
GIB_MONTH = 80_000
"""Price of a GiB of gp3 a month in us-east-1, should the price list not tell that of a region."""
ADDRESS_HOUR = 5_000
"""Price of a public IPv4 address per hour, in every region (aws.amazon.com/vpc/pricing)."""
_TYPES_PRICED_ONE_BY_ONE = 30
"""Up to so many types, prices are requested one by one."""
_NAMES_PER_CALL = 100
_BURSTABLE = re.compile(r"t[0-9]")


def take_snapshot(
    settings: Ec2Settings,
    *,
    architectures: Sequence[str],
    names: Collection[str] | None = None,
    closing: threading.Event | None = None,
    client_factory: ClientFactory = boto_client,
) -> CatalogSnapshot:
    """Ask AWS for instance types, their zones and their prices.

    Args:
        settings: The region, and how to reach it.
        architectures: Architectures as EC2 names them.
        names: Types or families, `None` for all of the current generation but those whose real
            price depends on how much they compute (`is_burstable`).
        closing: Set if the answer is not wanted any more.
        client_factory: Makes the clients of boto3.

    Raises:
        CloudError: AWS does not answer.
    """
    closing = closing or threading.Event()
    aws = Aws(settings, closing, client_factory)
    described = {entry["InstanceType"]: entry for entry in _described(aws, architectures, names)}
    chosen = sorted(described)
    zones = zones_of(aws, chosen)
    spot = market(aws, chosen) if chosen else {}
    price_list = Aws(replace(settings, region=PRICE_LIST_REGION), closing, client_factory)
    prices = _prices(price_list, settings.region, chosen)
    return CatalogSnapshot(
        region=settings.region,
        taken=datetime.now(UTC).replace(microsecond=0),
        gib_month=_gib_month(price_list, settings.region) or 0,
        types={
            name: _sold(
                described[name],
                price=prices[name],
                zones=sorted(zones.get(name, ())),
                spot={zone: price for (kind, zone), price in sorted(spot.items()) if kind == name},
            )
            for name in chosen
            if name in prices
        },
    )


def list_prices(
    settings: Ec2Settings, machine: str, client_factory: ClientFactory = boto_client
) -> tuple[int | None, int | None]:
    """Look prices up in the Price List.

    Args:
        settings: The region, and how to reach it.
        machine: An instance type.
        client_factory: Makes the clients of boto3.

    Returns:
        Per hour of an instance on demand, and per month of a GiB of gp3 volume, in micro-dollars;
        `None` for what the list does not have.

    Raises:
        CloudError: AWS does not answer.
    """
    list_settings = replace(settings, region=PRICE_LIST_REGION)
    aws = Aws(list_settings, threading.Event(), client_factory)
    instance = _prices(aws, settings.region, [machine]).get(machine)
    return instance, _gib_month(aws, settings.region)


def _gib_month(aws: Aws, region: str) -> int | None:
    """Price of a GiB of gp3 a month, in micro-dollars."""
    fields = {"regionCode": region, "productFamily": "Storage", "volumeApiName": "gp3"}
    products = [product for page in _products(aws, fields) for product in page]
    volumes = [price for product in products for unit, price in _terms(product) if unit == "GB-Mo"]
    return next(iter(volumes), None)


def _described(
    aws: Aws, architectures: Sequence[str], names: Collection[str] | None
) -> Iterator[Mapping[str, Any]]:
    filters = [
        {"Name": "processor-info.supported-architecture", "Values": list(architectures)},
        {"Name": "bare-metal", "Values": ["false"]},
        # Others are sold only as capacity that is reserved and paid ahead.
        {"Name": "supported-usage-class", "Values": ["on-demand"]},
    ]
    if names is None:
        filters.append({"Name": "current-generation", "Values": ["true"]})
        filters.append({"Name": "burstable-performance-supported", "Values": ["false"]})
    else:
        patterns = [name if "." in name else f"{name}.*" for name in names]
        filters.append({"Name": "instance-type", "Values": patterns})
    request = {"Filters": filters, "MaxResults": 100}
    for page in aws.pages("ec2", "describe_instance_types", request):
        for entry in page["InstanceTypes"]:
            if "on-demand" in entry["SupportedUsageClasses"]:
                yield entry


def is_burstable(name: str) -> bool:
    """Whether a type computes on credits.

    The listed price covers a share of its vCPUs. Full use of them is billed as credits, up to
    twenty times the price.
    """
    return _BURSTABLE.match(name) is not None


def _sold(
    described: Mapping[str, Any], *, price: int, zones: Sequence[str], spot: Mapping[str, int]
) -> SoldType:
    cards = described.get("GpuInfo", {}).get("Gpus", [])
    # Programs that need CUDA cannot use other makers' GPUs.
    cards = [card for card in cards if card.get("Manufacturer") == "NVIDIA"]
    return SoldType(
        architecture=described["ProcessorInfo"]["SupportedArchitectures"][-1],
        milli_cpus=described["VCpuInfo"]["DefaultVCpus"] * 1000,
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        gpus=sum(card["Count"] for card in cards),
        gpu=cards[0]["Name"] if cards else "",
        price=price,
        zones=tuple(zones),
        spot=dict(spot) if "spot" in described["SupportedUsageClasses"] else {},
    )


def zones_of(aws: Aws, types: Sequence[str]) -> dict[str, set[str]]:
    """Where each type is sold."""
    zones: dict[str, set[str]] = {}
    for start in range(0, len(types), _NAMES_PER_CALL):
        values = list(types[start : start + _NAMES_PER_CALL])
        request = {
            "LocationType": "availability-zone",
            "Filters": [{"Name": "instance-type", "Values": values}],
        }
        for page in aws.pages("ec2", "describe_instance_type_offerings", request):
            for entry in page["InstanceTypeOfferings"]:
                zones.setdefault(entry["InstanceType"], set()).add(entry["Location"])
    return zones


def _prices(aws: Aws, region: str, types: Sequence[str]) -> dict[str, int]:
    """On-demand prices of Linux instances with shared tenancy and without licences."""
    wanted = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        # Capacity that is paid ahead has the same attributes, and another price.
        "marketoption": "OnDemand",
    }
    asked: Iterable[Mapping[str, str]] = [wanted]
    if len(types) <= _TYPES_PRICED_ONE_BY_ONE:
        asked = [{**wanted, "instanceType": name} for name in types]
    prices: dict[str, int] = {}
    for fields in asked:
        for products in _products(aws, fields):
            prices.update(filter(None, map(_price, products)))
    return prices


def _products(aws: Aws, fields: Mapping[str, str]) -> Iterator[list[str]]:
    filters = [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in fields.items()]
    request = {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 100}
    for page in aws.pages("pricing", "get_products", request):
        yield page["PriceList"]


def _price(product: str) -> tuple[str, int] | None:
    """Type and price per hour in micro-dollars of a product; `None` if not sold by the hour."""
    name = json.loads(product)["product"]["attributes"].get("instanceType")
    return next(((name, price) for unit, price in _terms(product) if unit == "Hrs"), None)


def _terms(product: str) -> Iterator[tuple[str, int]]:
    """Units and prices on demand of a product, those that cost nothing left out."""
    for term in json.loads(product)["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = micro_dollars(dimension["pricePerUnit"].get("USD", "0"))
            if price > 0:
                yield dimension["unit"], price
