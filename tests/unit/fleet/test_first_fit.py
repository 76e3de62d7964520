"""Places for hundreds of tasks that differ, found without a search."""

from __future__ import annotations

import random

import pytest

from eva_master.model.job import TaskSpec
from eva_master.packing.alone import first_fit
from eva_master.packing.alone.fit import allowed, fit
from eva_master.packing.alone.room import Caps, Stock
from eva_master.testing.snapshots import offer, task

FOUR, TWELVE = offer("four", (0, 4, 16), 0.4), offer("twelve", (0, 12, 48), 1.3)
LEADER, WORKER = task("g", any=(0, 3, 3)), task("g", any=(0, 1, 1))


def instances(tasks: list[TaskSpec], stocks: list[Stock], caps: Caps) -> int | None:
    """How many instances the tasks get; `None` if there are no places for them."""
    seats = fit(tasks, stocks, caps).seats
    if seats is None:
        return None
    assert allowed(seats, tasks, stocks, caps)
    return len(set(seats))


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        (Caps(), 76),  # of the cheapest: 303 vCPUs on instances of four
        (Caps(places=76), 76),
        (Caps(places=30), 26),  # of the largest
        (Caps(places=25), None),
        (Caps(launches=30), 26),
        (Caps(per_hour=31_000_000), 76),
        (Caps(per_hour=20_000_000), None),
        (Caps(apart=True), 301),
        (Caps(apart=True, places=300), None),
    ],
)
def test_a_leader_and_its_workers(caps: Caps, expected: int | None) -> None:
    assert instances([LEADER, *[WORKER] * 300], [Stock(FOUR), Stock(TWELVE)], caps) == expected


def test_empty_instances_come_first_and_no_more_than_there_are() -> None:
    tasks = [LEADER, *[WORKER] * 300]
    stocks = [Stock(FOUR, idle=10, most=0), Stock(TWELVE, most=22)]
    seats = fit(tasks, stocks).seats
    assert seats is not None
    assert sum(seat.stock == 0 for seat in set(seats)) == 10
    assert instances(tasks, [Stock(FOUR, idle=10, most=0), Stock(TWELVE, most=21)], Caps()) is None


@pytest.mark.parametrize("seed", range(20))
def test_places_that_are_found_are_within_all_limits(seed: int) -> None:
    drawn = random.Random(seed)
    kinds = [task("g", any=(0, drawn.randint(1, 6), drawn.randint(1, 20))) for _ in range(9)]
    tasks = [drawn.choice(kinds) for _ in range(drawn.randint(257, 600))]
    stocks = [
        Stock(FOUR, idle=drawn.randint(0, 9), most=drawn.choice([0, 50, None])),
        Stock(TWELVE, idle=drawn.randint(0, 9), most=drawn.choice([0, 50, None])),
    ]
    places = drawn.choice([None, 100, 300])
    instances(tasks, stocks, Caps(places=places))
    if stocks[1].most is None and places is None:
        assert fit(tasks, stocks, Caps()).seats is not None


def test_a_gang_of_too_many_kinds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [task("g", any=(0, 1, 1 + number % 40)) for number in range(300)]
    assert fit(tasks, [Stock(TWELVE)]).seats is not None
    monkeypatch.setattr(first_fit, "_STEPS", 20)
    outcome = fit(tasks, [Stock(TWELVE)])
    assert outcome.seats is None
    assert not outcome.proven
