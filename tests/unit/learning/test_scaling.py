"""How fast elastic gangs are with some number of members."""

from __future__ import annotations

import pytest

from eva_master.learning.knowledge import Knowledge
from eva_master.learning.speeds.scaling import ScalingTable, scaling
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.planning.elastic import Scaling
from eva_wire.values.ids import Family, Millis, Workload

KEY = Workload("w"), Family("c"), 2, False


def test_where_nothing_is_known_twice_the_members_do_less_than_twice_as_much() -> None:
    together, apart = (scaling((), (), apart=it) for it in (False, True))
    assert together.speed_ppm(2) == pytest.approx(2**0.9 * 1e6, rel=1e-5)
    assert apart.speed_ppm(4) == pytest.approx(4**0.85 * 1e6, rel=1e-5)


def test_what_is_stated_goes_before_what_was_measured() -> None:
    known = scaling(((1, 100), (2, 160)), ((2, 190), (4, 300)), apart=False)
    assert known.speed_ppm(2) == pytest.approx(1.6e6, rel=1e-5)
    assert known.speed_ppm(4) == pytest.approx(3.0e6, rel=1e-5)
    assert known.speed_ppm(4, against=2) == pytest.approx(300 / 160 * 1e6, rel=1e-5)


def test_the_power_is_drawn_from_the_usual_one_to_what_is_known() -> None:
    poor = scaling(((1, 100), (2, 110)), (), apart=False)
    # Halfway between the usual power and ln(1.1)/ln(2).
    assert poor.exponent_ppm == pytest.approx((0.9 + 0.1375) / 2 * 1e6, rel=1e-3)
    assert poor.speed_ppm(4) == pytest.approx(1.1e6 * 2 ** (poor.exponent_ppm / 1e6), rel=1e-4)


def test_below_the_smallest_known_number_it_is_inferred() -> None:
    known = Scaling(((4, 400),), 500_000)
    assert known.speed_ppm(1, against=4) == pytest.approx(0.5e6, rel=1e-5)
    assert known.speed_ppm(9, against=4) == pytest.approx(1.5e6, rel=1e-5)


def test_a_measurement_that_is_no_news_leaves_what_policies_know() -> None:
    table = ScalingTable().observe(KEY, 10.0, Millis(1))
    assert table.points(Workload("w"), Family("c"), apart=False) == ((2, 10_000_000),)
    same = table.observe(KEY, 10.2, Millis(2))
    assert same.known is table.known
    other = table.observe(KEY, 14.0, Millis(2))
    assert other.points(Workload("w"), Family("c"), apart=False) == ((2, 12_000_000),)
    assert not other.points(Workload("w"), Family("c"), apart=True)


def test_what_was_measured_is_journalled_and_journals_without_it_open() -> None:
    table = ScalingTable().observe(KEY, 10.0, Millis(1))
    assert ScalingTable.from_json(table.to_json()) == table
    assert Lessons().to_json() == {}
    known = Knowledge({"ana": Lessons(scaling=table)})
    assert Knowledge.from_json(known.to_json()) == known
    with pytest.raises(ValueError, match="not an entry"):
        ScalingTable.from_json([["w", "c", "two"]])
