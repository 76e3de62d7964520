"""Launches that EC2 refuses for the account's network, zones and quotas, and Eva's words for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eva_master.adapters.ec2.offerings import take_snapshot
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import InstanceUp, LaunchFailed
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Price
from tests.fakes.aws.account import LAUNCH, OFFERING, Account
from tests.fakes.aws.service import AHEAD, IMAGE, REGION, Aws, shared
from tests.fakes.rpc.mailbox import WallClock

DAY_MS = 86_400_000
P, P_SPOT = "L-417A185B", "L-7212CCBC"


@pytest.fixture
def aws() -> Iterator[Aws]:
    yield shared()
    shared().be()


def subnet_of(ec2: Any, zone: str) -> str:
    answer = ec2.describe_subnets(
        Filters=[
            {"Name": "availability-zone", "Values": [zone]},
            {"Name": "default-for-az", "Values": ["true"]},
        ]
    )
    return str(answer["Subnets"][0]["SubnetId"])


def refused(account: Account, **settings: Any) -> str:
    """The reason of a launch with other settings, which EC2 refuses."""
    cloud, inbox = account.master(**settings)
    cloud.execute(LAUNCH)
    assert account.existing() == []
    return inbox.expect(LaunchFailed).reason


def network(ec2: Any, *zones: str, block: str = "10.9.0.0/16", size: int = 24) -> tuple[Any, str]:
    """A VPC's subnets by zone, and a group in it."""
    vpc = ec2.create_vpc(CidrBlock=block)["Vpc"]["VpcId"]
    start = block.rpartition(".0.0/")[0]
    subnets = {
        zone: ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"{start}.{number}.0/{size}", AvailabilityZone=zone
        )["Subnet"]["SubnetId"]
        for number, zone in enumerate(zones)
    }
    group = ec2.create_security_group(GroupName="workers", Description="workers", VpcId=vpc)
    return subnets, group["GroupId"]


def test_a_launch_goes_into_its_zones_subnet_and_its_group(account: Account) -> None:
    subnets, group = network(account.direct, f"{REGION}a", OFFERING.zone)
    cloud, inbox = account.master(subnets=subnets, security_groups=(group,))
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)
    (made,) = account.existing()
    assert made["SubnetId"] == subnets[OFFERING.zone]
    assert [each["GroupId"] for each in made["SecurityGroups"]] == [group]


def test_a_full_subnet_is_left_for_another_zones(account: Account) -> None:
    subnets, group = network(account.direct, OFFERING.zone, f"{REGION}a", size=28)
    full = subnets[OFFERING.zone]

    def free() -> int:
        (subnet,) = account.direct.describe_subnets(SubnetIds=[full])["Subnets"]
        return int(subnet["AvailableIpAddressCount"])

    while free():
        account.direct.create_network_interface(SubnetId=full)
    elsewhere = replace(OFFERING, zone=f"{REGION}a")
    cloud, inbox = account.master(
        subnets=subnets, security_groups=(group,), catalog=(OFFERING, elsewhere)
    )
    cloud.execute(LAUNCH)
    failed = inbox.expect(LaunchFailed)
    assert failed.reason.startswith("no capacity: InsufficientFreeAddressesInSubnet")
    assert failed.also == ()
    cloud.execute(replace(LAUNCH, instance=InstanceId("i-2"), offering=elsewhere))
    assert inbox.expect(InstanceUp).instance == "i-2"


def test_a_subnet_of_another_zone_is_refused(account: Account) -> None:
    elsewhere = subnet_of(account.direct, f"{REGION}a")
    assert "InvalidParameterValue" in refused(account, subnets={OFFERING.zone: elsewhere})


def test_a_group_of_another_network_is_refused(account: Account) -> None:
    vpc = account.direct.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = account.direct.create_security_group(GroupName="g", Description="g", VpcId=vpc)
    assert "InvalidParameter:" in refused(account, security_groups=[group["GroupId"]])
    assert "InvalidGroup.NotFound" in refused(account, security_groups=["sg-0123"])


def test_a_subnet_that_is_gone_is_refused(account: Account) -> None:
    assert "InvalidSubnetID.NotFound" in refused(account, subnets={OFFERING.zone: "subnet-0123"})


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"zone": f"{REGION}e"}, id="a zone that does not sell it"),
        pytest.param(
            {"type": replace(OFFERING.type, name=AHEAD)}, id="a type that is sold ahead alone"
        ),
    ],
)
def test_a_type_is_refused_where_and_how_it_is_not_sold(
    account: Account, changed: dict[str, Any]
) -> None:
    cloud, inbox = account.master()
    cloud.execute(replace(LAUNCH, offering=replace(OFFERING, **changed)))
    failed = inbox.expect(LaunchFailed)
    assert failed.reason.startswith("not sold in this zone: Unsupported")
    # Until the next look at what is sold.
    assert failed.retry_at - WallClock().now() > 6 * DAY_MS


def test_a_type_has_a_spot_price_only_if_it_is_sold_that_way(account: Account, aws: Aws) -> None:
    """AWS sells no t2.nano on the spot market, as in moto's copy of its lists."""
    cloud, inbox = account.master(images={"x86_64": IMAGE})
    machine = InstanceType("t2.nano", Family("t2"), Resources(0, 1_000, 512))
    spot = Offering(machine, Price(1), f"{REGION}a", Purchase.SPOT)
    cloud.execute(replace(LAUNCH, offering=spot))
    assert "Unsupported" in inbox.expect(LaunchFailed).reason
    aws.set_spot_prices({f"{name}@{REGION}a": "0.001" for name in ("t2.nano", "c7i.large")})
    names = ["t2.nano", "c7i.large"]
    sold = take_snapshot(account.settings, architectures=["x86_64"], names=names).types
    assert f"{REGION}a" in sold["c7i.large"].spot
    assert sold["t2.nano"].spot == {}


# Refusals by facts of the account: which other offerings each rules out, and its words.
SMALL = replace(OFFERING, type=InstanceType("t3.small", Family("t3"), Resources(0, 2_000, 2_048)))
ELSEWHERE = replace(OFFERING, zone=f"{REGION}a")
SPOT = replace(OFFERING, purchase=Purchase.SPOT)
REFUSALS = {
    "free plan": ({"free": True}, {ELSEWHERE, SPOT}, "account-plan-type PAID"),
    "policy": ({"forbidden": ["p3.8xlarge"]}, {ELSEWHERE, SPOT}, "(SCP)"),
    "quota": ({"quotas": {P: 8}}, {ELSEWHERE}, "is 8 vCPUs, 0 are in use"),
    "not sold": ({"unsold": ["p3.8xlarge"]}, set(), "not sold in this zone"),
}


@pytest.mark.parametrize("rule", REFUSALS)
def test_a_refusal_rules_out_what_the_account_would_refuse_as_well(
    account: Account, aws: Aws, rule: str
) -> None:
    facts, also, words = REFUSALS[rule]
    aws.be(**facts)
    catalog = (OFFERING, ELSEWHERE, SPOT, SMALL)
    images = {"x86_64": IMAGE, "x86_64-gpu": IMAGE}
    cloud, inbox = account.master(catalog=catalog, images=images)
    cloud.execute(LAUNCH)
    failed = inbox.expect(LaunchFailed)
    assert {*failed.also} == {offering.id for offering in also}
    assert words in failed.reason
    # A type that the account may have is launched.
    cloud.execute(replace(LAUNCH, instance=InstanceId("i-2"), offering=SMALL))
    assert inbox.expect(InstanceUp).instance == "i-2"


@pytest.mark.parametrize(
    ("market", "code"), [(Purchase.ON_DEMAND, P), (Purchase.SPOT, P_SPOT)], ids=["listed", "spot"]
)
def test_quotas_count_what_runs(account: Account, aws: Aws, market: Purchase, code: str) -> None:
    aws.be(quotas={code: 40})
    offering = replace(OFFERING, purchase=market)
    cloud, inbox = account.master(catalog=(offering,))
    first = replace(LAUNCH, offering=offering)
    cloud.execute(first)
    inbox.expect(InstanceUp)
    second = replace(first, instance=InstanceId("i-2"))
    cloud.execute(second)
    reason = inbox.expect(LaunchFailed).reason
    assert "is 40 vCPUs, 32 are in use, and p3.8xlarge needs 32" in reason
    assert len(account.existing()) == 1
