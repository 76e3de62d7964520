"""`eva deploy aws` of wheels alone: it uploads what is installed, and a worker boots from that."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import until
from tests.e2e.conftest import Ec2s
from tests.fakes.aws.deployer import USERS, Deployer
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws
from tests.fakes.installed import Installed, built
from tests.fakes.patience import DEADLINE_S

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.waits, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("in stalled") / "venv")


@pytest.fixture
def aws() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.stop()


def deploy(installed: Installed, aws: Aws, account: Deployer, home: Path) -> str:
    """Deploy as a user in an empty directory with an environment of wheels; what is told."""
    state, directory = home / "state", home / "empty"
    directory.mkdir()
    variables = {name.upper(): value for name, value in CREDENTIALS.items()}
    process = subprocess.Popen(
        [
            *(installed.eva, "deploy", "aws", "-y", *USERS, "--cluster", account.cluster),
            *("--region", REGION, "--endpoint", aws.url, "--poll-s", "0.1"),
            *("--client-file", home / "client.yaml"),
        ],
        cwd=directory,
        env=installed.environment(XDG_STATE_HOME=str(state), **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # The stand-in boots no master: a parameter says what a master of these bundles would say.
        made = state / "eva" / "bundles"
        until(
            lambda: process.poll() is not None or list(made.glob("[0-9a-f]*/eva-master-*.tar")),
            "the bundles are made",
        )
        if process.poll() is None:
            (account.bundles,) = made.iterdir()
            account.say()
        told, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, told
    assert list(directory.iterdir()) == []
    return told


def test_a_worker_boots_from_the_bundle_that_a_user_of_wheels_has_deployed(
    installed: Installed, aws: Aws, make_ec2: Ec2s, tmp_path: Path
) -> None:
    account = Deployer(aws, tmp_path)
    told = deploy(installed, aws, account, tmp_path)
    assert "Making the bundle of a worker (x86_64) of the packages installed here" in told
    stated = yaml.safe_load(account.parameters()["WorkerBundles"])["x86_64"]
    place, _, digest = stated.partition("#sha256=")
    uploaded = tmp_path / place.rpartition("/")[2]
    bucket = account.made()["Bucket"]
    aws.client("s3").download_file(bucket, f"bundles/{uploaded.name}", str(uploaded))
    assert hashlib.sha256(uploaded.read_bytes()).hexdigest() == digest
    with tarfile.open(uploaded) as tar:
        own = {wheel.name for wheel in built()} & {*tar.getnames()}
    assert {name.partition("-")[0] for name in own} >= {"eva_worker", "eva_wire", "eva_iterator"}
    # An instance that has nothing but its user data and the bucket runs a job with it.
    cluster = make_ec2(worker=uploaded)
    job = cluster.submit("one")
    until(lambda: cluster.task(job).generation, "the job runs, and has a checkpoint stored")
    cluster.finish(job)
    cluster.until_ended(job)
    cluster.until_empty()
