"""EC2 when it refuses, is late, loses answers, or holds what is not the cluster's."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.ec2.client import boto_client
from eva_master.adapters.ec2.launch import client_token, launch_request
from eva_master.model.actions import LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp, LaunchFailed
from eva_master.model.ids import Family, InstanceId, Millis, Price
from eva_master.model.resources import Resources
from tests.fakes.aws import CREDENTIALS, LOST, REGION, Aws, shared
from tests.fakes.mailbox import Mailbox, WallClock

ONE = InstanceId("i-1")
OFFERING = Offering(
    InstanceType("p3.8xlarge", Family("p3"), Resources(4, 32_000, 249_856)),
    Price(12_240_000),
    zone=f"{REGION}b",
)
LAUNCH = LaunchInstance(ONE, OFFERING, 1)


@functools.cache
def boto(endpoint: str, connect_timeout_s: float, read_timeout_s: float) -> Any:
    """The adapter's own client; making one takes longer than most of these tests."""
    return boto_client(
        Ec2Settings(
            "any",
            REGION,
            "any",
            endpoint=endpoint,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
        )
    )


class Account:
    """One cluster in the account, and a view of it that does not pass through the adapter."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.direct = aws.client("ec2")
        self.settings = Ec2Settings(
            cluster=uuid.uuid4().hex,
            region=REGION,
            image="ami-12345678",
            endpoint=aws.url,
            poll_s=0.05,
            settle_s=0.2,
            read_timeout_s=10,
            page_size=5,
        )
        self._clouds: list[Ec2Cloud] = []

    def master(
        self, wrap: Callable[[Any], Any] = lambda client: client, **changed: Any
    ) -> tuple[Ec2Cloud, Mailbox]:
        """A new life of the master, which may see EC2 through something."""
        inbox = Mailbox()
        cloud = Ec2Cloud(
            inbox,
            WallClock(),
            replace(self.settings, **changed),
            user_data=lambda action: f"#!/bin/sh\necho {action.instance}\n",
            client_factory=lambda settings: wrap(
                boto(settings.endpoint, settings.connect_timeout_s, settings.read_timeout_s)
            ),
        )
        self._clouds.append(cloud)
        return cloud, inbox

    def order(self, *faults: str, launch_ms: int = 0) -> None:
        self._aws.order(self.settings.cluster, faults=faults, launch_ms=launch_ms)

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


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Account]]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    accounts: list[Account] = []

    def build() -> Account:
        accounts.append(Account(shared()))
        return accounts[-1]

    yield build
    for account in accounts:
        account.close()


@pytest.fixture
def account(make: Callable[[], Account]) -> Account:
    return make()


def listed(cloud: Ec2Cloud, inbox: Mailbox) -> dict[InstanceId, Millis]:
    cloud.execute(SyncCloud())
    return dict(inbox.expect(CloudListed).instances)


def test_an_instance_is_launched_as_agreed(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    (instance,) = account.existing()
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["eva:instance"] == ONE
    assert tags["eva:attempt"] == "1"
    assert instance["InstanceType"] == "p3.8xlarge"
    assert instance["Placement"]["AvailabilityZone"] == OFFERING.zone
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert "InstanceLifecycle" not in instance
    shutdown = account.direct.describe_instance_attribute(
        InstanceId=instance["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
    )
    assert shutdown["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"


def test_spot_instances_are_asked_for_as_such(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(replace(LAUNCH, offering=replace(OFFERING, purchase=Purchase.SPOT)))
    inbox.expect(InstanceUp)
    (instance,) = account.existing()
    assert instance["InstanceLifecycle"] == "spot"


@pytest.mark.parametrize(
    ("fault", "reason", "pause_ms"),
    [
        ("InsufficientInstanceCapacity", "no capacity", 180_000),
        ("VcpuLimitExceeded", "quota of the AWS account exceeded", 600_000),
        ("UnauthorizedOperation", "EC2 denied the launch", 300_000),
        ("InvalidParameterValue", "EC2 refused the launch", 300_000),
    ],
)
def test_a_refused_launch_tells_why_and_when_to_try_again(
    account: Account, fault: str, reason: str, pause_ms: int
) -> None:
    account.order(fault)
    cloud, inbox = account.master()
    before = WallClock().now()
    cloud.execute(LAUNCH)
    failed = inbox.expect(LaunchFailed)
    assert failed.instance == ONE
    assert failed.reason.startswith(f"{reason}: {fault}")
    assert before + pause_ms <= failed.retry_at <= WallClock().now() + pause_ms
    cloud.execute(LAUNCH)
    assert inbox.expect(LaunchFailed) == failed
    assert account.existing() == []
    cloud.execute(replace(LAUNCH, attempt=2))
    assert inbox.expect(InstanceUp).instance == ONE


def test_a_denied_launch_is_logged_loudly(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.order("UnauthorizedOperation")
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    inbox.expect(LaunchFailed)
    assert "critical" in capsys.readouterr().out


def test_throttled_and_broken_calls_are_repeated(account: Account) -> None:
    account.order("RequestLimitExceeded", "InternalError", "RequestLimitExceeded")
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_a_launch_goes_on_when_its_tries_are_used_up(account: Account) -> None:
    account.order(*["RequestLimitExceeded"] * 6)
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_a_lost_answer_makes_no_second_instance(account: Account) -> None:
    account.order(LOST)
    cloud, inbox = account.master(read_timeout_s=0.5)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_a_crash_between_launch_and_record_leaks_nothing(account: Account) -> None:
    user_data = f"#!/bin/sh\necho {ONE}\n"
    account.direct.run_instances(**launch_request(account.settings, LAUNCH, user_data))
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    assert len(account.made()) == 1
    assert listed(cloud, inbox) == {ONE: up.up_ms}


def test_the_token_finds_the_instance_that_no_listing_shows_yet(account: Account) -> None:
    user_data = f"#!/bin/sh\necho {ONE}\n"
    account.direct.run_instances(**launch_request(account.settings, LAUNCH, user_data))
    cloud, inbox = account.master(lambda client: Blind(client, 4), settle_s=60)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_a_token_with_other_parameters_is_refused(account: Account) -> None:
    account.direct.run_instances(**launch_request(account.settings, LAUNCH, "other user data"))
    cloud, inbox = account.master(lambda client: Blind(client, 1))
    cloud.execute(LAUNCH)
    assert "IdempotentParameterMismatch" in inbox.expect(LaunchFailed).reason
    # It neither exists nor will: as soon as it is seen, it is terminated.
    assert inbox.expect(InstanceGone).instance == ONE
    assert account.existing() == []


def test_tokens_differ_by_cluster_instance_and_attempt() -> None:
    tokens = {
        client_token("a", ONE, 1),
        client_token("b", ONE, 1),
        client_token("a", InstanceId("i-2"), 1),
        client_token("a", ONE, 2),
    }
    assert {len(token) for token in tokens} == {64}
    assert len(tokens) == 4


def test_a_listing_of_several_pages(account: Account) -> None:
    cloud, inbox = account.master()
    instances = [InstanceId(f"i-{number:02}") for number in range(12)]
    for instance in instances:
        cloud.execute(replace(LAUNCH, instance=instance))
    ups = [inbox.expect(InstanceUp) for _ in instances]
    assert sorted(up.instance for up in ups) == instances
    assert listed(cloud, inbox) == {up.instance: up.up_ms for up in ups}


def test_another_clusters_instances_are_neither_listed_nor_terminated(
    make: Callable[[], Account],
) -> None:
    ours, theirs = make(), make()
    (cloud, inbox), (other, others) = ours.master(), theirs.master()
    other.execute(LAUNCH)
    others.expect(InstanceUp)
    assert listed(cloud, inbox) == {}
    cloud.execute(TerminateInstance(ONE))
    assert inbox.expect(InstanceGone).up_ms is None
    assert len(theirs.existing()) == 1


def test_times_outlive_the_master(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    cloud.close()
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    assert inbox.expect(InstanceUp) == up
    cloud.execute(TerminateInstance(ONE))
    gone = inbox.expect(InstanceGone)
    assert gone.up_ms == up.up_ms
    cloud.close()
    _, inbox = account.master()
    assert inbox.expect(InstanceGone) == gone


def test_a_death_while_no_master_lived_is_told(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    cloud.close()
    (instance,) = account.existing()
    account.direct.terminate_instances(InstanceIds=[instance["InstanceId"]])
    _, inbox = account.master()
    assert inbox.expect(InstanceGone).up_ms == up.up_ms


def test_an_end_that_ec2_does_not_date_is_remembered(account: Account) -> None:
    cloud, inbox = account.master(Undated)
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    cloud.execute(TerminateInstance(ONE))
    gone = inbox.expect(InstanceGone)
    assert up.up_ms <= gone.gone_ms <= WallClock().now()
    cloud.close()
    _, inbox = account.master(Undated)
    assert inbox.expect(InstanceGone) == gone


def test_a_listing_may_lag_behind_a_launch(account: Account) -> None:
    cloud, inbox = account.master(lambda client: Blind(client, 4), settle_s=60)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_an_instance_that_is_never_listed_is_gone(account: Account) -> None:
    cloud, inbox = account.master(lambda client: Blind(client, float("inf")))
    cloud.execute(LAUNCH)
    gone = inbox.expect(InstanceGone)
    cloud.execute(LAUNCH)
    assert inbox.expect(InstanceGone) == gone
    assert len(account.made()) == 1


def test_an_instance_that_was_launched_twice_is_kept_once(account: Account) -> None:
    for attempt in (1, 2):
        request = launch_request(account.settings, replace(LAUNCH, attempt=attempt), "")
        account.direct.run_instances(**request)
    cloud, inbox = account.master()
    assert list(listed(cloud, inbox)) == [ONE]
    listed(cloud, inbox)  # The surplus is gone before the next answer.
    assert len(account.existing()) == 1


def test_a_stopped_instance_is_terminated(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    (instance,) = account.existing()
    account.direct.stop_instances(InstanceIds=[instance["InstanceId"]])
    assert inbox.expect(InstanceGone).up_ms == up.up_ms
    assert account.existing() == []


def test_execute_does_not_wait_for_an_ec2_that_is_away(account: Account) -> None:
    cloud, _ = account.master(endpoint="http://127.0.0.1:9", connect_timeout_s=0.2)
    cloud.execute(LAUNCH)
    cloud.execute(TerminateInstance(ONE))
    cloud.close()
    assert account.existing() == []
