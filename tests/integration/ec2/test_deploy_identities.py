"""Operators of a deployed cluster, and a second laptop that connects to it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import yaml
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_master.app.clouds.ec2 import deployment
from tests.fakes.aws.deployer import USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, DEPLOYER, REGION, Aws

pytestmark = pytest.mark.long
DORA = {"arn": DEPLOYER, "user": "deployer", "role": "operator"}


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def cluster(account: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployer:
    """One that is deployed."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    session = boto3.session.Session()
    with monkeypatch.context() as patch:
        patch.setattr(boto3.session, "Session", lambda: session)
        made = Deployer(account, tmp_path)
        made.deploy(*USERS)
    return made


def become(aws: Aws, monkeypatch: pytest.MonkeyPatch, arn: str) -> None:
    """Go on with credentials of somebody else's."""
    key, secret = f"AKIA{uuid.uuid4().hex[:16].upper()}", uuid.uuid4().hex
    aws.know({key: {"arn": arn, "secret": secret}})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)


def operators(cluster: Deployer) -> object:
    return json.loads(cluster.parameters()["Operators"])


def connect(cluster: Deployer, name: str = "") -> Result:
    place = ("--region", REGION, "--endpoint", cluster.aws.url)
    return CliRunner().invoke(
        main, ["connect", "aws", "--cluster", name or cluster.cluster, *place]
    )


def test_whoever_deploys_is_an_operator_and_nobody_else(
    cluster: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operators(cluster) == [DORA]
    assert f'identities: [{{"arn": "{DEPLOYER}"' in cluster.user_data()
    become(cluster.aws, monkeypatch, "arn:aws:sts::123456789012:assumed-role/Admin/x@example.org")
    admin = {"arn": "arn:aws:iam::123456789012:role/Admin", "user": "Admin", "role": "operator"}
    done = cluster.deploy()
    assert "Operators: " in done.output
    assert operators(cluster) == [DORA, admin]
    # Another session of the role is no other operator.
    become(cluster.aws, monkeypatch, "arn:aws:sts::123456789012:assumed-role/Admin/other")
    assert cluster.proposed() == {}
    cluster.deploy("--set", "Operators=[]")
    assert operators(cluster) == [admin]


def test_a_new_operator_waits_for_the_master_that_knows_them(
    cluster: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(cluster.aws, monkeypatch, "arn:aws:iam::123456789012:user/eve")
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    done = cluster.run("deploy", "aws", "-y")
    assert done.exit_code != 0
    assert "the master has not started" in done.output


@pytest.mark.parametrize("operators", ["{", '[{"arn": "arn:aws:iam::1:group/a"}]', "[1]", "1"])
def test_operators_that_are_none_are_refused(cluster: Deployer, operators: str) -> None:
    done = cluster.run("deploy", "aws", "-y", "--set", f"Operators={operators}")
    assert done.exit_code != 0
    assert "Operators cannot be read" in done.output


def test_identities_of_the_settings_are_checked_before_anything_happens(
    cluster: Deployer, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("ec2: {identities: [{arn: 'arn:aws:iam::123456789012:user/ana'}]}\n")
    done = cluster.run("deploy", "aws", "-y", "--settings", str(file))
    assert done.exit_code != 0
    assert "needs one owner" in done.output


def test_a_second_laptop_connects_with_nothing_but_its_credentials(
    cluster: Deployer, tmp_path: Path
) -> None:
    done = connect(cluster)
    assert done.exit_code == 0, done.output
    file = tmp_path / "state/eva" / f"{cluster.cluster}.yaml"
    assert f"export EVA_CONFIG={file}" in done.output
    settings = yaml.safe_load(file.read_text())
    assert settings == yaml.safe_load(cluster.client_file.read_text()) | {
        "ca_file": str(file.with_suffix(".pem"))
    }
    assert settings["identity"] == "aws"
    assert file.with_suffix(".pem").read_text() == "-----BEGIN CERTIFICATE-----"


def test_a_cluster_that_is_not_there_or_of_an_earlier_release_is_named(cluster: Deployer) -> None:
    nothing = connect(cluster, "nothing-like-it")
    assert nothing.exit_code == 1
    assert "there is no cluster nothing-like-it" in nothing.output
    cluster.aws.client("ssm").put_parameter(
        Name=f"/eva/{cluster.cluster}/client",
        Value=json.dumps({"token": "eva_secret", "ca": "CA", "made_of": []}),
        Type="SecureString",
        Overwrite=True,
    )
    earlier = connect(cluster)
    assert earlier.exit_code == 2
    assert f"eva deploy aws --cluster {cluster.cluster}" in earlier.output
    assert "eva_secret" not in earlier.output
