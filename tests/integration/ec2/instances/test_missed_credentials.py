"""A credentials service that misses an answer costs a master and a worker one try."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from configparser import RawConfigParser
from dataclasses import replace
from pathlib import Path

import botocore.session
import pytest

from eva_master.adapters.ec2 import Ec2Cloud
from eva_master.model.actions import TerminateInstance
from eva_master.model.events import InstanceGone, InstanceUp
from eva_wire.values.ids import InstanceId
from eva_worker.errors import StoreUnavailable
from eva_worker.files.beneath import File
from eva_worker.files.objects import Objects
from eva_worker.files.parts import PART
from tests.fakes.aws.account import LAUNCH, QUICK, USER_DATA, Account
from tests.fakes.aws.instances.credentials import Miss
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.metadata import FakeMetadata
from tests.fakes.aws.service import CREDENTIALS, shared
from tests.fakes.rpc.mailbox import Mailbox, WallClock

SYSTEMD = Path(__file__).parents[4] / "deploy" / "systemd"
ROLE = "worker-of-a-test"


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeMetadata]:
    """The only place where this process finds credentials."""
    server = FakeMetadata()
    server.give(ROLE)
    for name in CREDENTIALS:
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url,
        "AWS_METADATA_ENDPOINT": server.url,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield server
    server.stop()


@pytest.fixture
def account(metadata: FakeMetadata) -> Iterator[Account]:
    made = Account(shared())
    yield made
    made.close()


@contextlib.contextmanager
def cloud_of(account: Account) -> Iterator[tuple[Ec2Cloud, Mailbox]]:
    """A master's cloud whose clients are boto3's own."""
    inbox = Mailbox()
    cloud = Ec2Cloud(
        inbox,
        WallClock(),
        account.settings,
        user_data=lambda _: USER_DATA,
        launch_records=ShortMemory(),
        settle_s=0.2,
        threads=1,
        allowance=QUICK,
    )
    yield cloud, inbox
    cloud.close()


@pytest.mark.parametrize("miss", list(Miss))
def test_a_master_launches_and_terminates_all_the_same(
    metadata: FakeMetadata, account: Account, miss: Miss
) -> None:
    metadata.missed = [miss]
    with cloud_of(account) as (cloud, inbox):
        cloud.execute(LAUNCH)
        inbox.expect(InstanceUp)
        cloud.execute(TerminateInstance(LAUNCH.instance))
        inbox.expect(InstanceGone)
    assert account.existing() == []
    assert metadata.missed == []


def test_credentials_that_expire_meanwhile_refuse_no_launch(
    metadata: FakeMetadata, account: Account
) -> None:
    """A refusal for lack of permission would rule every offering out for minutes."""
    metadata.missed = [Miss.EXPIRED] * 2
    with cloud_of(account) as (cloud, inbox):
        for number in range(3):
            cloud.execute(replace(LAUNCH, instance=InstanceId(f"i-{number}")))
        for _ in range(3):
            inbox.expect(InstanceUp)
    assert {*account.calls("RunInstances")} == {""}


@pytest.mark.parametrize("miss", [Miss.ERROR, Miss.EXPIRED])
async def test_a_workers_files_arrive_all_the_same(
    metadata: FakeMetadata, tmp_path: Path, miss: Miss
) -> None:
    url = shared().make_bucket()
    objects = Objects(url, uploads=tmp_path / "uploads")
    large = tmp_path / "large"
    large.write_bytes(os.urandom(PART + 1))
    for key, size in {"small": 1, "large": PART + 1}.items():
        metadata.missed = [miss]
        for _ in range(2):
            with contextlib.suppress(StoreUnavailable), File.at(large) as file:
                await objects.put(key, b"1" if key == "small" else file)
        assert await objects.size(key) == size
    assert metadata.missed == []


@pytest.mark.parametrize("unit", ["eva-master", "eva-worker"])
def test_the_units_have_a_client_ask_again(
    metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(SYSTEMD / f"{unit}.service")
    for pair in shlex.split(parser["Service"]["Environment"]):
        name, _, value = pair.partition("=")
        monkeypatch.setenv(name, value)
    metadata.missed = [Miss.ERROR] * 4
    credentials = botocore.session.Session().get_credentials()
    assert credentials is not None
    assert credentials.access_key == ROLE
