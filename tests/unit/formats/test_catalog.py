"""The catalog files: exact figures, and complaints that say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.adapters.catalog import load_catalog
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidConfig, Problem


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.yaml"


def named(catalog: Catalog) -> dict[str, Offering]:
    return {offering.type.name: offering for offering in catalog}


def problem(path: Path, text: str) -> Problem:
    path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_catalog(path)
    assert str(path) in caught.value.message
    (only,) = caught.value.problems
    return only


def test_the_project_brings_21_types_of_three_families() -> None:
    catalog = load_catalog()
    families = [offering.type.family for offering in catalog]
    assert {family: families.count(family) for family in families} == {"p3": 3, "c7i": 9, "r7i": 9}
    assert len({offering.id for offering in catalog}) == 21


def test_figures_are_exact_integers() -> None:
    catalog = named(load_catalog())
    assert catalog["c7i.large"].price == 89_250
    assert catalog["r7i.48xlarge"].price == 12_700_800
    assert 8 * catalog["p3.2xlarge"].price == catalog["p3.16xlarge"].price == 24_480_000
    assert all(type(offering.price) is int for offering in catalog.values())
    assert catalog["p3.8xlarge"].type.capacity == Resources(4, 32_000, 244 * 1024)
    assert (catalog["p3.8xlarge"].type.acquisition_ms, catalog["p3.8xlarge"].type.setup_ms) == (
        37_000,
        192_000,
    )


@pytest.mark.parametrize(
    ("family", "gib_per_cpu", "micro_usd_per_cpu"),
    [
        ("c7i", 2, 44_625),
        ("r7i", 8, 66_150),
    ],
)
def test_a_family_grows_in_proportion(
    family: str, gib_per_cpu: int, micro_usd_per_cpu: int
) -> None:
    for offering in load_catalog(only=[family]):
        cpus = offering.type.capacity.milli_cpus // 1000
        assert offering.type.capacity.memory_mib == cpus * gib_per_cpu * 1024
        assert offering.price == cpus * micro_usd_per_cpu


def test_user_file_adds_a_type_and_changes_one(user_file: Path) -> None:
    user_file.write_text(
        "types:\n"
        "  box: {gpus: 2, cpus: 0.5, memory: 512MiB, price: $0.000001/h, setup: 1m30s}\n"
        "  c7i.large: {price: $1/h, limit: 3}\n"
    )
    before, after = named(load_catalog()), named(load_catalog(user_file))
    assert after["box"].price == 1
    assert after["box"].type.family == "box"
    assert after["box"].type.capacity == Resources(2, 500, 512)
    assert after["box"].type.setup_ms == 90_000
    assert after["c7i.large"].price == 1_000_000
    assert after["c7i.large"].limit == 3
    assert after["c7i.large"].type == before["c7i.large"].type
    assert after["c7i.xlarge"] == before["c7i.xlarge"]


def test_restriction_by_file_and_by_argument(user_file: Path) -> None:
    user_file.write_text("only: [p3, c7i.large, c7i.xlarge]\n")
    assert set(named(load_catalog(user_file, ["c7i", "p3.2xlarge"]))) == {
        "c7i.large",
        "c7i.xlarge",
        "p3.2xlarge",
    }


def test_empty_file_changes_nothing(user_file: Path) -> None:
    user_file.write_text("")
    assert load_catalog(user_file) == load_catalog()


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("typs: {}\n", 1, "typs"),
        ("types:\n  c7i.large:\n    prise: $1/h\n", 3, "types.c7i.large.prise"),
        ("types:\n  c7i.large:\n    price: 1.5\n", 3, "types.c7i.large.price"),
        ("types:\n  c7i.large: {price: $0.0000001/h}\n", 2, "types.c7i.large.price"),
        ("types:\n  c7i.large: {price: $0/h}\n", 2, "types.c7i.large.price"),
        ("types:\n  c7i.large: {price: -$1/h}\n", 2, "types.c7i.large.price"),
        ("types:\n  c7i.large: {memory: 4}\n", 2, "types.c7i.large.memory"),
        ("types:\n  c7i.large: {cpus: 0}\n", 2, "types.c7i.large.cpus"),
        ("types:\n  c7i.large: {limit: -1}\n", 2, "types.c7i.large.limit"),
        ("types:\n  c7i.large: {gpus: true}\n", 2, "types.c7i.large.gpus"),
        ("types:\n  p3.2xlarge: {gpu: Voodoo}\n", 2, "types.p3.2xlarge.gpu"),
        ("types:\n  c7i.large: cheap\n", 2, "types.c7i.large"),
        ("types:\n\n  box: {cpus: 1, memory: 1GiB}\n", 3, "types.box.price"),
        ("types: []\n", 1, "types"),
        ("only: []\n", 1, "only"),
        ("only:\n  - p3\n  - p4\n", 3, "only[1]"),
        ("types:\n  a: {}\n  a: {}\n", 3, "types.a"),
    ],
)
def test_complaints_say_where(user_file: Path, text: str, line: int, key: str) -> None:
    found = problem(user_file, text)
    assert (found.line, found.key) == (line, key)


def test_unknown_key_comes_with_a_suggestion(user_file: Path) -> None:
    assert "price" in problem(user_file, "types:\n  c7i.large: {prise: $1/h}\n").hint


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere"):
        load_catalog(tmp_path / "nowhere.yaml")


def test_argument_that_names_nothing() -> None:
    with pytest.raises(InvalidConfig, match="g5"):
        load_catalog(only=["g5"])


def test_a_type_may_be_on_the_spot_market(user_file: Path) -> None:
    user_file.write_text(
        """
types:
  p3.2xlarge:
    limit: 2
    spot: {expected_life: 6h, zones: {us-east-1a: $0.918/h, us-east-1b: 30%}}
only: [p3]
"""
    )
    assert {it.purchase for it in load_catalog(user_file)} == {Purchase.ON_DEMAND}
    plain, first, second, *others = load_catalog(user_file, spot=True)
    assert (plain.purchase, plain.limit) == (Purchase.ON_DEMAND, 2)
    assert {it.purchase for it in others} == {Purchase.ON_DEMAND}
    for one, zone in ((first, "us-east-1a"), (second, "us-east-1b")):
        assert (one.zone, one.purchase, one.limit) == (zone, Purchase.SPOT, None)
        assert (one.price, one.type.family) == (918_000, "p3/spot")
        assert one.interruptions_ppm == pytest.approx(1_000_000 / 6, rel=1e-5)
        assert one.type.capacity == plain.type.capacity


@pytest.mark.parametrize(
    ("spot", "key"),
    [
        ("{zones: {a: $0/h}}", "types.p3.2xlarge.spot.zones.a"),
        ("{zones: {a: 0%}}", "types.p3.2xlarge.spot.zones.a"),
        ("{zones: {a: 3}}", "types.p3.2xlarge.spot.zones.a"),
        ("{zones: {}}", "types.p3.2xlarge.spot.zones"),
        ("{zones: {a: 30%}, expected_life: 0s}", "types.p3.2xlarge.spot.expected_life"),
        ("{zones: {a: 30%}, life: 1h}", "types.p3.2xlarge.spot.life"),
        ("{}", "types.p3.2xlarge.spot.zones"),
    ],
)
def test_what_cannot_be_on_the_spot_market(user_file: Path, spot: str, key: str) -> None:
    assert problem(user_file, f"types:\n  p3.2xlarge: {{spot: {spot}}}\n").key == key
