"""The settings of EC2: what is taken, and how each mistake is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eva_master.adapters.ec2.launching.images import narrowest
from eva_master.adapters.ec2.settings import IMAGES, VOLUMES
from eva_master.app.clouds.ec2.wiring import boot_of, ec2_catalog, ec2_settings
from eva_master.app.config import (
    MasterConfig,
)
from eva_master.app.local import run_up
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.catalog import base_family
from eva_wire.values.errors import InvalidConfig, Problem

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
    assert (settings.root_volumes, settings.spot_prices_s) == (VOLUMES, 0)
    boot = boot_of(config)
    assert (boot.boot_logs, boot.s3_endpoint) == ("s3://bucket/prefix/boots", "http://127.0.0.1:1")
    catalog = ec2_catalog(config)
    families = {base_family(it.type.family) for it in catalog}
    gpus = {base_family(it.type.family) for it in catalog if it.type.capacity.gpus}
    assert gpus == {"g4dn", "g5", "g6", "g6e", "p4d", "p4de", "p5", "p5en"}
    assert families - gpus == {"c7i", "r7i"}
    prices = {it.type.name: it.price for it in catalog}
    # A public address is $0.005/h; 100 GiB, or 30 without a GPU, of gp3 are $0.08 a month each.
    assert prices["g5.xlarge"] == 1_006_000 + 5_000 + 10_959
    assert prices["p4d.24xlarge"] == 21_957_642 + 5_000 + 10_959
    assert prices["c7i.large"] == 89_250 + 5_000 + 3_288
    assert {it.minimum_ms for it in catalog} == {60_000}


def test_what_is_said_arrives(file: Path) -> None:
    config = load(
        file,
        GOOD
        + """\
  subnets: {us-east-1c: subnet-1}
  images: {x86_64-gpu: ami-0123456789abcdef0}
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
    assert (set(settings.root_volumes.values()), settings.spot_prices_s) == ({200}, 60)
    assert settings.tags == {"team": "ml"}
    boot = boot_of(config)
    assert boot.bundle("x86_64") == ("s3://bucket/bundles/worker.tar", "0" * 64)
    assert boot.worker_env["EVA_WORKER_ABANDONED_AFTER_S"] == "7200"
    catalog = ec2_catalog(config)
    assert {it.zone for it in catalog} == {"us-east-1c"}
    assert max(it.price for it in catalog) <= 1_000_000
    shown = config.shown()["ec2"]
    assert shown["max_price"] == "$1/h"
    assert shown["root_volume"] == dict.fromkeys(VOLUMES, 200 * 1024)


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("  zone: [us-east-1a]\n" + ZONES, "ec2.zone", "unknown key"),
        ("  zones: [us-west-2a]\n", "ec2", "not in region"),
        ("  root_volume: 4GiB\n" + ZONES, "ec2.root_volume", "8GiB"),
        ("  root_volume: {g6: 100.5GiB}\n" + ZONES, "ec2.root_volume", "whole GiB"),
        ("  root_volume: {V100: 100GiB}\n" + ZONES, "ec2.root_volume.V100", "a family or a type"),
        ("  images: {x86_64: debian}\n" + ZONES, "ec2.images.x86_64", "not an image"),
        ("  images: {x86-64: ami-01234567}\n" + ZONES, "ec2.images.x86-64", "x86_64-gpu"),
        ("  images: {V100: ami-01234567}\n" + ZONES, "ec2.images.V100", "a family or a type"),
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
        ("s3://bucket", "s3://a bucket", "reach no files"),
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


def with_only(file: Path, section: str, *names: str) -> MasterConfig:
    return load(file, GOOD + ZONES + section + f"catalog: {{only: [{', '.join(names)}]}}\n")


@pytest.mark.parametrize("name", ["p3", "p3.8xlarge"])
def test_gpus_that_the_image_has_no_driver_for_are_refused(file: Path, name: str) -> None:
    with pytest.raises(InvalidConfig, match=r"no driver for the GPUs of p3") as caught:
        ec2_catalog(with_only(file, "", "c7i", name))
    assert "ec2.images.p3" in (caught.value.hint or "")


def test_an_image_of_amazon_linux_has_no_driver_at_all(file: Path) -> None:
    plain = f"  images: {{g5: '{IMAGES['x86_64']}'}}\n"
    with pytest.raises(InvalidConfig, match=r"no driver for the GPUs of g5"):
        ec2_catalog(with_only(file, plain, "g5"))
    # What nobody has asked for by name is left out in silence.
    config = load(file, GOOD + ZONES + plain)
    assert "g5" not in {base_family(it.type.family) for it in ec2_catalog(config)}


def test_types_of_a_file_are_named_by_it(file: Path) -> None:
    types = file.with_name("types.yaml")
    types.write_text("types: {g3.4xlarge: {gpus: 1, cpus: 16, memory: 122GiB, price: $1.14/h}}\n")
    config = load(file, GOOD + ZONES + f"catalog: {{file: {types}}}\n")
    with pytest.raises(InvalidConfig, match=r"no driver for the GPUs of g3"):
        ec2_catalog(config)


@pytest.mark.parametrize("key", ["p3", "p3.2xlarge"])
def test_a_family_or_type_has_an_image_of_its_own(file: Path, key: str) -> None:
    ami = "ami-0123456789abcdef0"
    config = with_only(file, f"  images: {{{key}: {ami}}}\n", "p3.2xlarge", "g5.xlarge")
    found = {it.type.name: it.type for it in ec2_catalog(config)}
    assert found.keys() == {"p3.2xlarge", "g5.xlarge"}
    images = ec2_settings(config).images
    assert narrowest(images, found["p3.2xlarge"]) == ami
    assert narrowest(images, found["g5.xlarge"]) == IMAGES["x86_64-gpu"]


def test_volumes_are_by_family_and_no_smaller_than_their_image(file: Path) -> None:
    volumes = "  root_volume: {x86_64: 8GiB, g6: 150GiB}\n  public_addresses: false\n"
    sold = {offer.type.name: offer for offer in ec2_catalog(load(file, GOOD + volumes + ZONES))}
    sizes = {name: sold[name].attached.root_gib for name in ("c7i.large", "g5.xlarge", "g6.xlarge")}
    assert sizes == {"c7i.large": 8, "g5.xlarge": 100, "g6.xlarge": 150}
    # 8 GiB of gp3 for $0.08 a month each, and no address.
    assert sold["c7i.large"].price == 89_250 + 877
    for small in ("8GiB", "74GiB", "{x86_64-gpu: 74GiB}", "{g5.xlarge: 8GiB}"):
        config = load(file, GOOD + f"  root_volume: {small}\n" + ZONES)
        with pytest.raises(InvalidConfig, match=r"image of g[456]\w* has: 75GiB") as caught:
            ec2_catalog(config)
        assert "catalog.only" in (caught.value.hint or "")
        only = with_only(file, f"  root_volume: {small}\n", "c7i")
        assert {sold.type.family for sold in ec2_catalog(only)} == {"c7i"}


@pytest.mark.parametrize(
    ("stated", "paying"),
    [("true", "ab"), ("false", ""), ("[us-east-1b]", "b"), ("[us-east-1b, us-east-1a]", "ab")],
)
def test_an_address_is_in_the_price_in_zones_whose_subnets_give_one(
    file: Path, stated: str, paying: str
) -> None:
    subnets = "  subnets: {us-east-1a: subnet-1, us-east-1b: subnet-2}\n  spot: {}\n"
    text = GOOD + subnets + f"  public_addresses: {stated}\n"
    prices = {
        offer.zone: offer.price
        for offer in ec2_catalog(load(file, text))
        if offer.type.name == "c7i.large"
    }
    assert prices == {
        f"us-east-1{zone}": 89_250 + 3_288 + (5_000 if zone in paying else 0) for zone in "ab"
    }


def test_the_highest_price_is_that_of_everything(file: Path) -> None:
    def names(price: str) -> set[str]:
        text = GOOD + ZONES + f"  max_price: {price}\n"
        return {sold.type.name for sold in ec2_catalog(load(file, text))}

    assert "c7i.large" in names("$0.097538/h")
    with pytest.raises(InvalidConfig, match="nothing is for sale"):
        names("$0.097537/h")


def test_a_cluster_for_a_laptop_buys_nothing(file: Path) -> None:
    with pytest.raises(InvalidConfig, match="cloud is ec2"):
        run_up(load(file, GOOD + ZONES))
