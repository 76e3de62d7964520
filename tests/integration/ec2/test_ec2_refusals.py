"""EC2 without capacity, over its quota, or throttling; and the record of what was asked of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eva_master.adapters.ec2.client import TRIES, Aws, Ec2Client
from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.launches import LaunchTable
from eva_master.model.actions import LaunchInstance, TerminateInstance
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import CloudTrouble, InstanceGone, InstanceUp, LaunchFailed, Quoted
from eva_master.model.resources import Resources
from eva_wire.values.errors import Throttled
from eva_wire.values.ids import Family, InstanceId, Price
from tests.fakes.aws import service as fake
from tests.fakes.aws.account import LAUNCH, OFFERING, ONE, Account, Blind, Deaf, listed
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.service import CREDENTIALS, IMAGE, LOST, REGION
from tests.fakes.rpc.mailbox import WallClock
from tests.fakes.rpc.ports import free_port

ELSEWHERE = replace(OFFERING, zone=f"{REGION}a")
SPOT = replace(OFFERING, purchase=Purchase.SPOT)
SMALLER = Offering(
    InstanceType("p3.2xlarge", Family("p3"), Resources(1, 8_000, 62_464)), Price(3_060_000)
)
OTHER_KIND = Offering(
    InstanceType("c7i.large", Family("c7i"), Resources(0, 2_000, 4_096)), Price(89_250)
)
CATALOG = (OFFERING, ELSEWHERE, SPOT, SMALLER, OTHER_KIND)
SEVERAL = [InstanceId(f"i-{number}") for number in range(1, 5)]


def test_no_capacity_in_one_zone_is_none_of_another_zones_business(account: Account) -> None:
    account.order(sold_out=[f"p3.8xlarge@{OFFERING.zone}"])
    cloud, inbox = account.master(catalog=CATALOG)
    cloud.execute(LAUNCH)
    failed = inbox.expect(LaunchFailed)
    assert failed.also == ()
    assert "no capacity: InsufficientInstanceCapacity" in failed.reason
    cloud.execute(LaunchInstance(InstanceId("i-2"), ELSEWHERE, 1))
    assert inbox.expect(InstanceUp).instance == "i-2"
    assert len(account.existing()) == 1


def test_launches_that_wait_for_a_sold_out_offering_fail_with_the_one_that_tried(
    account: Account,
) -> None:
    account.order(sold_out=["p3.8xlarge"])
    cloud, inbox = account.master(catalog=CATALOG, threads=1)
    cloud.execute(LAUNCH)
    inbox.expect(LaunchFailed)
    before = len(account.calls("RunInstances"))
    # From now on one launch finds out for all.
    for instance in SEVERAL:
        cloud.execute(LaunchInstance(instance, OFFERING, 2))
    failed = [inbox.expect(LaunchFailed) for _ in SEVERAL]
    assert sorted(one.instance for one in failed) == SEVERAL
    assert len({one.retry_at for one in failed}) == 1
    assert len(account.calls("RunInstances")) == before + 1
    assert failed[0].retry_at - WallClock().now() > 300_000, "the second pause is longer"


def test_what_is_sold_again_is_launched_again_by_all(account: Account) -> None:
    account.order("InsufficientInstanceCapacity")
    cloud, inbox = account.master(catalog=CATALOG)
    cloud.execute(LAUNCH)
    inbox.expect(LaunchFailed)
    for instance in SEVERAL:
        cloud.execute(LaunchInstance(instance, OFFERING, 2))
    assert sorted(inbox.expect(InstanceUp).instance for _ in SEVERAL) == SEVERAL


def test_a_quota_error_names_the_quota_and_its_use_and_rules_out_the_rest(
    account: Account,
) -> None:
    cloud, inbox = account.master(catalog=CATALOG)
    cloud.execute(LaunchInstance(InstanceId("i-0"), OFFERING, 1))
    inbox.expect(InstanceUp)
    account.order("VcpuLimitExceeded")
    cloud.execute(LAUNCH)
    failed = inbox.expect(LaunchFailed)
    assert failed.reason.startswith("quota of the AWS account exceeded: ")
    assert "'Running On-Demand P instances' (L-417A185B) is 64 vCPUs, " in failed.reason
    used = int(failed.reason.partition("vCPUs, ")[2].partition(" ")[0])
    assert used >= 32
    assert "p3.8xlarge needs 32" in failed.reason
    # In another zone there is as little left of it; a smaller one may fit, spot has its own.
    assert failed.also == (ELSEWHERE.id,)


def test_a_denial_rules_out_everything(account: Account) -> None:
    account.order("UnauthorizedOperation")
    cloud, inbox = account.master(catalog=CATALOG)
    cloud.execute(LAUNCH)
    assert len(inbox.expect(LaunchFailed).also) == len(CATALOG) - 1


def test_a_burst_of_throttling_slows_down_and_loses_nothing(account: Account) -> None:
    burst = ["RequestLimitExceeded"] * 3
    account.order(*burst, calls={"DescribeInstances": burst, "CreateTags": burst})
    cloud, inbox = account.master()
    for instance in SEVERAL:
        cloud.execute(replace(LAUNCH, instance=instance))
    assert sorted(inbox.expect(InstanceUp).instance for _ in SEVERAL) == SEVERAL
    assert len(account.made()) == len(SEVERAL)
    account.order(calls={"TerminateInstances": burst})
    for instance in SEVERAL:
        cloud.execute(TerminateInstance(instance))
    assert sorted(inbox.expect(InstanceGone).instance for _ in SEVERAL) == SEVERAL
    assert account.existing() == []
    # Nobody but the adapter repeats calls: each throttled one is in the record once.
    assert account.calls("RunInstances").count("RequestLimitExceeded") == len(burst)


def test_a_call_that_is_throttled_for_ever_is_given_up(account: Account) -> None:
    account.order(calls={"DescribeInstances": ["RequestLimitExceeded"] * TRIES})
    client = Ec2Client(Aws(account.settings, threading.Event()), account.settings)
    with pytest.raises(Throttled):
        list(client.instances())
    # So often, and no more: nobody below repeats it as well.
    assert account.calls("DescribeInstances") == ["RequestLimitExceeded"] * TRIES


@pytest.mark.parametrize(
    ("fault", "times", "words"),
    [
        ("UnauthorizedOperation", 1, "EC2 denies access: .* on order .check the IAM policy"),
        ("RequestLimitExceeded", TRIES, "EC2 throttles the account: .*Eva asks less often"),
        ("ServiceUnavailable", TRIES, "EC2 does not answer: .*AWS's health page"),
        ("InvalidParameterValue", 1, "EC2 refuses to answer: InvalidParameterValue"),
    ],
)
def test_an_ec2_that_fails_is_told_until_it_works_again(
    account: Account, fault: str, times: int, words: str
) -> None:
    began = WallClock().now()
    account.order(calls={"DescribeInstances": [fault] * times})
    _, inbox = account.master()
    told = inbox.expect(CloudTrouble)
    assert re.match(words, told.reason)
    assert told.since_ms is not None
    assert began <= told.since_ms <= WallClock().now()
    assert inbox.expect(CloudTrouble) == CloudTrouble(None)


def test_an_endpoint_where_nobody_is_does_not_answer(account: Account) -> None:
    _, inbox = account.master(endpoint=f"http://127.0.0.1:{free_port()}")
    told = inbox.expect(CloudTrouble)
    assert told.reason.startswith("EC2 does not answer: Could not connect to the endpoint URL")
    assert "ec2.endpoint" in told.reason


def test_an_instance_that_is_terminated_with_a_lost_answer_is_gone(account: Account) -> None:
    cloud, inbox = account.master(read_timeout_s=0.5)
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    account.order(calls={"TerminateInstances": [LOST]})
    cloud.execute(TerminateInstance(ONE))
    inbox.expect(InstanceGone)
    assert account.existing() == []


def test_one_that_may_not_be_terminated_keeps_no_other_alive(account: Account) -> None:
    cloud, inbox = account.master()
    for instance in SEVERAL:
        cloud.execute(replace(LAUNCH, instance=instance))
    for _ in SEVERAL:
        inbox.expect(InstanceUp)
    protected = account.existing()[0]["InstanceId"]
    account.protect(protected, on=True)
    with capture_logs() as logs:
        for instance in SEVERAL:
            cloud.execute(TerminateInstance(instance))
        for _ in SEVERAL[1:]:
            inbox.expect(InstanceGone)
    assert [it["InstanceId"] for it in account.existing()] == [protected]
    assert [entry["event"] for entry in logs].count("EC2 does not terminate an instance") == 1
    # It goes as soon as it may.
    account.protect(protected, on=False)
    inbox.expect(InstanceGone)
    assert account.existing() == []


def test_an_unknown_image_is_said_to_be_unknown(account: Account) -> None:
    cloud, inbox = account.master(images={"x86_64-gpu": "ami-00000000"})
    cloud.execute(LAUNCH)
    assert "InvalidAMIID.NotFound" in inbox.expect(LaunchFailed).reason
    cloud, inbox = account.master(images={"arm64": IMAGE})
    cloud.execute(LAUNCH)
    assert "name one in ec2.images.x86_64-gpu" in inbox.expect(LaunchFailed).reason
    assert account.calls("RunInstances") == []


# -- the record ----------------------------------------------------------------------------------


def test_a_launch_is_repeated_as_it_was_written_down(account: Account, tmp_path: Path) -> None:
    """The master dies once EC2 has the call, and starts again with other settings."""
    journal = SqlJournal.open(f"sqlite:///{tmp_path}/journal.db")
    first, _ = account.master(Deaf, launches=LaunchTable(journal.engine))
    first.execute(LAUNCH)
    while not account.made():
        pass
    first.close()
    journal.close()
    again = SqlJournal.open(f"sqlite:///{tmp_path}/journal.db")
    launches = LaunchTable(again.engine)
    assert launches.remembered(ONE, 1) is not None
    cloud, inbox = account.master(
        lambda client: Blind(client, 1),
        launches=launches,
        images={"arm64": IMAGE},
        user_data="other",
        root_volumes={"x86_64": 7},
        tags={"team": "x"},
    )
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert len(account.made()) == 1
    # It is in the listing now, so nobody will ask for it again.
    assert launches.remembered(ONE, 1) is None
    again.close()


def test_a_launch_that_no_listing_shows_is_found_by_its_record(account: Account) -> None:
    launches = ShortMemory()
    account.launch_by_hand(LAUNCH, "as of then")
    (made,) = account.made()
    cloud, inbox = account.master(launches=launches, user_data="as of now")
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    assert [it["InstanceId"] for it in account.made()] == [made["InstanceId"]]


def test_a_refused_launch_is_forgotten(account: Account) -> None:
    launches = ShortMemory()
    account.order("InsufficientInstanceCapacity")
    cloud, inbox = account.master(launches=launches)
    cloud.execute(LAUNCH)
    inbox.expect(LaunchFailed)
    listed(cloud, inbox)
    assert launches.remembered(ONE, 1) is None


# -- prices --------------------------------------------------------------------------------------


def test_spot_prices_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    aws = fake.Aws()
    account = Account(aws)
    place = f"{SPOT.type.name}@{SPOT.zone}"
    aws.set_spot_prices({place: "3.6720001"})
    _, inbox = account.master(catalog=CATALOG, spot_prices_s=0.05)
    assert inbox.expect(Quoted).prices == ((SPOT.id, 3_672_001),)
    aws.set_spot_prices({place: "3.5"})
    while inbox.expect(Quoted).prices != ((SPOT.id, 3_500_000),):
        pass
    account.close()
    aws.stop()


# -- the end -------------------------------------------------------------------------------------


def test_terminating_all_leaves_nothing(make_account: Callable[[], Account]) -> None:
    ours, theirs = make_account(), make_account()
    theirs.launch_by_hand(LAUNCH)
    cloud, inbox = ours.master()
    for instance in SEVERAL:
        cloud.execute(replace(LAUNCH, instance=instance))
    for _ in SEVERAL:
        inbox.expect(InstanceUp)
    # One of them the master does not know of.
    ours.launch_by_hand(replace(LAUNCH, instance=InstanceId("i-9")))
    cloud.terminate_all()
    assert ours.existing() == []
    assert len(theirs.existing()) == 1
