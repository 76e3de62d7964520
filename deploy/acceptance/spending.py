"""Spending as EC2's own description of the instances has it, whatever Eva thinks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

PRICE_LIST_REGION = "us-east-1"
LEAST_S = 60.0
"""EC2 bills a minute of each instance at least."""
_GP3_HOUR = 0.08 / 730
_ADDRESS_HOUR = 0.005
_GUESS_PER_VCPU, _GUESS_PER_GPU = 0.10, 4.0
"""Dollars per hour where the Price List does not say; more than any type costs."""


_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def ended_at(reason: str) -> datetime | None:
    """The time in a StateTransitionReason; `None` if it has none."""
    stated = _ENDED_AT.search(reason)
    return datetime.fromisoformat(stated[1]).replace(tzinfo=UTC) if stated else None


@dataclass(frozen=True)
class Sighting:
    """An instance as EC2 describes it.

    Attributes:
        ec2_id: Its id.
        kind: Its type.
        zone: Where it is.
        spot: Whether it is a spot instance.
        launched: When it was launched.
        ended: When it was first seen terminated; `None` if it was not.
        gib: Size of its volumes.
        role: ``master``, or the cluster's own name of a worker.
    """

    ec2_id: str
    kind: str
    zone: str
    spot: bool
    launched: datetime
    ended: datetime | None = None
    gib: int = 0
    role: str = "master"


def hours(instance: Sighting, now: datetime) -> float:
    """Hours of an instance that are billed."""
    seconds = ((instance.ended or now) - instance.launched).total_seconds()
    return max(LEAST_S, seconds) / 3600


def dollars(
    instances: Iterable[Sighting], prices: Mapping[tuple[str, str, bool], float], now: datetime
) -> float:
    """Cost of instances with their volumes and addresses.

    Args:
        instances: All that were ever seen.
        prices: Dollars per hour by type, zone and whether it is a spot instance.
        now: The time up to which those that run count.
    """
    return sum(
        hours(each, now)
        * (prices[each.kind, each.zone, each.spot] + each.gib * _GP3_HOUR + _ADDRESS_HOUR)
        for each in instances
    )


class Account:
    """Looks at the cluster's instances, and remembers all that there were.

    Args:
        clients: Makes a client of boto3 for a service and a region.
        region: The cluster's.
        cluster: Its name.

    Attributes:
        seen: Every instance that there was, by its id.
        spent: Dollars, by the latest look.
        guessed: Types of which the Price List has no price.
    """

    def __init__(self, clients: Callable[[str, str], Any], region: str, cluster: str) -> None:
        self.clients, self.region, self.cluster = clients, region, cluster
        self.seen: dict[str, Sighting] = {}
        self.guessed: set[str] = set()
        self.spent = 0.0
        self._prices: dict[tuple[str, str, bool], float] = {}
        self._lock = threading.Lock()

    def client(self, service: str) -> Any:
        """A client in the cluster's region."""
        return self.clients(service, self.region)

    def look(self) -> float:
        """Look at all instances; returns what they have cost so far, in dollars.

        Raises:
            ClientError: AWS refuses to say.
        """
        with self._lock:
            now = datetime.now(UTC)
            for described in [*self._workers(), *self._masters()]:
                self._note(described, now)
            for each in self.seen.values():
                key = each.kind, each.zone, each.spot
                if key not in self._prices:
                    self._prices[key] = self._price(*key)
            self.spent = dollars(self.seen.values(), self._prices, now)
            return self.spent

    def price(self, instance: Sighting) -> float:
        """Dollars per hour of an instance that was seen, without volume and address."""
        return self._prices[instance.kind, instance.zone, instance.spot]

    def stack_resources(self) -> dict[str, tuple[str, str]]:
        """Type and physical name of the stack's resources; none without a stack."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")
        try:
            summaries = [
                each
                for page in pages.paginate(StackName=f"eva-{self.cluster}")
                for each in page["StackResourceSummaries"]
            ]
        except ClientError as error:
            if "does not exist" in str(error):
                return {}
            raise
        return {
            each["LogicalResourceId"]: (each["ResourceType"], each["PhysicalResourceId"])
            for each in summaries
            if each.get("PhysicalResourceId")
        }

    def has_stack(self) -> bool:
        """Whether the stack is there, be it without resources."""
        try:
            answer = self.client("cloudformation").describe_stacks(StackName=f"eva-{self.cluster}")
        except ClientError as error:
            if "does not exist" in str(error):
                return False
            raise
        return any(each["StackStatus"] != "DELETE_COMPLETE" for each in answer["Stacks"])

    def _workers(self) -> list[dict[str, Any]]:
        return self._described(Filters=[{"Name": "tag:eva:cluster", "Values": [self.cluster]}])

    def _masters(self) -> list[dict[str, Any]]:
        ids = {each.ec2_id for each in self.seen.values() if each.role == "master"}
        if made := self.stack_resources().get("Master"):
            ids.add(made[1])
        if not ids:
            return []
        return self._described(Filters=[{"Name": "instance-id", "Values": sorted(ids)}])

    def _described(self, **request: Any) -> list[dict[str, Any]]:
        pages = self.client("ec2").get_paginator("describe_instances").paginate(**request)
        return [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]

    def _note(self, described: Mapping[str, Any], now: datetime) -> None:
        ec2_id = described["InstanceId"]
        before = self.seen.get(ec2_id)
        over = described["State"]["Name"] in ("shutting-down", "terminated")
        stated = ended_at(described.get("StateTransitionReason", ""))
        tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}
        self.seen[ec2_id] = Sighting(
            ec2_id,
            described["InstanceType"],
            described["Placement"]["AvailabilityZone"],
            described.get("InstanceLifecycle") == "spot",
            # A start after a stop is another LaunchTime; the master counts from its first.
            before.launched if before else described["LaunchTime"],
            (stated or (before.ended if before and before.ended else now)) if over else None,
            max(self._gib(ec2_id, over=over), before.gib if before else 0),
            tags.get("eva:instance", "master"),
        )

    def _gib(self, ec2_id: str, *, over: bool) -> int:
        if over:
            return 0
        filters = [{"Name": "attachment.instance-id", "Values": [ec2_id]}]
        volumes = self.client("ec2").describe_volumes(Filters=filters)["Volumes"]
        return sum(int(volume["Size"]) for volume in volumes)

    def _price(self, kind: str, zone: str, spot: bool) -> float:
        try:
            price = self._spot_price(kind, zone) if spot else self._listed(kind)
        except (BotoCoreError, ClientError):
            price = None
        if price is None:
            self.guessed.add(kind)
            return self._guess(kind)
        return price

    def _spot_price(self, kind: str, zone: str) -> float | None:
        answer = self.client("ec2").describe_spot_price_history(
            InstanceTypes=[kind],
            AvailabilityZone=zone,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(UTC),
        )
        prices = [float(entry["SpotPrice"]) for entry in answer["SpotPriceHistory"]]
        return max(prices, default=None)

    def _listed(self, kind: str) -> float | None:
        stated = {
            "instanceType": kind,
            "regionCode": self.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "marketoption": "OnDemand",
        }
        answer = self.clients("pricing", PRICE_LIST_REGION).get_products(
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in stated.items()
            ],
        )
        prices = [
            float(dimension["pricePerUnit"]["USD"])
            for product in map(json.loads, answer["PriceList"])
            for term in product["terms"]["OnDemand"].values()
            for dimension in term["priceDimensions"].values()
        ]
        return max(prices, default=None) or None

    def _guess(self, kind: str) -> float:
        (described,) = self.client("ec2").describe_instance_types(InstanceTypes=[kind])[
            "InstanceTypes"
        ]
        gpus = sum(gpu["Count"] for gpu in described.get("GpuInfo", {}).get("Gpus", ()))
        vcpus = described["VCpuInfo"]["DefaultVCpus"]
        return float(vcpus * _GUESS_PER_VCPU + gpus * _GUESS_PER_GPU)


class Watch:
    """Looks at the spending again and again, in a thread.

    Args:
        account: Looks at the instances.
        budget: Dollars.
        exceeded: Called once, in the thread, with the spending above the budget.
        every_s: Seconds between two looks.
    """

    def __init__(
        self,
        account: Account,
        budget: float,
        exceeded: Callable[[float], None],
        every_s: float = 15.0,
    ) -> None:
        self._account, self._budget, self._exceeded = account, budget, exceeded
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spending", daemon=True)

    def start(self) -> None:
        """Begin to look, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        exceeded = False
        while not self._closing.wait(self._every_s):
            try:
                spent = self._account.look()
            except (BotoCoreError, ClientError):
                continue  # The next look counts from the launch again, so nothing is lost.
            if spent > self._budget and not exceeded:
                exceeded = True
                self._exceeded(spent)
