"""A cluster in an account of the fake AWS, and a view of it that does not use the adapter."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from botocore.exceptions import ReadTimeoutError

from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.ec2.client import THREADS, boto_client
from eva_master.adapters.ec2.launching.images import PARAMETER, MachineImage
from eva_master.adapters.ec2.launching.run_instances_request import launch_request
from eva_master.model.actions import LaunchInstance, SyncCloud
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.events import CloudListed
from eva_master.model.resources import Resources
from eva_master.ports.launch_records import LaunchRecords
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.service import IMAGE, REGION, Aws
from tests.fakes.rpc.mailbox import Mailbox, WallClock

ONE = InstanceId("i-1")
OFFERING = Offering(
    InstanceType("p3.8xlarge", Family("p3"), Resources(4, 32_000, 249_856)),
    Price(12_240_000),
    zone=f"{REGION}b",
)
LAUNCH = LaunchInstance(ONE, OFFERING, 1)
SMALL_PAGE = {"MaxResults": 5}
QUICK = 100.0
"""Calls of the adapter are so many times as fast as for AWS."""
USER_DATA = "#!/bin/sh\ntrue\n"


@functools.cache
def boto(service: str, endpoint: str, read_timeout_s: float) -> Any:
    """The adapter's own client; making one takes longer than most of these tests."""
    client = boto_client(Ec2Settings("any", REGION, endpoint=endpoint), service, read_timeout_s)
    # A listing of a few instances has several pages.
    client.meta.events.register(
        "provide-client-params.ec2.DescribeInstances", lambda params, **_: {**params, **SMALL_PAGE}
    )
    return client


class Account:
    """One cluster in the account, and a view of it that does not pass through the adapter."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.direct = aws.client("ec2")
        self.settings = Ec2Settings(
            cluster=uuid.uuid4().hex,
            region=REGION,
            images={"x86_64-gpu": IMAGE},
            endpoint=aws.url,
            poll_s=0.05,
        )
        self._clouds: list[Ec2Cloud] = []

    def master(
        self,
        wrap: Callable[[Any], Any] = lambda client: client,
        user_data: str = USER_DATA,
        launches: LaunchRecords | None = None,
        catalog: Catalog = (),
        ask: Callable[[threading.Event], Catalog] | None = None,
        settle_s: float = 0.2,
        read_timeout_s: float = 10.0,
        threads: int = THREADS,
        **changed: Any,
    ) -> tuple[Ec2Cloud, Mailbox]:
        """A new life of the master, which may see EC2 through something."""
        inbox = Mailbox()

        def client(settings: Ec2Settings, service: str) -> Any:
            made = boto(service, settings.endpoint, read_timeout_s)
            return wrap(made) if service == "ec2" else made

        cloud = Ec2Cloud(
            inbox,
            WallClock(),
            replace(self.settings, **changed),
            user_data=lambda action: user_data,
            launch_records=launches or ShortMemory(),
            catalog=catalog,
            ask=ask,
            client_factory=client,
            settle_s=settle_s,
            threads=threads,
            allowance=QUICK,
        )
        self._clouds.append(cloud)
        return cloud, inbox

    def order(self, *faults: str, **order: Any) -> None:
        self._aws.order(self.settings.cluster, faults=faults, **order)

    def populate(self, count: int) -> None:
        """Have the cluster own so many instances."""
        self._aws.populate(self.settings.cluster, count)

    def protect(self, ec2_id: str, *, on: bool) -> None:
        """Have EC2 refuse to terminate an instance, or not any more."""
        self.direct.modify_instance_attribute(
            InstanceId=ec2_id, DisableApiTermination={"Value": on}
        )

    def calls(self, action: str) -> list[str]:
        """Outcomes of the calls of a kind, by the endpoint's own record."""
        log = self._aws.calls(self.settings.cluster)
        return [call["outcome"] for call in log if call["action"] == action]

    def launch_by_hand(self, action: LaunchInstance, user_data: str = USER_DATA) -> None:
        """The launch of a master that dies before it hears the answer."""
        name = IMAGE.removeprefix(PARAMETER)
        ami = self._aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
        request = launch_request(self.settings, action, MachineImage(ami, "/dev/xvda"), user_data)
        self.direct.run_instances(**request)

    def existing(self) -> list[Any]:
        """Instances of the cluster, those gone left out."""
        return [made for made in self.made() if made["State"]["Name"] != "terminated"]

    def made(self) -> list[Any]:
        """Instances of the cluster, those gone included."""
        tag = {"Name": "tag:eva:cluster", "Values": [self.settings.cluster]}
        pages = self.direct.get_paginator("describe_instances").paginate(Filters=[tag])
        return [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]

    def close(self) -> None:
        for cloud in self._clouds:
            cloud.close()
        if left := [instance["InstanceId"] for instance in self.existing()]:
            self.direct.terminate_instances(InstanceIds=left)


def listed(cloud: Ec2Cloud, inbox: Mailbox) -> dict[InstanceId, Millis]:
    cloud.execute(SyncCloud())
    return dict(inbox.expect(CloudListed).instances)


class Undated:
    """EC2 that does not say when an instance ended, as after the end of a spot instance."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def describe_instances(self, **request: Any) -> Any:
        page = self._client.describe_instances(**request)
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                instance["StateTransitionReason"] = ""
        return page


class Blind(Undated):
    """EC2 whose first listings lag behind its launches."""

    def __init__(self, client: Any, listings: float) -> None:
        super().__init__(client)
        self._left = listings

    def describe_instances(self, **request: Any) -> Any:
        self._left -= 1
        return {"Reservations": []} if self._left >= 0 else super().describe_instances(**request)


class Deaf(Blind):
    """EC2 that launches, and whose answers and listings never arrive."""

    def __init__(self, client: Any) -> None:
        super().__init__(client, float("inf"))

    def run_instances(self, **request: Any) -> Any:
        self._client.run_instances(**request)
        raise ReadTimeoutError(endpoint_url="")
