"""How a fleet is divided under each objective: by hand, and against divisions drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from eva_master.model.resources import Resources
from eva_master.packing.lp.least_time import Need
from eva_policies.gavel.allocation import Parts, makespan, max_min, max_sum
from eva_wire.values.ids import Family

FAST, SLOW = Family("fast"), Family("slow")


def gpus(count: int) -> Resources:
    """So many GPUs, each with a vCPU."""
    return Resources(count, 1000 * count, 0)


def need(fast_ms: float, slow_ms: float | None = None, size: int = 1) -> Need:
    alone = {FAST: fast_ms} if slow_ms is None else {FAST: fast_ms, SLOW: slow_ms}
    return Need(dict.fromkeys(alone, gpus(size)), alone)


def near(**parts: float) -> object:
    return pytest.approx({Family(name): part for name, part in parts.items()}, abs=1e-6)


ONE_EACH = {FAST: gpus(1), SLOW: gpus(1)}


def test_jobs_that_gain_alike_share_both_types() -> None:
    # At an even share A would be at (4 + 1) / 2 and B at (2 + 1) / 2. With p of the fast type A has
    # (4p + 1 - p) / 2.5 of that and B (2(1 - p) + p) / 1.5; both are 1 at a half.
    assert max_min([need(1, 4), need(2, 4)], ONE_EACH) == [near(fast=0.5, slow=0.5)] * 2


def test_what_the_worst_served_cannot_use_goes_to_others() -> None:
    # B is as fast anywhere and never has more than its even share. A could share the types with it
    # and be no worse off than B; but then it would be slower for nothing.
    assert max_min([need(1, 3), need(1, 1)], ONE_EACH) == [near(fast=1), near(slow=1)]


def test_a_job_with_twice_the_gpus_has_half_the_time() -> None:
    # 2x + y + z = 2, and 2x = y = z.
    parts = max_min([need(1, size=2), need(1), need(5)], {FAST: gpus(2)})
    assert parts == [near(fast=1 / 3), near(fast=2 / 3), near(fast=2 / 3)]


def test_tasks_that_differ_in_what_is_scarce_are_served_alike() -> None:
    # One takes half of the GPUs, the other half of the CPUs: both can run all the time.
    wide = Need({FAST: Resources(2, 1000, 0)}, {FAST: 1.0})
    deep = Need({FAST: Resources(1, 2000, 0)}, {FAST: 1.0})
    assert max_min([wide, deep], {FAST: Resources(4, 4000, 0)}) == [near(fast=1)] * 2


def test_tasks_that_nobody_sees_yet_count() -> None:
    # An array of three tasks beside a single one on one GPU: a quarter each.
    array = Need({FAST: gpus(1)}, {FAST: 1.0}, 3)
    assert max_min([array, need(1)], {FAST: gpus(1)}) == [near(fast=0.25)] * 2


def test_the_last_job_ends_as_soon_as_can_be() -> None:
    # Three times the work, three times the time.
    assert makespan([need(10), need(30)], {FAST: gpus(1)}) == [near(fast=0.25), near(fast=0.75)]
    # Two gain four times on the fast type and two gain twice: all are done after 8/3.
    needs = [need(1, 4), need(1, 4), need(1, 2), need(1, 2)]
    for one, parts in zip(needs, makespan(needs, ONE_EACH), strict=True):
        done = sum(part / one.alone_ms[family] for family, part in parts.items())
        assert done >= 3 / 8 - 1e-6


def test_a_very_short_job_beside_a_very_long_one_is_no_problem() -> None:
    parts = makespan([need(1), need(1e12)], {FAST: gpus(1)})
    assert parts[1] == near(fast=1)


def test_the_sum_is_largest_where_who_loses_least_is_on_the_slower_type() -> None:
    assert max_sum([need(1, 4), need(1, 2)], ONE_EACH) == [near(fast=1), near(slow=1)]
    # Two GPUs' worth of work counts twice, however long it takes.
    parts = max_sum([need(9, 18, size=2), need(2, 3)], {FAST: gpus(2), SLOW: gpus(2)})
    assert parts == [near(fast=1), near(slow=1)]


@pytest.mark.parametrize("divide", [max_min, makespan, max_sum])
def test_nobody_and_a_fleet_for_everybody(divide: object) -> None:
    assert callable(divide)
    assert divide([], ONE_EACH) == []
    assert divide([need(1, 2)], ONE_EACH) == [near(fast=1)]


def _served(one: Need, parts: Mapping[Family, float], there: Mapping[Family, int]) -> float:
    """What counts under `max_min`, from the words of its description."""
    total = sum(there.values())
    rates = {family: 1 / ms for family, ms in one.alone_ms.items()}
    even = sum(rates[family] * there[family] / total for family in rates)
    size = one.demand[FAST].gpus
    return size * sum(rates[family] * part for family, part in parts.items()) / even


def test_no_other_division_serves_the_worst_better() -> None:
    draw = random.Random(5)
    there = {FAST: 3, SLOW: 2}
    for _ in range(20):
        needs = [
            need(draw.uniform(1, 4), draw.uniform(1, 20), draw.choice((1, 2))) for _ in range(4)
        ]
        found = max_min(needs, {family: gpus(count) for family, count in there.items()})
        _check_lawful(needs, found, there)
        worst = min(map(_served, needs, found, [there] * 4))
        for _ in range(50):
            other = _drawn(draw, needs, there)
            _check_lawful(needs, other, there)
            assert min(map(_served, needs, other, [there] * 4)) <= worst + 1e-6


def _check_lawful(needs: list[Need], parts: list[Parts], there: Mapping[Family, int]) -> None:
    assert all(sum(it.values()) <= 1 + 1e-6 for it in parts)
    for family, count in there.items():
        used = sum(
            one.demand[family].gpus * it.get(family, 0.0)
            for one, it in zip(needs, parts, strict=True)
        )
        assert used <= count + 1e-6


def _drawn(draw: random.Random, needs: list[Need], there: Mapping[Family, int]) -> list[Parts]:
    raw = [{family: draw.random() ** 2 for family in there} for _ in needs]
    raw = [{f: part / max(1.0, sum(it.values())) for f, part in it.items()} for it in raw]
    for family, count in there.items():
        used = sum(n.demand[family].gpus * it[family] for n, it in zip(needs, raw, strict=True))
        for it in raw:
            it[family] /= max(1.0, used / count)
    return raw
