"""Rates on types of GPUs where nobody measured them, inferred from all that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.learning.speeds.type_rates import Row, TypeSpeedsView, type_speeds
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.packing.valuation.reservation_price import rates
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import offer, task

FAMILIES = [Family(name) for name in ("a", "b", "c", "d")]
SHEETS = {FAMILIES[0]: 240, FAMILIES[1]: 320, FAMILIES[2]: 732, FAMILIES[3]: 900}
NEWCOMER = Workload("newcomer")
ANYWHERE = task("newcomer", **dict.fromkeys(FAMILIES, (1, 1, 1)))


def rows(measured: Mapping[str, Mapping[Family, float]]) -> tuple[Row, ...]:
    return tuple(
        ((Workload(workload), family), round(rate * MILLION))
        for workload, known in sorted(measured.items())
        for family, rate in sorted(known.items())
    )


def world(seed: int, truth: list[float], noise: float, workloads: int) -> dict[str, dict]:
    """Rates of rank one with noise; the truth is by how much each family is off its sheet."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(workloads):
        own = exp(rng.normal(2, 1.5))
        seen = rng.permutation(4)[: int(rng.integers(2, 5))]
        found[f"w{number:03}"] = {
            FAMILIES[it]: own * SHEETS[FAMILIES[it]] * exp(truth[it] + rng.normal(0, noise))
            for it in seen
        }
    return found


def inferred(measured: tuple[Row, ...], known: Family, rate: float = 10.0) -> dict[Family, float]:
    """What the newcomer is expected to do on each family, of whom one rate is known."""
    expected = type_speeds(SHEETS, measured).of(NEWCOMER)
    found = rates(ANYWHERE, ((known, round(rate * MILLION)),), expected)
    return {family: rate / MILLION for family, rate in found}


@pytest.mark.parametrize("seed", range(4))
def test_rates_of_rank_one_are_found_where_data_sheets_are_wrong(seed: int) -> None:
    truth = [0.45, -0.3, 0.0, -0.15]
    measured = rows(world(seed, truth, 0.1, 60))

    def errors(of: tuple[Row, ...]) -> float:
        off = []
        for known in range(4):
            found = inferred(of, FAMILIES[known])
            for other in set(range(4)) - {known}:
                ratio = SHEETS[FAMILIES[other]] / SHEETS[FAMILIES[known]]
                true = 10 * ratio * exp(truth[other] - truth[known])
                off.append(abs(log(found[FAMILIES[other]] / true)))
        return median(off)

    assert errors(()) > 0.25
    assert errors(measured) < 0.08


def test_without_other_workloads_the_data_sheets_say_it() -> None:
    alone = {"newcomer": {FAMILIES[0]: 5.0, FAMILIES[2]: 4.0, FAMILIES[3]: 40.0}}
    assert type_speeds(SHEETS, rows(alone)).of(NEWCOMER) == SHEETS
    once = {f"w{n}": {FAMILIES[n]: 3.0 + n} for n in range(4)}
    assert type_speeds(SHEETS, rows(once)).of(NEWCOMER) == SHEETS, "one rate each compares nothing"
    # Others do learn from it.
    other = type_speeds(SHEETS, rows(alone)).of(Workload("other"))
    assert other != SHEETS
    assert other[FAMILIES[1]] == SHEETS[FAMILIES[1]], "nothing was measured there"


def test_what_was_measured_or_stated_stays_as_it_is() -> None:
    measured = rows(world(1, [0.5, 0, 0, 0], 0.1, 30))
    expected = type_speeds(SHEETS, measured).of(NEWCOMER)
    stated = replace(ANYWHERE, throughput=((FAMILIES[1], 123),))
    found = dict(rates(stated, ((FAMILIES[0], 7), (FAMILIES[1], 9)), expected))
    assert found[FAMILIES[0]] == 7
    assert found[FAMILIES[1]] == 123


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_one_hostile_workload_moves_nobody_far(data: st.DataObject) -> None:
    honest = world(7, [0.2, -0.2, 0.1, 0.0], 0.1, 20)
    before = inferred(rows(honest), FAMILIES[0])
    lies = data.draw(
        st.dictionaries(st.sampled_from(FAMILIES), st.floats(1e-6, 1e9), min_size=2, max_size=4)
    )
    after = inferred(rows({**honest, "zz": lies}), FAMILIES[0])
    for family in FAMILIES:
        assert abs(log(after[family] / before[family])) < log(1.15)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_however_many_lie_no_family_is_off_its_sheet_by_more_than_two(data: st.DataObject) -> None:
    lies = {
        f"z{number}": data.draw(
            st.dictionaries(st.sampled_from(FAMILIES), st.floats(1e-6, 1e9), min_size=1, max_size=4)
        )
        for number in range(data.draw(st.integers(1, 40)))
    }
    expected = type_speeds(SHEETS, rows(lies)).inferred
    for family, bandwidth in SHEETS.items():
        assert 0.49 * bandwidth <= expected[family] <= 2.03 * bandwidth


def test_nothing_is_inferred_of_families_without_a_data_sheet() -> None:
    new = Family("new")
    measured = rows({f"w{n}": {FAMILIES[0]: 1.0, new: 50.0} for n in range(9)})
    assert type_speeds(SHEETS, measured).inferred == SHEETS
    assert type_speeds({}, measured).inferred == {}


def test_workloads_in_another_order_give_the_same() -> None:
    known = world(3, [0.4, 0.1, -0.2, 0], 0.3, 40)
    renamed = {name[::-1]: found for name, found in known.items()}
    assert type_speeds(SHEETS, rows(known)).inferred == type_speeds(SHEETS, rows(renamed)).inferred


def test_it_is_worked_out_once_per_version() -> None:
    view, first = TypeSpeedsView(SHEETS), rows(world(3, [0.4, 0, 0, 0], 0.1, 20))
    found = view.of(first)
    assert view.of(first) is found
    view.of(())
    assert view.of(first) is found


def test_who_books_expects_the_same_as_who_plans() -> None:
    catalog = [
        replace(it, type=replace(it.type, gpu_bandwidth=SHEETS[it.type.family]))
        for it in (offer(f"{family}.1", (1, 1, 1), 1.0, family=family) for family in FAMILIES)
    ]
    measured = rows({**world(5, [0.5, 0, 0, -0.4], 0.1, 30), "newcomer": {FAMILIES[0]: 10.0}})
    valuation = JobValuation(catalog, StandaloneRates(measured))
    booked = {family: rate / MILLION for family, rate in valuation.rates(ANYWHERE)}
    assert booked == inferred(measured, FAMILIES[0])
    assert booked[FAMILIES[3]] != pytest.approx(10 * 900 / 240, rel=0.2)
    valuation.follow(StandaloneRates(rows({"newcomer": {FAMILIES[0]: 10.0}})))
    assert dict(valuation.rates(ANYWHERE))[FAMILIES[3]] == pytest.approx(37_500_000, rel=1e-5)
