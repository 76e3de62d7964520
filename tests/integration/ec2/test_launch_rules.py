"""Launches that EC2 refuses for the account's network, zones and quotas, and Eva's words for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eva_master.model.catalog import Purchase
from eva_master.model.events import InstanceUp, LaunchFailed
from eva_wire.values.ids import InstanceId
from tests.fakes.aws.account import LAUNCH, OFFERING, Account
from tests.fakes.aws.service import AHEAD, REGION, Aws, shared

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


def test_a_launch_into_its_zones_subnet_is_taken(account: Account) -> None:
    zone = OFFERING.zone
    cloud, inbox = account.master(subnets={zone: subnet_of(account.direct, zone)})
    cloud.execute(LAUNCH)
    inbox.expect(InstanceUp)


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
    assert "Unsupported" in inbox.expect(LaunchFailed).reason


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
