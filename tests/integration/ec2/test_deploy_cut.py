"""`eva deploy aws` that was cut short is finished by calling it again, on any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from eva_client import settings as client_settings
from eva_master.adapters.bundling import installed_wheels
from eva_master.app.clouds.ec2 import deployment
from tests.fakes.aws.deployer import AMAZON_LINUX, NEW_IMAGE, OLD_IMAGE, USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws

_READS = ("Describe", "Get", "Head", "List", "Simulate", "RunInstances")
"""Calls that change nothing: a deployment launches nothing itself, but for DryRun."""
FIRST = ("CreateChangeSet", "ExecuteChangeSet", "PutObject", "PutObject", "PutObject", "PutObject")
"""Calls of a first deployment that change something, in order."""
REPLACEMENT = (
    "CreateChangeSet",
    *("DeleteObject", "DeleteChangeSet", "StopInstances", "CreateChangeSet", "ExecuteChangeSet"),
    *("CreateChangeSet", "ExecuteChangeSet"),
)
"""Calls of a deployment that puts another instance in the master's place."""


class Cut(Exception):
    """The caller is dead: none of its later calls is made either."""


class Line:
    """The way to AWS, which is cut after a call that changes something.

    The state of the account does not depend on calls that only look, which are not counted.
    """

    def __init__(self, session: Any) -> None:
        self.made: list[str] = []
        self.cut_after = 1_000
        self._dead = False
        self.session = session
        session.events.register_first("before-send", self._send)
        session.events.register_first("response-received", self._answer)

    def restore(self, cut_after: int = 1_000) -> None:
        self.made, self.cut_after, self._dead = [], cut_after, False

    def _send(self, **_: Any) -> None:
        if self._dead:
            raise Cut

    def _answer(self, event_name: str, **_: Any) -> None:
        action = event_name.rpartition(".")[2]
        if not self._dead and not action.startswith(_READS):
            self.made.append(action)
            if len(self.made) == self.cut_after:
                self._dead = True
                raise Cut


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    session = boto3.session.Session()
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    return Line(session)


@pytest.fixture
def aws(account: Aws, line: Line) -> Iterator[Aws]:
    account.publish(AMAZON_LINUX, OLD_IMAGE)
    account.publish("zones", f"{REGION}a,{REGION}b")
    account.slow_stacks(3)
    yield account
    account.slow_stacks(0)


@pytest.fixture
def cluster(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


def own_settings(home: Path) -> tuple[str, str]:
    file = home / "own.yaml"
    file.write_text("policy: {name: fifo}\n")
    return "--settings", str(file)


def check_whole(cluster: Deployer, line: Line) -> None:
    """There is one cluster, with all that its master needs, and the file that leads to it."""
    line.restore()
    resources, parameters = cluster.made(), cluster.parameters()
    bucket = cluster.aws.client("s3").list_objects_v2(Bucket=resources["Bucket"])["Contents"]
    stored = {entry["Key"] for entry in bucket}
    workers = yaml.safe_load(parameters["WorkerBundles"]).values()
    needed = [parameters["MasterBundle"], parameters["Settings"], *workers]
    needed = [place.removeprefix("s3://BUCKET/").partition("#")[0] for place in needed if place]
    assert stored == {*needed}
    client = yaml.safe_load(cluster.client_file.read_text())
    assert (client["address"], client["identity"]) == (cluster.address, "aws")
    assert Path(client["ca_file"]).is_file()
    assert cluster.master()["State"]["Name"] == "running"
    filters = [{"Name": "subnet-id", "Values": [resources["SubnetA"]]}]
    reservations = cluster.aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
    alive = [
        instance["InstanceId"]
        for reservation in reservations
        for instance in reservation["Instances"]
        if instance["State"]["Name"] != "terminated"
    ]
    assert alive == [resources["Master"]]


def test_a_stack_that_was_proposed_alone_is_removed(cluster: Deployer, line: Line) -> None:
    line.restore(cut_after=1)
    assert isinstance(cluster.run("deploy", "aws", "-y", *USERS).exception, Cut)
    line.restore()
    assert cluster.status() == "REVIEW_IN_PROGRESS"
    done = cluster.run("teardown", "-y")
    assert "there is no stack" in done.output
    with pytest.raises(ClientError, match="does not exist"):
        cluster.status()


@pytest.mark.parametrize("cut", range(1, len(FIRST) + 1))
def test_a_first_deployment_is_finished_by_another_call(
    cut: int, cluster: Deployer, line: Line, tmp_path: Path
) -> None:
    settings = own_settings(tmp_path)
    packed = deployment.own_settings.packed(tmp_path / "own.yaml", REGION, [f"{REGION}a"])
    cluster.say(deployment._stated(packed))
    line.restore(cut)
    done = cluster.run("deploy", "aws", "-y", *USERS, *settings)
    assert isinstance(done.exception, Cut), done.output
    assert tuple(line.made) == FIRST[:cut]
    line.restore()
    again = cluster.run("deploy", "aws", "-y", *USERS, *settings)
    assert again.exit_code == 0, again.output
    # Nothing is done twice, and a look at a stack that is as it should be leaves nothing.
    rest = ("CreateChangeSet", "DeleteChangeSet", *FIRST[cut:]) if cut > 1 else FIRST
    assert tuple(line.made) == rest
    check_whole(cluster, line)


@pytest.mark.parametrize("write", [1, 2])
def test_a_client_file_that_was_not_written_is_written_by_another_call(
    write: int, cluster: Deployer, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.say()
    writes = []
    write_file = client_settings.write_file

    def cut(*arguments: Any, **options: Any) -> None:
        writes.append(arguments)
        if len(writes) == write:
            raise Cut
        write_file(*arguments, **options)

    monkeypatch.setattr(client_settings, "write_file", cut)
    assert isinstance(cluster.run("deploy", "aws", "-y", *USERS).exception, Cut)
    assert not cluster.client_file.exists()
    line.restore()
    assert cluster.run("deploy", "aws").exit_code == 0
    assert line.made == ["CreateChangeSet", "DeleteChangeSet"]
    check_whole(cluster, line)


def test_a_master_that_was_not_waited_for_is_waited_for_by_another_call(
    cluster: Deployer, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    done = cluster.run("deploy", "aws", "-y", *USERS)
    assert "the master has not started" in done.output
    # Nothing to change is not the end of it.
    assert "the master has not started" in cluster.run("deploy", "aws", "-y").output
    cluster.say()
    assert cluster.run("deploy", "aws", "-y").exit_code == 0
    check_whole(cluster, line)


def test_a_master_that_does_not_start_is_heard(
    cluster: Deployer, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    mute = cluster.run("deploy", "aws", "-y", *USERS)
    assert mute.exit_code == 1
    master, bucket = cluster.made()["Master"], cluster.made()["Bucket"]
    assert f"The console of {master} says last" in mute.output
    session = f"aws ssm start-session --region {REGION} --target {master}"
    assert f"--set SessionManager=true, then: {session}" in mute.output
    words = "eva: not yet\nerror: UnauthorizedOperation: not you\n"
    s3 = cluster.aws.client("s3")
    s3.put_object(Bucket=bucket, Key="objects/boots/master.log", Body=words.encode())
    done = cluster.run("deploy", "aws", "-y", "--set", "SessionManager=true")
    # An update begins another boot, which is not to be blamed for the last one's words.
    assert "UnauthorizedOperation" not in done.output
    assert f"hint: {session}" in done.output
    s3.put_object(Bucket=bucket, Key="objects/boots/master.log", Body=words.encode())
    again = cluster.run("deploy", "aws", "-y")
    assert again.exit_code == 1
    assert "  error: UnauthorizedOperation: not you\n" in again.output
    assert "The console" not in again.output


@pytest.mark.long
@pytest.mark.parametrize("again", [("--set", "MasterImage=latest"), ()])
@pytest.mark.parametrize("cut", range(1, len(REPLACEMENT) + 1))
def test_a_replacement_of_the_master_is_finished_by_another_call(
    cut: int, again: tuple[str, ...], cluster: Deployer, line: Line, aws: Aws
) -> None:
    cluster.deploy(*USERS)
    before = cluster.made()
    aws.publish(AMAZON_LINUX, NEW_IMAGE)
    line.restore(cut)
    done = cluster.run("deploy", "aws", "-y", "--set", "MasterImage=latest")
    assert isinstance(done.exception, Cut), done.output
    assert tuple(line.made) == REPLACEMENT[:cut]
    line.restore()
    finished = cluster.run("deploy", "aws", "-y", *again)
    assert finished.exit_code == 0, finished.output
    after = cluster.made()
    kept = ("Bucket", "MasterAddress", "MasterInterface", "StateVolume")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    removed = cut > REPLACEMENT.index("ExecuteChangeSet")
    image = NEW_IMAGE if again or removed else OLD_IMAGE
    assert cluster.master()["ImageId"] == image
    check_whole(cluster, line)


class Failing:
    """AWS that fails the first call of a kind that it has not failed before."""

    def __init__(self, session: Any, tried: list[str]) -> None:
        self.failed = False
        self._tried = tried
        self._events = session.events
        self._events.register_last("before-send", self._send)

    def _send(self, event_name: str, request: Any, **_: Any) -> AWSResponse | None:
        action = event_name.rpartition(".")[2]
        if self.failed or action in self._tried:
            return None
        self.failed = True
        self._tried.append(action)
        answer = AWSResponse(request.url, 503, {}, None)
        answer._content = b""
        return answer

    def mend(self) -> None:
        self._events.unregister("before-send", self._send)


@pytest.mark.long
def test_whichever_call_fails_once_another_deployment_finishes(
    line: Line, aws: Aws, tmp_path: Path
) -> None:
    """The first call of each kind."""
    aws.slow_stacks(0)
    tried: list[str] = []
    codes = set()
    while True:
        home = tmp_path / str(len(tried))
        home.mkdir()
        cluster = Deployer(aws, home)
        cluster.say()
        failing = Failing(line.session, tried)
        codes.add(cluster.run("deploy", "aws", "-y", *USERS).exit_code)
        failing.mend()
        if not failing.failed:
            break
        again = cluster.run("deploy", "aws", "-y", *USERS)
        assert again.exit_code == 0, (tried[-1], again.output)
        check_whole(cluster, line)
    assert codes == {0, 1, 2}
    assert {*FIRST, "DescribeStacks", "GetParameter", "HeadObject"} <= {*tried}


def test_settings_that_never_arrived_are_asked_for(
    cluster: Deployer, line: Line, tmp_path: Path
) -> None:
    line.restore(FIRST.index("PutObject"))
    cluster.run("deploy", "aws", "-y", *USERS, *own_settings(tmp_path))
    line.restore()
    done = cluster.run("deploy", "aws", "-y")
    assert done.exit_code == 2
    assert "the bucket lacks the cluster's settings" in done.output
    assert "--settings FILE" in done.output


class Laptop:
    """A machine with the project installed, rather than a checkout with bundles."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
        self.made = 0
        self.content = content
        self._home = home
        monkeypatch.setattr(deployment, "fingerprint", lambda: self.content)
        monkeypatch.setattr(deployment, "made_of_installed", self._make)

    def _make(self, *_: object) -> Path:
        """Like bundles of two machines, these differ in pip's version."""
        self.made += 1
        directory = self._home / f"made-{self.content}-{self.made}"
        directory.mkdir()
        for role in ("master", "worker"):
            file = directory / f"eva-{role}-0.1.0-x86_64-{self.made}.tar"
            file.write_text(f"{role} of {self.content} with pip {self.made}")
        return directory


def deploy_installed(cluster: Deployer, *arguments: str) -> Any:
    """Deploy without a directory of bundles, with a master that starts at once."""
    cluster.bundles_named = False
    return cluster.run("deploy", "aws", *arguments)


def say_what_the_stack_has(cluster: Deployer) -> None:
    parameters = cluster.parameters()
    made_of = [parameters[name] for name in ("MasterBundle", "Settings", "Operators")]
    said = {"address": cluster.address, "ca": "CA", "made_of": made_of}
    cluster.aws.client("ssm").put_parameter(
        Name=f"/eva/{cluster.cluster}/client",
        Value=json.dumps(said),
        Type="SecureString",
        Overwrite=True,
    )


def test_another_machine_with_the_same_release_gets_the_client_file_and_changes_nothing(
    cluster: Deployer, line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "dist")
    laptop = Laptop(tmp_path, monkeypatch, "release 1")
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    deploy_installed(cluster, "-y", *USERS)
    assert laptop.made == 1
    say_what_the_stack_has(cluster)
    line.restore()
    done = deploy_installed(cluster)
    assert done.exit_code == 0, done.output
    assert laptop.made == 1
    assert line.made == ["CreateChangeSet", "DeleteChangeSet"]
    check_whole(cluster, line)
    # A newer release is one to deploy; a look at that makes no bundle.
    laptop.content = "release 2"
    assert "Master" in deploy_installed(cluster, "--dry-run").output
    assert laptop.made == 1
    deploy_installed(cluster, "-y")
    assert laptop.made == 2
    # A checkout without bundles has none to offer, and keeps what there is.
    laptop.content = ""
    say_what_the_stack_has(cluster)
    kept = deploy_installed(cluster, "-y")
    assert kept.exit_code == 0, kept.output
    assert "keeps its bundles" in kept.output


def test_another_machine_finishes_what_was_cut_before_its_bundles_arrived(
    cluster: Deployer, line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "dist")
    laptop = Laptop(tmp_path, monkeypatch, "release 1")
    monkeypatch.setattr(deployment, "_CLIENT_WAIT_S", 0.0)
    line.restore(FIRST.index("PutObject"))
    assert isinstance(deploy_installed(cluster, "-y", *USERS).exception, Cut)
    line.restore()
    deploy_installed(cluster, "-y")
    assert laptop.made == 2
    say_what_the_stack_has(cluster)
    assert deploy_installed(cluster, "-y").exit_code == 0
    check_whole(cluster, line)


def test_a_checkout_is_not_told_by_its_files() -> None:
    assert installed_wheels.fingerprint() == ""
