"""Markets as files: what is read, and what is refused with line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from eva_lab.traces.spot.files import read_market
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import MILLION, Family, Price

HEADER = "type,zone,from_s,to_s,capacity,price\n"


def machine(name: str, gpus: int, usd: float) -> Offering:
    kind = InstanceType(name, Family("p3"), Resources(gpus, 8_000 * gpus, 61_000 * gpus))
    return Offering(kind, Price(round(usd * MILLION)))


CATALOG = (machine("p3.2xlarge", 1, 3.06), machine("p3.8xlarge", 4, 12.24))


def written(folder: Path, rows: str, *, header: str = HEADER) -> Path:
    path = folder / "market.csv"
    path.write_text(header + rows, encoding="utf-8", newline="")
    return path


GOOD = """p3.2xlarge,us-west-2a,0,3600,4,0.918
p3.2xlarge,us-west-2a,3600,7200,0,1.5
*,us-west-2a,0,7200,10,30%
*,us-west-2b,0,600,1,40%
*,us-west-2b,600,7200,2,40%
"""


def test_pools_are_on_sale_beside_what_is_on_demand(tmp_path: Path) -> None:
    market = read_market(written(tmp_path, GOOD), CATALOG)
    offered = market.offered(CATALOG)
    assert offered[:2] == CATALOG
    spot = {(it.type.name, it.zone): it for it in offered[2:]}
    assert {it.purchase for it in spot.values()} == {Purchase.SPOT}
    assert {key: it.price / MILLION for key, it in spot.items()} == {
        ("p3.2xlarge", "us-west-2a"): 0.918,
        ("p3.2xlarge", "us-west-2b"): pytest.approx(1.224),
        ("p3.8xlarge", "us-west-2a"): pytest.approx(3.672),
        ("p3.8xlarge", "us-west-2b"): pytest.approx(4.896),
    }
    assert {it.type.family for it in spot.values()} == {"p3/spot"}


def test_capacity_and_price_over_time_and_again_after_the_end(tmp_path: Path) -> None:
    market = read_market(written(tmp_path, GOOD), CATALOG)
    spans = market.spans("p3.2xlarge", "us-west-2a")
    assert spans is not None
    seen = [market.at(spans, 1000 * second).capacity for second in (0, 3599, 3600, 7199, 7200)]
    assert seen == [4, 4, 0, 0, 4]
    later = market.began_at(3_600_000)
    assert later.at(spans, 0).capacity == 0
    assert later.next_ms(spans, 0) == 3_600_000
    assert market.began_at(7_200_000 + 5).offset_ms == 5
    assert market.changes_prices
    other = market.spans("p3.2xlarge", "us-west-2b")
    assert other is not None
    assert [span.capacity for span in other] == [1, 2]


@pytest.mark.parametrize("packed", [False, True])
def test_dos_lines_a_byte_order_mark_and_gzip(tmp_path: Path, packed: bool) -> None:
    text = ("\ufeff" + HEADER + GOOD).replace("\n", "\r\n").encode()
    path = tmp_path / "market.csv"
    path.write_bytes(gzip.compress(text) if packed else text)
    plain = read_market(written(tmp_path / ".", GOOD), CATALOG) if not packed else None
    if plain is None:
        assert read_market(path, CATALOG).length_ms == 7_200_000
    else:
        path.write_bytes(text)
        assert read_market(path, CATALOG) == plain


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("p3.2xlarge,a,0,10,1,1\np3.2xlarge,a,5,20,1,1\n", "3:0: from_s: overlaps line 2"),
        (
            "p3.2xlarge,a,0,10,1,1\np3.2xlarge,a,11,20,1,1\n",
            "3:0: from_s: leaves a gap after line 2",
        ),
        ("p3.2xlarge,a,5,10,1,1\n", "2:0: from_s: the first row of a pool begins at 0"),
        ("p3.2xlarge,a,0,10,-1,1\n", "2:0: capacity: '-1' is no whole number"),
        ("p3.2xlarge,a,0,10,1.5,1\n", "2:0: capacity: '1.5' is no whole number"),
        ("p3.2xlarge,a,0,10,1,0\n", "2:0: price: '0' is no price"),
        ("p3.2xlarge,a,0,10,1,0%\n", "2:0: price: '0%' is no price"),
        ("p3.2xlarge,a,0,10,1,9007199255\n", "2:0: price: '9007199255' is no price"),
        ("p3.2xlarge,a,0,10,1,1e999999\n", "2:0: price: '1e999999' is no number"),
        ("p3.2xlarge,a,0,10,1,nan\n", "2:0: price: 'nan' is no number"),
        ("p9.huge,a,0,10,1,1\n", "2:0: type: unknown type 'p9.huge'"),
        ("p3.2xlarge,,0,10,1,1\n", "2:0: zone: '' cannot be a zone"),
        ("p3.2xlarge,a,0,,1,1\n", "2:0: to_s: is empty"),
        ("p3.2xlarge,a,10,0,1,1\n", "2:0: to_s: the row ends before it begins"),
        ("p3.2xlarge,a,0,10,1\n", "2:0: 5 cells under 6 columns"),
        (
            "p3.2xlarge,a,0,10,1,1\np3.2xlarge,b,0,20,1,1\n",
            "2:0: to_s: p3.2xlarge in a ends at 10 s, others at 20 s",
        ),
        ("", "there are no rows"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, rows: str, told: str) -> None:
    with pytest.raises(InvalidTrace) as refused:
        read_market(written(tmp_path, rows), CATALOG)
    text = str(refused.value)
    assert "market.csv" in text
    assert told in text


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="name the columns type, zone"):
        read_market(written(tmp_path, GOOD, header="a,b\n"), CATALOG)


def test_many_mistakes_are_told_up_to_a_number(tmp_path: Path) -> None:
    """A file of millions of wrong rows is not read to its end."""
    with pytest.raises(InvalidTrace) as refused:
        read_market(written(tmp_path, "p9.huge,a,0,10,1,1\n" * 5_000), CATALOG)
    assert len(str(refused.value)) < 4_000


def test_rows_that_change_nothing_take_no_room(tmp_path: Path) -> None:
    rows = "".join(f"*,a,{n},{n + 1},3,30%\n" for n in range(10_000))
    market = read_market(written(tmp_path, rows), CATALOG)
    assert [len(spans) for spans in market.pools.values()] == [1]
