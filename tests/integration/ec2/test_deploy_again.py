"""`eva deploy aws` for a cluster that is there: what is not asked for stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.fakes.aws.deployer import AMAZON_LINUX, NEW_IMAGE, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def aws(account: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    # One session reads boto3's descriptions once.
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    account.publish(AMAZON_LINUX, OLD_IMAGE)
    account.publish("zones", f"{REGION}a,{REGION}b")
    account.fail_resources({})
    return account


@pytest.fixture
def there(aws: Aws, tmp_path: Path) -> Deployer:
    """A cluster, after which Amazon has published another image."""
    cluster = Deployer(aws, tmp_path)
    cluster.deploy(*USERS)
    aws.publish(AMAZON_LINUX, NEW_IMAGE)
    return cluster


def test_who_moves_changes_a_rule_and_nothing_else(there: Deployer) -> None:
    before = there.made()
    assert there.proposed("--users", "198.51.100.9/32") == {"MasterGroup": "False"}
    done = there.deploy("--users", "198.51.100.9/32")
    assert "UserCidr: 203.0.113.7/32 -> 198.51.100.9/32" in done.output
    assert there.made() == before
    assert there.master()["ImageId"] == OLD_IMAGE
    assert "stopped and started" not in {reason for *_, reason in there.events()}


def test_nothing_asked_for_is_nothing_changed(there: Deployer, aws: Aws) -> None:
    aws.publish("zones", f"{REGION}c,{REGION}a")
    assert there.proposed() == {}


def test_a_new_version_restarts_the_master_where_it_is(there: Deployer) -> None:
    before = there.made()
    (there.bundles / "eva-master-0.1.0-x86_64-1.tar").write_bytes(b"a newer one")
    # CloudFormation cannot rule out what is only true of disks that instances come with.
    assert there.proposed() == {"Master": "Conditional", "StateAttachment": "Conditional"}
    there.deploy()
    assert there.made() == before
    assert ("Master", "UPDATE_COMPLETE", "stopped and started") in there.events()


def test_workers_of_an_architecture_that_is_not_built_now_keep_their_bundle(
    there: Deployer,
) -> None:
    (there.bundles / "eva-worker-0.1.0-aarch64-3.tar").unlink()
    assert there.proposed() == {}


@pytest.mark.parametrize("asked", ["latest", NEW_IMAGE, f"ssm:{AMAZON_LINUX}"])
def test_another_image_is_booted_on_request_with_the_same_state_and_address(
    there: Deployer, asked: str
) -> None:
    before = there.made()
    done = there.deploy("--set", f"MasterImage={asked}")
    assert "another instance" in done.output
    after = there.made()
    assert {name for name in before if before[name] != after[name]} == {"Master", "StateAttachment"}
    assert there.master()["ImageId"] == NEW_IMAGE
    volumes = there.aws.client("ec2").describe_volumes(VolumeIds=[after["StateVolume"]])["Volumes"]
    assert [it["InstanceId"] for it in volumes[0]["Attachments"]] == [after["Master"]]
    assert not [event for event in there.events() if event[1].endswith("FAILED")]
    assert there.proposed() == {}


def test_an_image_that_does_not_exist_is_refused_before_anything_happens(there: Deployer) -> None:
    done = there.run("deploy", "aws", "-y", "--set", "MasterImage=ami-0123456789abcdef0")
    assert done.exit_code != 0
    assert "there is no image ami-0123456789abcdef0" in done.output
    assert there.master()["State"]["Name"] == "running"


def test_a_master_that_cannot_be_replaced_can_be_deployed_again(there: Deployer, aws: Aws) -> None:
    volume = there.made()["StateVolume"]
    there.say()
    aws.fail_resources({"Master": "there is no capacity for t3.small"})
    done = there.run("deploy", "aws", "-y", "--set", "MasterImage=latest")
    assert done.exit_code != 0
    assert "there is no capacity" in done.output
    assert "teardown" not in done.output
    aws.fail_resources({})
    there.deploy("--set", "MasterImage=latest")
    assert there.master()["ImageId"] == NEW_IMAGE
    assert there.made()["StateVolume"] == volume


def test_a_master_that_was_stopped_for_nothing_is_started_again(there: Deployer, aws: Aws) -> None:
    """The update that is to remove it fails, as another change of it does."""
    aws.fail_resources({"MasterGroup": "you are not permitted to do that"})
    asked = ("--set", "MasterImage=latest", "--users", "198.51.100.9/32")
    done = there.run("deploy", "aws", "-y", *asked)
    assert done.exit_code != 0
    assert "you are not permitted to do that" in done.output
    assert there.master()["State"]["Name"] == "running"
    assert there.master()["ImageId"] == OLD_IMAGE


def test_after_an_update_that_rolled_back_all_is_as_it_was(there: Deployer, aws: Aws) -> None:
    before = there.made()
    aws.fail_resources({"MasterGroup": "you are not permitted to do that"})
    done = there.run("deploy", "aws", "-y", "--users", "198.51.100.9/32")
    assert done.exit_code != 0
    assert "you are not permitted to do that" in done.output
    assert "the old cluster is as it was" in done.output
    assert "teardown" not in done.output
    assert there.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert there.made() == before
    # The next one is not taken for a failure because the last one was.
    aws.fail_resources({})
    there.deploy("--users", "198.51.100.9/32")
    # And when it fails, it says why itself.
    aws.fail_resources({"MasterGroup": "of another reason"})
    again = there.run("deploy", "aws", "-y", *USERS)
    assert "of another reason" in again.output


def test_a_creation_that_rolled_back_left_nothing_worth_keeping(aws: Aws, tmp_path: Path) -> None:
    cluster = Deployer(aws, tmp_path)
    aws.fail_resources({"Bucket": "too many buckets"})
    done = cluster.run("deploy", "aws", "-y", *USERS)
    assert done.exit_code != 0
    assert "too many buckets" in done.output
    assert f"eva teardown --cluster {cluster.cluster}" in done.output
    aws.fail_resources({})
    again = cluster.run("deploy", "aws", "-y", *USERS)
    assert again.exit_code != 0
    assert f"eva teardown --cluster {cluster.cluster}" in again.output
    assert cluster.run("teardown", "-y").exit_code == 0
    cluster.deploy(*USERS)


def test_a_cluster_is_not_moved_away_from_its_state(there: Deployer, aws: Aws) -> None:
    before = there.made()
    ec2 = aws.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    done = there.run("deploy", "aws", "-y", "--subnet", subnet, "--set", "PublicMaster=true")
    assert done.exit_code != 0
    assert "cannot move" in done.output
    done = there.run("deploy", "aws", "-y", "--set", f"Zone={REGION}c")
    assert done.exit_code != 0
    assert "throw" in done.output
    assert "StateVolume" in done.output
    assert there.made() == before
    assert there.status() == "CREATE_COMPLETE"


def test_the_master_that_is_waited_for_is_the_new_one(there: Deployer) -> None:
    """What the old one has stored says nothing about the new one."""
    (there.bundles / "eva-master-0.1.0-x86_64-1.tar").write_bytes(b"one that does not start")
    from eva_master.app.clouds.ec2 import deployment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment, "_CLIENT_WAIT_S", 0.1)
        done = there.run("deploy", "aws", "-y")
    assert done.exit_code != 0
    assert "the master has not started" in done.output
    assert there.made()["Master"] in done.output


def test_what_it_costs_is_shown_before_anything_happens(aws: Aws, tmp_path: Path) -> None:
    cluster = Deployer(aws, tmp_path)
    done = cluster.run("deploy", "aws", *USERS, "--dry-run")
    assert done.exit_code == 0, done.output
    # 730 hours of a t3.small and of an address, 36 GiB of gp3, a GB of files, one of snapshots.
    for words in ("$15.18", "the master, a t3.small", "$2.88", "$3.65", "$21.79", "together"):
        assert words in done.output
    cluster.deploy(*USERS)
    larger = cluster.run("deploy", "aws", "--set", "MasterType=c7i.large", "--dry-run")
    # 0.08925 * 730 in place of 15.184.
    assert "$71.76" in larger.output
    assert "($21.79 now)" in larger.output
