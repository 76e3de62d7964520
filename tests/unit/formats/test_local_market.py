"""Spot instances of the local cloud: what the settings put on sale, and what they may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.app.clouds import cloud_of
from eva_master.app.config import MasterConfig
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.catalog import Offering, Purchase
from eva_wire.values.errors import InvalidConfig

ONLY = "catalog: {only: [c7i.large, c7i.xlarge, p3.2xlarge]}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "master.yaml"


def load(file: Path, text: str) -> MasterConfig:
    file.write_text(text)
    return load_master_config(policies=policies(), file=file)


def sold(file: Path, text: str) -> dict[str, Offering]:
    config = load(file, text)
    return {it.id: it for it in cloud_of(config).catalog(config)}


def test_without_the_section_all_is_on_demand(file: Path) -> None:
    catalog = sold(file, ONLY)
    assert len(catalog) == 3
    assert {it.purchase for it in catalog.values()} == {Purchase.ON_DEMAND}


def test_every_type_is_sold_in_both_ways(file: Path) -> None:
    catalog = sold(file, ONLY + "local: {spot: {discount: 60%, expected_life: 2h}}\n")
    assert len(catalog) == 6
    steady, spot = catalog["c7i.large@local/on-demand"], catalog["c7i.large@local/spot"]
    # Two fifths of $0.08925, and an interruption in two hours.
    assert (spot.price, spot.interruptions_ppm) == (35_700, 500_000)
    assert (spot.type.family, spot.type.name) == ("c7i/spot", "c7i.large")
    assert spot.type.capacity == steady.type.capacity
    assert spot.minimum_ms == steady.minimum_ms
    assert (steady.price, steady.interruptions_ppm) == (89_250, 0)


def test_types_and_families_are_chosen_by_name(file: Path) -> None:
    catalog = sold(file, ONLY + "local: {spot: {types: [p3, c7i.large]}}\n")
    spot = {it.type.name for it in catalog.values() if it.purchase is Purchase.SPOT}
    assert spot == {"p3.2xlarge", "c7i.large"}


def test_settings_are_shown_as_they_are_written(file: Path) -> None:
    shown = load(file, "local: {spot: {discount: 67.5%, notice: 30s}}\n").shown()["local"]["spot"]
    assert shown["discount"] == "67.5%"
    assert (shown["notice"], shown["expected_life"]) == ("30s", "7d")


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("  spot: {discount: 0.67}\n", 2, "local.spot.discount", "write 67%"),
        ("  spot: {discount: 100%}\n", 2, "local.spot.discount", "not a discount"),
        ("  spot:\n    discout: 50%\n", 3, "local.spot.discout", "did you mean 'discount'?"),
        ("  spot:\n    expected_life: 10s\n", 3, "local.spot.expected_life", "between 1m and 30d"),
        ("  spot:\n    notice: 30\n", 3, "local.spot.notice", "needs a unit"),
        ("  spot:\n    notice: 1h\n", 3, "local.spot.notice", "10m at most"),
        ("  spot:\n    types: []\n", 3, "local.spot.types", "must not be empty"),
        ("  spot:\n    types:\n    - c7i\n    - c8i\n", 5, "local.spot.types[1]", "family 'c8i'"),
        ("  spot: yes\n", 2, "local.spot", ""),
        ("  spot: {interruptions: 1/h}\n", 2, "local.spot.interruptions", "'none' or 'random'"),
        ("  spot: {seed: -1}\n", 2, "local.spot.seed", "0 or more"),
    ],
)
def test_mistakes_have_line_and_key(file: Path, text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(file, f"local:\n{text}")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (line, key)
    assert words in f"{problem.message} {problem.hint}"


def test_a_type_that_the_catalog_leaves_out_cannot_be_a_spot_instance(file: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(file, ONLY + "local:\n  spot: {types: [r7i]}\n")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (3, "local.spot.types[0]")
    assert problem.hint == "its families: p3, c7i"
