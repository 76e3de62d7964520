"""`eva deploy aws` looks at the account before anything is bought in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.server import PLAN_CALL
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws

STANDARD, G = "L-1216C47A", "L-DB2E81BA"
JOB = """
name: train
run: python train.py
tasks: {replicas}
resources: {{cpus: {cpus}, memory: 2GiB, gpus: {gpus}}}
"""


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def aws(account: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    account.publish(AMAZON_LINUX, OLD_IMAGE)
    yield account
    account.be()


@pytest.fixture
def cluster(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


def look(cluster: Deployer, *arguments: str) -> list[dict[str, Any]]:
    """The checks of a dry run."""
    cluster.bundles_named = False  # A look needs none.
    done = cluster.run("deploy", "aws", *USERS, "--dry-run", "--json", *arguments)
    assert done.exit_code == 0, done.output
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return checks


def wrong(checks: list[dict[str, Any]], name: str = "") -> list[dict[str, Any]]:
    return [c for c in checks if c["ok"] is False and name in ("", c["name"])]


def begun(cluster: Deployer) -> bool:
    stacks = cluster.aws.client("cloudformation").describe_stacks()["Stacks"]
    return any(
        stack["StackName"] == cluster.stack and stack["StackStatus"] != "DELETE_COMPLETE"
        for stack in stacks
    )


def test_an_account_that_has_all_that_it_takes(
    cluster: Deployer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = look(cluster)
    kinds = {check["name"] for check in checks}
    assert kinds == {
        *("clock", "plan", "zones", "image", "images", "quota", "launches", "permissions")
    }
    # The stand-in's quotas have 64 vCPUs each, of which a p4d takes 96.
    assert {check["name"] for check in wrong(checks)} <= {"quota", "images"}
    assert all(check["hint"] for check in wrong(checks))
    assert not begun(cluster)


def test_quotas_are_held_against_what_a_job_needs(cluster: Deployer, tmp_path: Path) -> None:
    cluster.aws.be(quotas={STANDARD: 5, G: 0})
    full = [check["hint"] for check in wrong(look(cluster), "quota")]
    assert any(G in hint and "request-service-quota-increase" in hint for hint in full)
    assert not any(STANDARD in hint for hint in full)

    def of(cpus: int, gpus: int, replicas: int = 1) -> dict[str, Any]:
        file = tmp_path / "job.yaml"
        file.write_text(JOB.format(cpus=cpus, gpus=gpus, replicas=replicas))
        (check,) = [c for c in look(cluster, "--for", str(file)) if c["name"] == "quota"]
        return check

    # Room is for 5, and a type of 8 is the smallest that holds 6.
    large = of(6, 0)
    assert (large["ok"], "the job train needs 8" in large["says"]) == (False, True)
    # A gang starts as a whole.
    assert "the job train needs 6" in of(2, 0, replicas=3)["says"]
    no_gpus = of(1, 1)
    assert no_gpus["ok"] is False
    assert "room for 0 vCPUs" in no_gpus["says"]
    assert "request-service-quota-increase" in no_gpus["hint"]
    cluster.aws.be(quotas={G: 8})
    assert of(1, 1)["ok"] is True


def test_a_job_file_with_a_fault_is_told(cluster: Deployer, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ncomand: y\n")
    done = cluster.run("deploy", "aws", *USERS, "--dry-run", "--for", str(file))
    assert done.exit_code == 2
    assert "comand" in done.output


def test_an_account_on_the_free_plan_can_buy_no_worker(cluster: Deployer) -> None:
    cluster.aws.be(free=True)
    (plan,) = wrong(look(cluster), "plan")
    assert "no worker can be bought" in plan["says"]
    assert "upgrade-account-plan" in plan["hint"]
    cluster.aws.be(denied=[PLAN_CALL])
    (plan,) = [check for check in look(cluster) if check["name"] == "plan"]
    assert plan["ok"] is None
    assert plan["says"].startswith("not checked: ")


def test_the_master_goes_where_its_type_is_sold(cluster: Deployer) -> None:
    """AWS sells no t3.small in us-east-1e, as in moto's copy of its lists."""
    cluster.deploy(*USERS)
    parameters = cluster.parameters()
    zones = [value for name, value in parameters.items() if name.endswith("Zone") and value]
    assert sorted(zones) == [f"{REGION}{letter}" for letter in "abcdf"]
    subnets = cluster.aws.client("ec2").describe_subnets(
        Filters=[{"Name": "vpc-id", "Values": [cluster.made()["Vpc"]]}]
    )["Subnets"]
    assert sorted(subnet["AvailabilityZone"] for subnet in subnets) == sorted(zones)
    user_data = cluster.user_data()
    for subnet in subnets:
        assert f"{subnet['AvailabilityZone']}: {subnet['SubnetId']}" in user_data
    assert cluster.proposed() == {}


def test_a_master_that_no_zone_sells_is_refused_before_anything_is_made(
    cluster: Deployer,
) -> None:
    done = cluster.run("deploy", "aws", "-y", *USERS, "--set", "MasterType=t9.small")
    assert done.exit_code == 2
    assert "t9.small, the master's type, is sold in 0 of the" in done.output
    assert "--set MasterType" in done.output


def test_subnets_where_something_is_not_sold_are_told(cluster: Deployer) -> None:
    """AWS sells neither t3.small nor g5 in us-east-1e, as in moto's copy of its lists."""
    ec2 = cluster.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24", AvailabilityZone=f"{REGION}e")[
        "Subnet"
    ]["SubnetId"]
    place = ("--subnet", subnet, "--set", "PublicMaster=true")
    told = {check["says"].split()[0]: check for check in wrong(look(cluster, *place), "zones")}
    assert f"the master is to be in {REGION}e" in told["t3.small"]["says"]
    assert "--set ThirdZone" in told["g5"]["hint"]
    done = cluster.run("deploy", "aws", "-y", *USERS, *place)
    assert done.exit_code == 1
    assert not begun(cluster)


def test_an_image_for_another_machine_is_refused(cluster: Deployer) -> None:
    (image,) = wrong(look(cluster, "--set", "MasterType=t4g.small"), "image")
    assert "is for x86_64, and t4g.small runs arm64" in image["says"]
    done = cluster.run("deploy", "aws", "-y", *USERS, "--set", "MasterType=t4g.small")
    assert done.exit_code == 1
    assert "t4g.small runs arm64" in done.output


def test_a_volume_that_is_smaller_than_its_image_is_told(cluster: Deployer, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("ec2: {root_volume: {x86_64: 8GiB}}\n")
    checks = wrong(look(cluster, "--settings", str(file)), "images")
    assert any("15 GiB" in check["says"] and "with 8 GiB" in check["says"] for check in checks)


def test_the_first_spot_instance_of_an_account_needs_a_role(
    cluster: Deployer, tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("ec2: {spot: {}}\n")
    (role,) = wrong(look(cluster, "--settings", str(file)), "spot role")
    assert "create-service-linked-role --aws-service-name spot.amazonaws.com" in role["hint"]
    cluster.aws.client("iam").create_role(
        RoleName="AWSServiceRoleForEC2Spot",
        Path="/aws-service-role/spot.amazonaws.com/",
        AssumeRolePolicyDocument="{}",
    )
    assert not wrong(look(cluster, "--settings", str(file)), "spot role")


def test_a_wrong_clock_is_told_before_anything_else(cluster: Deployer) -> None:
    cluster.aws.be(skew_s=900)
    done = cluster.run("deploy", "aws", *USERS, "--dry-run")
    assert done.exit_code == 1
    assert re.search(r"the clock of this machine is 90\d s ahead of AWS's", done.output)
    assert "chronyc" in done.output
    cluster.aws.be(skew_s=-100)
    (clock,) = [check for check in look(cluster) if check["name"] == "clock"]
    assert clock["ok"] is True
    assert re.search(r"(9\d|100) s behind AWS's", clock["says"])


def test_types_and_actions_that_a_policy_forbids_are_told(cluster: Deployer) -> None:
    cluster.aws.be(forbidden=["c7i.large", "iam:CreateRole"])
    checks = look(cluster)
    (launch,) = wrong(checks, "launches")
    assert launch["says"].startswith("c7i.large: ")
    assert "service control policy" in launch["says"]
    (permissions,) = wrong(checks, "permissions")
    assert "may not: iam:CreateRole" in permissions["says"]
    # A cluster that could not be made is not begun.
    done = cluster.run("deploy", "aws", "-y", *USERS)
    assert done.exit_code == 1
    assert "may not: iam:CreateRole" in done.output
    assert not begun(cluster)
    cluster.aws.be(denied=["SimulatePrincipalPolicy"])
    (permissions,) = [check for check in look(cluster) if check["name"] == "permissions"]
    assert permissions["ok"] is None
    assert permissions["says"].startswith("not checked: ")
