"""`eva deploy aws` shows the console of a master that does not start, as EC2 has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from eva_master.app.clouds.ec2 import deployment
from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.instances.consoles import MOST_BYTES
from tests.fakes.aws.service import CREDENTIALS, Aws

REFUSAL = "eva: the master is not started: vol-1 is empty"


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    server.publish(AMAZON_LINUX, OLD_IMAGE)
    yield server
    server.stop()


@pytest.fixture
def cluster(account: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployer:
    """A cluster whose master is not waited for."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    return Deployer(account, tmp_path)


def heard(cluster: Deployer, *arguments: str) -> list[str]:
    """Lines of the console that a deployment shows."""
    done = cluster.run("deploy", "aws", "-y", *arguments)
    assert done.exit_code == 1
    _, heading, rest = done.output.partition(
        f"The console of {cluster.made()['Master']} says last:"
    )
    assert heading, done.output
    return [line.strip() for line in rest.splitlines() if line.startswith("  ")]


# t2 is not built on Nitro: its console is what EC2 posted of it, if it has posted any.
@pytest.mark.parametrize(("machine", "latest"), [("t3.small", True), ("t2.small", False)])
def test_the_newest_output_is_shown_that_the_type_lets_read(
    cluster: Deployer, machine: str, latest: bool
) -> None:
    assert heard(cluster, *USERS, "--set", f"MasterType={machine}") == ["nothing"]
    aws, master = cluster.aws, cluster.made()["Master"]
    aws.write_on_console(master, "Booting\r\n", post=True)
    aws.write_on_console(master, f"{REFUSAL}\r\n", post=False)
    assert heard(cluster) == ["Booting", REFUSAL] if latest else ["Booting"]


def test_a_console_cannot_change_the_terminal(cluster: Deployer) -> None:
    assert heard(cluster, *USERS) == ["nothing"]
    aws, master = cluster.aws, cluster.made()["Master"]
    aws.write_on_console(master, "x" * 2 * MOST_BYTES + "\n")
    aws.write_on_console(master, f"\x1b[2J\x1b]0;title\x07{REFUSAL}\n")
    first, last = heard(cluster)
    assert set(first) == {"x"}
    assert last.startswith("[2J")
    assert REFUSAL in last


def test_an_endless_log_in_the_bucket_is_not_read_to_its_end(cluster: Deployer) -> None:
    cluster.run("deploy", "aws", "-y", *USERS)
    s3, bucket = cluster.aws.client("s3"), cluster.made()["Bucket"]
    endless = "x\n" * 5_000_000 + "the end\n"
    for text, shown in (f"{REFUSAL}\x1b[2J", f"  {REFUSAL} [2J\n"), (endless, "  x\n"):
        s3.put_object(Bucket=bucket, Key="objects/boots/master.log", Body=text.encode())
        done = cluster.run("deploy", "aws", "-y")
        assert shown in done.output
        assert "the end\n" not in done.output


def test_the_stand_in_has_no_output_at_first_and_latest_of_nitro_alone(account: Aws) -> None:
    ec2 = account.client("ec2")
    ids = {}
    for name in ("t3.small", "t2.small"):
        made = ec2.run_instances(ImageId=OLD_IMAGE, InstanceType=name, MinCount=1, MaxCount=1)
        ids[name] = made["Instances"][0]["InstanceId"]
    assert "Output" not in ec2.get_console_output(InstanceId=ids["t2.small"])
    assert "Output" not in ec2.get_console_output(InstanceId=ids["t3.small"], Latest=True)
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        ec2.get_console_output(InstanceId=ids["t2.small"], Latest=True)
    account.write_on_console(ids["t3.small"], "a" + "b" * MOST_BYTES)
    assert ec2.get_console_output(InstanceId=ids["t3.small"])["Output"] == "b" * MOST_BYTES
