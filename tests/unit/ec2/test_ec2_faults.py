"""Refusals of EC2: the kind of each, and the offerings that it rules out."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from eva_master.adapters.catalog.market import PurchaseTerms, TypeFilter, on_sale
from eva_master.adapters.catalog.snapshot import CatalogSnapshot, SoldType
from eva_master.adapters.ec2 import Ec2Settings
from eva_master.adapters.ec2.client import Aws
from eva_master.adapters.ec2.cloud import _also_refused
from eva_master.adapters.ec2.faults import (
    ForbiddenType,
    FreePlan,
    NoSpotRole,
    NotSold,
    ServerFault,
    reason,
    retry_after_ms,
    translate,
)
from eva_master.adapters.ec2.watch import Call, Life
from eva_master.app.clouds.ec2.own_settings import packed
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import LaunchFailed
from eva_master.model.resources import Resources
from eva_wire.values.errors import (
    CapacityUnavailable,
    CloudDenied,
    CloudError,
    InvalidConfig,
)
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from eva_worker.errors import StoreUnavailable
from eva_worker.files.multipart import Multipart
from eva_worker.files.objects import Objects

WEEK_MS = 7 * 24 * 3_600_000


def offering(name: str, zone: str = "us-east-1a", *, spot: bool = False) -> Offering:
    machine = InstanceType(name, Family(name.partition(".")[0]), Resources(0, 2000, 4096))
    bought = Offering(machine, Price(1), zone=zone)
    return replace(bought, purchase=Purchase.SPOT) if spot else bought


LARGE, ELSEWHERE = offering("c7i.large"), offering("c7i.large", "us-east-1b")
SPOT = offering("c7i.large", spot=True)
OTHER, FREE = offering("r7i.large"), offering("c7i-flex.large")
CATALOG = (LARGE, ELSEWHERE, SPOT, OTHER, FREE)


def answered(code: str, message: str = "", status: int = 400) -> CloudError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return translate(ClientError(response, "RunInstances"))


@pytest.mark.parametrize(
    ("error", "kind", "also", "words"),
    [
        (answered("Unsupported"), NotSold, set(), "not sold in this zone"),
        (
            answered("InvalidParameterCombination", "type is not eligible for Free Tier."),
            FreePlan,
            {ELSEWHERE, SPOT, OTHER},
            "upgrade-account-plan",
        ),
        (answered("InvalidParameterCombination", "of another kind"), CloudError, set(), "refused"),
        (
            answered("AuthFailure.ServiceLinkedRoleCreationNotPermitted", status=403),
            NoSpotRole,
            {SPOT},
            "create-service-linked-role",
        ),
        (
            answered(
                "UnauthorizedOperation", "explicit deny in a service control policy", status=403
            ),
            ForbiddenType,
            {ELSEWHERE, SPOT},
            "SCP",
        ),
        (
            answered("UnauthorizedOperation", status=403),
            CloudDenied,
            {ELSEWHERE, SPOT, OTHER, FREE},
            "check the IAM policy",
        ),
        (answered("InsufficientVolumeCapacity", status=500), CapacityUnavailable, set(), "no cap"),
        (answered("InsufficientAddressCapacity", status=500), CapacityUnavailable, set(), "no cap"),
        (answered("InternalError", status=500), ServerFault, set(), "EC2 failed"),
    ],
)
def test_a_refusal_rules_out_what_would_be_refused_as_well(
    error: CloudError, kind: type[CloudError], also: set[Offering], words: str
) -> None:
    assert type(error) is kind
    others = [other for other in CATALOG if other is not LARGE]
    assert {other for other in others if _also_refused(LARGE, other, error)} == also
    assert words in reason(error)


def test_a_type_that_is_not_sold_is_not_tried_before_the_next_look() -> None:
    assert retry_after_ms(answered("Unsupported"), Purchase.ON_DEMAND) == WEEK_MS
    assert retry_after_ms(answered("Unsupported"), Purchase.SPOT) == WEEK_MS


def test_a_launch_that_ec2_fails_to_carry_out_for_ten_minutes_is_given_up() -> None:
    life = Life(InstanceId("i-1"))
    life.launch(LaunchInstance(InstanceId("i-1"), LARGE, 1))
    now = 1_000
    tries = 0
    while not life.hopeless(Millis(now)):
        if life.look(None, Millis(now), 60_000) is Call.LAUNCH:
            life.begin()
            life.unclear(Millis(now))
            tries += 1
        now += 1_000
    assert 600_000 <= now - 1_000 <= 601_000
    assert tries < 12
    failed = life.refused(answered("InternalError", status=500), Millis(now + 300_000))
    assert isinstance(failed, LaunchFailed)
    assert life.look(None, Millis(now), 60_000) is None


class Service:
    """Clients that have credentials, but for the first one."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, *_: object) -> Any:
        self.made += 1
        return Silent() if self.made == 1 else Answering()


class Answering:
    def describe_instances(self, **_: Any) -> dict[str, Any]:
        return {"ResponseMetadata": {"HTTPHeaders": {}}}


class Silent(Answering):
    def describe_instances(self, **_: Any) -> dict[str, Any]:
        raise NoCredentialsError


def test_a_client_without_credentials_gives_way_to_another_one() -> None:
    service = Service()
    aws = Aws(Ec2Settings("c", "us-east-1"), threading.Event(), service)
    aws.call("ec2", "describe_instances", {})
    assert service.made == 2


def test_a_workers_client_without_credentials_gives_way_to_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    uploads = Multipart("bucket", "", region="r", endpoint="", records=tmp_path)
    monkeypatch.setattr(uploads, "_make", service)
    with pytest.raises(StoreUnavailable):
        asyncio.run(uploads._call("describe_instances", {}))
    asyncio.run(uploads._call("describe_instances", {}))
    assert service.made == 2


@pytest.mark.parametrize("role", ["master", "worker"])
def test_units_wait_for_the_credentials_service(role: str) -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / f"eva-{role}.service"
    line = "AWS_METADATA_SERVICE_TIMEOUT=5 AWS_METADATA_SERVICE_NUM_ATTEMPTS=5"
    assert f"Environment={line}\n" in unit.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ec2: {kms_key: alias/mine}", "a key of your own"),
        ("ec2: {zones: [us-east-1d]}", "no subnet in us-east-1d"),
        ("ec2: {launch_template: mine}", "launch_template"),
    ],
)
def test_settings_that_a_deployed_master_cannot_carry_out_are_refused(
    text: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as refusal:
        packed(file, "us-east-1", ["us-east-1a", "us-east-1b"])
    said = refusal.value.message + "".join(
        f"{problem.key} {problem.message}" for problem in refusal.value.problems
    )
    assert words in said


@pytest.mark.parametrize(("zones", "sold"), [(("us-east-1a",), ["us-east-1a"]), ((), [])])
def test_a_type_is_on_sale_in_the_zones_of_the_snapshot_alone(
    zones: tuple[str, ...], sold: list[str]
) -> None:
    kind = SoldType(architecture="x86_64", milli_cpus=2000, memory_mib=4096, price=1, zones=zones)
    snapshot = CatalogSnapshot(
        region="us-east-1", taken=datetime(2026, 1, 1, tzinfo=UTC), types={"c7i.large": kind}
    )
    terms = PurchaseTerms(("us-east-1a", "us-east-1b"))
    assert [each.zone for each in on_sale((LARGE,), snapshot, TypeFilter(), terms)] == sold


def test_a_copy_within_the_store_may_take_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes more than half a minute to copy some gigabytes."""
    objects = Objects(tmp_path.as_uri())
    stores = []

    async def copy(store: object, *_: object) -> None:
        stores.append(store)

    monkeypatch.setattr(obstore, "copy_async", copy)
    asyncio.run(objects.copy("a", "b"))
    assert stores == [objects._patient]
