"""The settings of EC2: what is taken, and how each mistake is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eva_master.adapters.ec2.settings import IMAGES
from eva_master.app.clouds.ec2.wiring import boot_of, ec2_catalog, ec2_settings
from eva_master.app.config import (
    MasterConfig,
)
from eva_master.app.local import run_up
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.errors import InvalidConfig, Problem

GOOD = """\
cloud: ec2
objects: s3://bucket/prefix?region=us-east-1&endpoint=http://127.0.0.1:1
listen: 10.0.0.1:7411
ec2:
  region: us-east-1
"""
ZONES = "  zones: [us-east-1a, us-east-1b]\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "master.yaml"


def load(file: Path, text: str) -> MasterConfig:
    file.write_text(text + f"state_dir: {file.parent}\n")
    return load_master_config(policies=policies(), file=file)


def problem(file: Path, text: str) -> Problem:
    with pytest.raises(InvalidConfig) as caught:
        load(file, text)
    (only,) = caught.value.problems
    return only


def test_little_has_to_be_said(file: Path) -> None:
    config = load(file, GOOD + ZONES)
    settings = ec2_settings(config)
    assert settings.images == IMAGES
    assert (settings.root_volume_gib, settings.spot_prices_s) == (100, 0)
    boot = boot_of(config)
    assert (boot.boot_logs, boot.s3_endpoint) == ("s3://bucket/prefix/boots", "http://127.0.0.1:1")
    catalog = ec2_catalog(config)
    assert len(catalog) == 2 * 21
    assert {it.minimum_ms for it in catalog} == {60_000}


def test_what_is_said_arrives(file: Path) -> None:
    config = load(
        file,
        GOOD
        + """\
  subnets: {us-east-1c: subnet-1}
  images: {x86_64-gpu: ami-0123456789abcdef0}
  launch_template: eva-worker:3
  root_volume: 200GiB
  tags: {team: ml}
  max_price: $1/h
  spot: {prices: 1m}
  bundles: {x86_64: "s3://bucket/bundles/worker.tar#sha256=%s"}
  abandoned_after: 2h
"""
        % ("0" * 64),
    )
    settings = ec2_settings(config)
    assert settings.images["x86_64-gpu"] == "ami-0123456789abcdef0"
    assert settings.images["x86_64"] == IMAGES["x86_64"]
    assert (settings.root_volume_gib, settings.spot_prices_s) == (200, 60)
    assert (settings.launch_template, settings.tags) == ("eva-worker:3", {"team": "ml"})
    boot = boot_of(config)
    assert boot.bundle("x86_64") == ("s3://bucket/bundles/worker.tar", "0" * 64)
    assert boot.abandoned_after_s == 7200
    catalog = ec2_catalog(config)
    assert {it.zone for it in catalog} == {"us-east-1c"}
    assert max(it.price for it in catalog) <= 1_000_000
    shown = config.shown()["ec2"]
    assert (shown["max_price"], shown["root_volume"]) == ("$1/h", 200 * 1024)


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("  zone: [us-east-1a]\n" + ZONES, "ec2.zone", "unknown key"),
        ("  zones: [us-west-2a]\n", "ec2", "not in region"),
        ("  root_volume: 4GiB\n" + ZONES, "ec2.root_volume", "8GiB"),
        ("  images: {x86_64: debian}\n" + ZONES, "ec2.images.x86_64", "not an image"),
        ("  tags: {'eva:cluster': x}\n" + ZONES, "ec2.tags.eva:cluster", "cannot be a tag"),
        ("  discounts: {c7i: 0.28}\n" + ZONES, "ec2.discounts.c7i", "not a discount"),
        ("  max_price: 5\n" + ZONES, "ec2.max_price", "not a price"),
        ("  bundles: {x86_64: s3://b/k}\n" + ZONES, "ec2.bundles.x86_64", "not a bundle"),
        ("  spot: {expected_life: 1s}\n" + ZONES, "ec2.spot.expected_life", "between"),
        ("", "ec2", "no zones"),
    ],
)
def test_complaints_say_where(file: Path, text: str, key: str, words: str) -> None:
    found = problem(file, GOOD + text)
    assert found.line > 0
    assert found.key == key
    assert words in f"{found.message} {found.hint}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("s3://bucket", "file:///bucket", "reach no files"),
        ("10.0.0.1:7411", "127.0.0.1:7411", "cannot reach"),
        ("10.0.0.1:7411", "0.0.0.0:7411", "cannot reach"),
        ("us-east-1\n", "us-east\n", "not a region"),
    ],
)
def test_what_instances_could_not_use_is_refused(
    file: Path, old: str, new: str, words: str
) -> None:
    assert words in problem(file, (GOOD + ZONES).replace(old, new, 1)).message


def test_a_master_behind_another_address_says_so(file: Path) -> None:
    text = (GOOD + ZONES).replace("10.0.0.1:7411", "0.0.0.0:7411\nadvertise: eva.example")
    assert load(file, text).advertise == "eva.example"


def test_ec2_needs_its_section(file: Path) -> None:
    assert "no section ec2" in problem(file, GOOD.partition("ec2:\n")[0]).message


def test_nothing_for_sale_is_refused(file: Path) -> None:
    config = load(file, GOOD + ZONES + "  max_price: $0.01/h\n")
    with pytest.raises(InvalidConfig, match="nothing is for sale"):
        ec2_catalog(config)


def test_a_cluster_for_a_laptop_buys_nothing(file: Path) -> None:
    with pytest.raises(InvalidConfig, match="cloud is ec2"):
        run_up(load(file, GOOD + ZONES))
