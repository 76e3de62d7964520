"""EC2 when it refuses, is late, loses answers, or holds what is not the cluster's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from eva_master.adapters.ec2.launching.run_instances_request import client_token
from eva_master.model.actions import TerminateInstance
from eva_master.model.catalog import Purchase
from eva_master.model.events import CloudTrouble, InstanceGone, InstanceUp, LaunchFailed
from eva_wire.values.ids import InstanceId
from tests.fakes.aws.account import LAUNCH, OFFERING, ONE, Account, Blind, Undated, listed
from tests.fakes.aws.service import LOST
from tests.fakes.rpc.mailbox import WallClock


def test_an_instance_is_launched_as_agreed(account: Account) -> None:
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    (instance,) = account.existing()
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["Name"] == f"{account.settings.cluster} {ONE}"
    assert tags["eva:instance"] == ONE
    assert tags["eva:attempt"] == "1"
    assert instance["InstanceType"] == "p3.8xlarge"
    assert instance["Placement"]["AvailabilityZone"] == OFFERING.zone
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert "InstanceLifecycle" not in instance
    (mapped,) = instance["BlockDeviceMappings"]
    (volume,) = account.direct.describe_volumes(VolumeIds=[mapped["Ebs"]["VolumeId"]])["Volumes"]
    assert mapped["Ebs"]["DeleteOnTermination"]
    assert (volume["VolumeType"], volume["Encrypted"], volume["Size"]) == ("gp3", True, 100)
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


def test_a_denied_launch_is_logged_loudly(account: Account) -> None:
    account.order("UnauthorizedOperation")
    cloud, inbox = account.master()
    with capture_logs() as logs:
        cloud.execute(LAUNCH)
        inbox.expect(LaunchFailed)
    assert "critical" in [entry["log_level"] for entry in logs]


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
    assert "throttles" in inbox.expect(CloudTrouble).reason
    inbox.expect(InstanceUp)
    assert inbox.expect(CloudTrouble) == CloudTrouble(None)
    assert len(account.made()) == 1


def test_a_lost_answer_makes_no_second_instance(account: Account) -> None:
    account.order(LOST)
    cloud, inbox = account.master(read_timeout_s=0.5)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


def test_a_crash_between_launch_and_record_leaks_nothing(account: Account) -> None:
    account.launch_by_hand(LAUNCH)
    cloud, inbox = account.master()
    cloud.execute(LAUNCH)
    up = inbox.expect(InstanceUp)
    assert len(account.made()) == 1
    assert listed(cloud, inbox) == {ONE: up.up_ms}


def test_the_token_finds_the_instance_that_no_listing_shows_yet(account: Account) -> None:
    account.launch_by_hand(LAUNCH)
    cloud, inbox = account.master(lambda client: Blind(client, 4), settle_s=60)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1


@pytest.mark.parametrize("listings", [4, float("inf")])
def test_a_token_of_an_instance_that_was_terminated_tells_its_end(
    account: Account, listings: float
) -> None:
    """It was made and has ended: no refusal of the offering, and the next one has its own token."""
    account.launch_by_hand(LAUNCH)
    (made,) = account.existing()
    account.direct.terminate_instances(InstanceIds=[made["InstanceId"]])
    cloud, inbox = account.master(lambda client: Blind(client, listings), settle_s=1)
    cloud.execute(LAUNCH)
    gone = inbox.expect(InstanceGone)
    assert gone.instance == ONE
    assert "erminated" in gone.reason
    assert len(account.made()) == 1
    cloud.close()
    cloud, inbox = account.master()
    cloud.execute(replace(LAUNCH, instance=InstanceId("i-2")))
    while not isinstance(event := inbox.next(), InstanceUp):
        assert event.instance == ONE, "the end is told again to a new master, at most"
    assert (event.instance, len(account.existing())) == ("i-2", 1)


def test_a_token_with_other_parameters_is_refused(account: Account) -> None:
    account.launch_by_hand(LAUNCH, "other user data")
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
    make_account: Callable[[], Account],
) -> None:
    ours, theirs = make_account(), make_account()
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
    gone = inbox.expect(InstanceGone)
    assert gone.up_ms == up.up_ms
    assert "UserInitiatedShutdown" in gone.reason


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


def test_what_ec2_has_forgotten_is_gone_and_not_made_anew(account: Account) -> None:
    """EC2 knows of a terminated instance for an hour, and of its client token no longer."""
    cloud, inbox = account.master()
    cloud.execute(replace(LAUNCH, existed=True))
    gone = inbox.expect(InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, None)
    assert account.made() == []


def test_an_instance_that_was_launched_twice_is_kept_once(account: Account) -> None:
    for attempt in (1, 2):
        account.launch_by_hand(replace(LAUNCH, attempt=attempt))
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
    cloud, _ = account.master(endpoint="http://127.0.0.1:9")
    cloud.execute(LAUNCH)
    cloud.execute(TerminateInstance(ONE))
    cloud.close()
    assert account.existing() == []
