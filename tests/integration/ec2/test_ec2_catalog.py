"""What EC2 sells, as it is asked, written down, read, filtered and paid for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_master.app import config as config_module
from eva_master.app.clouds import cloud_of
from eva_master.app.clouds.ec2.wiring import ask_what_is_sold, ec2_catalog, list_catalog
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.control.settings import Settings
from eva_master.model.actions import ListCatalog
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.events import CatalogListed, Quoted
from eva_wire.values.errors import CloudDenied
from tests.fakes.aws.account import Account
from tests.fakes.aws.service import AHEAD, CREDENTIALS, REGION, Aws
from tests.fakes.rpc.mailbox import AnyEvent, Mailbox

SECTION = {
    "region": REGION,
    "zones": [f"{REGION}a", f"{REGION}b"],
    "discounts": {"c7i": "20%", "c7i.xlarge": "50%"},
    "spot": {"expected_life": "10h"},
}
NAMES = ["c7i.large", "c7i.xlarge", "g6.xlarge", "g6.12xlarge", "g6.48xlarge"]


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    server = Aws()
    server.set_spot_prices({f"c7i.large@{REGION}a": "0.0301234", f"c7i.large@{REGION}b": "0.04"})
    yield server
    server.stop()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aws: Aws) -> Path:
    """A master's settings file."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setattr(config_module, "MASTER_FILE", tmp_path / "nowhere.yaml")
    return write(tmp_path, SECTION, aws)


def write(directory: Path, section: object, aws: Aws) -> Path:
    file = directory / "master.yaml"
    document = {
        "cloud": "ec2",
        "state_dir": str(directory),
        "objects": "s3://bucket/prefix",
        "listen": "10.0.0.1:7411",
        "ec2": {**section, "endpoint": aws.url},  # type: ignore[dict-item]
        "catalog": {"only": NAMES},
    }
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory, aws: Aws) -> str:
    """A snapshot."""
    file = tmp_path_factory.mktemp("taken") / "catalog.json"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name.upper(), value)
        only = [flag for name in NAMES for flag in ("--only", name)]
        place = ("--region", REGION, "--endpoint", aws.url, "--out", str(file))
        assert eva("catalog", "update", *place, *only).exit_code == 0
    return file.read_text()


def eva(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def listed(settings: Path, *arguments: str) -> dict[str, dict[str, float | str]]:
    result = eva("catalog", "ls", "--config", str(settings), "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {
        f"{it['type']}@{it['zone']}/{it['purchase']}": it
        for it in json.loads(result.stdout)["offerings"]
    }


def test_what_is_asked_is_written_down_and_sold(settings: Path) -> None:
    result = eva("catalog", "update", "--config", str(settings), "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["types"] == len(told["new"]) == 5
    assert told["file"] == str(settings.parent / "catalog.json")
    written = json.loads((settings.parent / "catalog.json").read_text())
    assert (written["region"], written["taken"][-1]) == (REGION, "Z")

    found = listed(settings)
    large = found[f"c7i.large@{REGION}a/on-demand"]
    # The list says $0.08925; a fifth comes off. A type's own discount goes before its family's.
    assert alone(large) == 0.0714
    assert alone(found[f"c7i.xlarge@{REGION}b/on-demand"]) == 0.08925
    # 30 GiB of gp3 for $0.08 a month each, and a public address.
    assert (large["volume_usd_per_hour"], large["address_usd_per_hour"]) == (0.003288, 0.005)
    assert written["gib_month"] == 80_000
    # Of 4 GiB tasks get what a guest sees, less what the system takes.
    assert (large["cpus"], large["memory_mib"], large["gpus"]) == (2, 3388, 0)
    assert found[f"g6.12xlarge@{REGION}a/on-demand"]["gpus"] == 4
    # What the market says, rounded up to whole micro-dollars, without a discount.
    spot = found[f"c7i.large@{REGION}a/spot"]
    assert (alone(spot), spot["interruptions_per_hour"]) == (0.030124, 0.1)
    assert alone(found[f"c7i.large@{REGION}b/spot"]) == 0.04
    # Nowhere but in the zones of the settings.
    assert {it["zone"] for it in found.values()} == {f"{REGION}a", f"{REGION}b"}

    only = ("--only", "c7i.large", "--only", "g5.xlarge")
    again = eva("catalog", "update", "--config", str(settings), "--json", *only)
    told = json.loads(again.stdout)
    assert (told["new"], told["gone"][0], told["repriced"]) == (["g5.xlarge"], "c7i.xlarge", [])


def alone(offering: dict[str, Any]) -> float:
    """Price of the instance of an offering, without a volume and an address."""
    parts = offering["volume_usd_per_hour"] + offering["address_usd_per_hour"]
    return round(offering["price_usd_per_hour"] - parts, 6)


def test_filters(settings: Path, taken: str) -> None:
    (settings.parent / "catalog.json").write_text(taken)

    def types(*arguments: str) -> set[str | float]:
        return {it["type"] for it in listed(settings, *arguments).values()}

    assert types("--gpu") == {"g6.xlarge", "g6.12xlarge", "g6.48xlarge"}
    assert types("--no-gpu") == {"c7i.large", "c7i.xlarge"}
    assert types("--only", "c7i") == {"c7i.large", "c7i.xlarge"}
    cheap = listed(settings, "--max-price", "$0.085/h").values()
    assert {it["type"] for it in cheap if it["purchase"] == "on-demand"} == {"c7i.large"}
    assert types("--arch", "arm64") == set()
    text = eva("catalog", "ls", "--config", str(settings), "--no-gpu").stdout
    assert f"{REGION}a b" in text
    assert eva("catalog", "ls", "--config", str(settings), "--max-price", "5").exit_code == 2


def test_without_a_snapshot_the_prices_of_one_region_are_known(settings: Path, aws: Aws) -> None:
    found = listed(settings)
    large = found[f"g6.xlarge@{REGION}a/on-demand"]
    assert (alone(large), large["volume_usd_per_hour"]) == (0.8048, 0.010959)
    assert not [key for key in found if key.endswith("/spot")]
    elsewhere = write(settings.parent, {"region": "eu-central-1", "zones": ["eu-central-1a"]}, aws)
    result = eva("catalog", "ls", "--config", str(elsewhere))
    assert result.exit_code != 0
    assert "eva catalog update" in result.output


def test_what_is_sold_by_credits_or_paid_ahead_is_bought_by_nobody_who_has_not_named_it(
    settings: Path, tmp_path: Path, aws: Aws
) -> None:
    out = settings.parent / "catalog.json"
    options = ("--region", REGION, "--endpoint", aws.url, "--out", str(out))
    assert eva("catalog", "update", *options).exit_code == 0
    sold = json.loads(out.read_text())["types"]
    assert {"c7i.large", "g4dn.xlarge", "m7i.large"} <= sold.keys()
    assert not [name for name in sold if name.startswith(("t2.", "t3.", "t3a.", "t4g."))]
    assert AHEAD not in sold

    named = ("--only", "t3.small", "--only", "c7i.large", "--only", AHEAD)
    assert eva("catalog", "update", *options, *named).exit_code == 0
    sold = json.loads(out.read_text())["types"]
    # Nobody can launch it on demand, whoever names it.
    assert sold.keys() == {"t3.small", "c7i.large"}
    document = yaml.safe_load(settings.read_text())
    # One that an older release has written down has them all.
    settings.write_text(yaml.safe_dump({**document, "catalog": {}}))
    assert {it["type"] for it in listed(settings).values()} == {"c7i.large"}
    settings.write_text(yaml.safe_dump({**document, "catalog": {"only": ["t3", "c7i.large"]}}))
    assert {it["type"] for it in listed(settings).values()} == {"t3.small", "c7i.large"}


def test_a_catalog_that_cannot_be_had_stops_no_master_that_has_one(
    settings: Path, aws: Aws, taken: str
) -> None:
    file = settings.parent / "catalog.json"

    def start(section: dict[str, object] | None = None) -> None:
        aws.order("", calls={"DescribeInstanceTypes": ["UnauthorizedOperation"] * 9})
        place = settings if section is None else write(settings.parent, section, aws)
        config = load_master_config(policies=policies(), file=place)
        ask_what_is_sold(config, lambda _: None)

    try:
        # Prices of this region come with the project, for instances on demand.
        start()
        assert not file.exists()
        assert f"c7i.large@{REGION}a/on-demand" in listed(settings)
        file.write_text(taken)
        start()
        assert file.read_text() == taken
        file.unlink()
        with pytest.raises(CloudDenied, match="UnauthorizedOperation"):
            start({"region": "eu-central-1", "zones": ["eu-central-1a"]})
    finally:
        aws.order("", calls={"DescribeInstanceTypes": []})


def test_what_is_sold_is_asked_for_at_the_first_start(settings: Path) -> None:
    file = settings.parent / "catalog.json"
    config = load_master_config(policies=policies(), file=settings)
    loop = cloud_of(config).loop_settings(config, Settings())
    assert (loop.catalog_period_ms, loop.catalog_age_ms) == (7 * 86_400_000, None)
    ask_what_is_sold(config, lambda _: None)
    first = file.read_text()
    assert json.loads(first)["types"].keys() == {*NAMES}
    ask_what_is_sold(config, lambda _: None)
    assert file.read_text() == first
    # A running master asks by the date that the answer has.
    document = {**json.loads(first), "taken": "2026-01-01T00:00:00Z"}
    file.write_text(json.dumps(document))
    loop = cloud_of(config).loop_settings(config, Settings())
    assert loop.catalog_age_ms is not None
    assert loop.catalog_age_ms > 100 * 86_400_000


@pytest.mark.parametrize("section", [{"catalog_period": "0s"}, {"snapshot": "own.json"}])
def test_a_catalog_may_stay_as_it_is(
    tmp_path: Path, aws: Aws, taken: str, section: dict[str, str]
) -> None:
    (tmp_path / "own.json").write_text(taken)
    (tmp_path / "catalog.json").write_text(taken)
    config = load_master_config(
        policies=policies(), file=write(tmp_path, {**SECTION, **section}, aws)
    )
    assert cloud_of(config).loop_settings(config, Settings()).catalog_period_ms is None


def _next(inbox: Mailbox, kind: type[AnyEvent]) -> AnyEvent:
    while not isinstance(event := inbox.next(), kind):
        pass
    return event


def test_a_running_master_hears_what_is_sold_now(settings: Path, tmp_path: Path) -> None:
    """The answer is in the file before the control loop has it, and counts for spot and quotas."""
    aws = Aws()  # What is sold changes for good.
    account = Account(aws)
    try:
        config = load_master_config(policies=policies(), file=write(tmp_path, SECTION, aws))
        ask_what_is_sold(config, lambda _: None)
        before = ec2_catalog(config)

        def ask(closing: threading.Event) -> Catalog:
            return list_catalog(config, closing)

        cloud, inbox = account.master(catalog=before, ask=ask, spot_prices_s=0.1)
        aws.sell({"g6.xlarge": "0.7500000000"}, gone=["c7i.xlarge"])
        cloud.execute(ListCatalog())
        heard = _next(inbox, CatalogListed).catalog
        assert heard is not None
        assert {each.type.name for each in before} - {each.type.name for each in heard} == {
            "c7i.xlarge"
        }
        (g6,) = {
            each.machine_price
            for each in heard
            if each.type.name == "g6.xlarge" and each.purchase is Purchase.ON_DEMAND
        }
        assert g6 == 750_000
        assert ec2_catalog(config) == heard, "a restart would have another one"
        # Settings name the type, and a master that starts now is not stopped by that.
        assert "c7i.xlarge" in NAMES
        gone = {each.id for each in before if each.type.name == "c7i.xlarge"}
        while gone & {name for name, _ in _next(inbox, Quoted).prices}:
            pass

        written = (tmp_path / "catalog.json").read_text()
        aws.sell({}, gone=NAMES)
        cloud.execute(ListCatalog())
        nothing = _next(inbox, CatalogListed)
        assert (nothing.catalog, "nothing is for sale" in nothing.error) == (None, True)
        aws.order("", calls={"DescribeInstanceTypes": ["UnauthorizedOperation"]})
        cloud.execute(ListCatalog())
        assert "UnauthorizedOperation" in _next(inbox, CatalogListed).error
        assert (tmp_path / "catalog.json").read_text() == written
    finally:
        account.close()
        aws.stop()


def test_a_snapshot_of_another_region_is_refused(
    settings: Path, tmp_path: Path, aws: Aws, taken: str
) -> None:
    (settings.parent / "catalog.json").write_text(taken)
    other = write(tmp_path, {"region": "us-west-2", "zones": ["us-west-2a"]}, aws)
    result = eva("catalog", "ls", "--config", str(other))
    assert result.exit_code != 0
    assert f"is of {REGION}" in result.output


def test_a_snapshot_needs_no_settings(settings: Path, tmp_path: Path, aws: Aws) -> None:
    out = tmp_path / "elsewhere.json"
    options = ("--region", REGION, "--endpoint", aws.url, "--out", str(out), "--only", "g5.xlarge")
    assert eva("catalog", "update", *options).exit_code == 0
    assert list(json.loads(out.read_text())["types"]) == ["g5.xlarge"]
    assert eva("catalog", "update", "--region", REGION).exit_code == 2


def test_a_damaged_snapshot_says_where(settings: Path) -> None:
    (settings.parent / "catalog.json").write_text('{"region": "us-east-1", "types": {}}')
    result = eva("catalog", "ls", "--config", str(settings))
    assert result.exit_code != 0
    assert "taken" in result.output


def test_settings_can_be_checked_without_a_master(settings: Path, taken: str) -> None:
    (settings.parent / "catalog.json").write_text(taken)
    result = eva("config", "--check", str(settings))
    assert result.exit_code == 0, result.output
    assert f"5 types for sale in {REGION}a, {REGION}b" in result.output
    told = json.loads(eva("config", "--check", str(settings), "--json").stdout)
    assert told["settings"]["ec2"]["discounts"] == {"c7i": "20%", "c7i.xlarge": "50%"}
    settings.write_text(settings.read_text().replace("zones:", "zoens:"))
    result = eva("config", "--check", str(settings))
    assert result.exit_code != 0
    assert "ec2.zoens" in result.output
