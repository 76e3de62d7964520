"""Making room where there are too many tasks to compare all sets of them."""

from __future__ import annotations

from eva_master.model.resources import Resources
from eva_master.packing.preempting import Victim, VictimSearch
from eva_wire.values.ids import InstanceId, JobId, RunId

BOX = InstanceId("box")


def small(number: int, cost: int) -> Victim:
    job = JobId(f"v{number}")
    return Victim(job, (RunId(f"{job}/0"),), 0, cost, {BOX: Resources(0, 1000, 0)})


def test_of_a_thousand_small_ones_the_cheapest_go() -> None:
    there = [small(number, 1000 - number) for number in range(1000)]
    search = VictimSearch({BOX: Resources()}, there, 5_000)
    chosen = search.seat([{BOX: Resources(0, 500_000, 0)}])
    assert chosen is not None
    assert sorted(it.cost for it in chosen) == list(range(1, 501))


def test_a_gang_of_a_thousand_is_seated() -> None:
    there = [small(number, 1) for number in range(1000)]
    search = VictimSearch({BOX: Resources()}, there, steps=10_000)
    chosen = search.seat([{BOX: Resources(0, 1000, 0)}] * 1000)
    assert chosen is not None
    assert len(chosen) == 1000
    assert search.seat([{BOX: Resources(0, 1, 0)}]) is None


def test_who_cannot_be_seated_leaves_everything_as_it_was() -> None:
    search = VictimSearch({BOX: Resources()}, [small(0, 1)], 100)
    assert search.seat([{BOX: Resources(0, 2000, 0)}]) is None
    assert search.seat([{BOX: Resources(0, 1000, 0)}] * 30) is None
    assert search.seat([{BOX: Resources(0, 1000, 0)}]) == (small(0, 1),)


def test_the_search_ends_in_time() -> None:
    rooms = {InstanceId(f"i{n}"): Resources(0, 10, 10) for n in range(40)}
    there = [
        Victim(
            JobId(f"v{n}-{room}"),
            (RunId(f"v{n}-{room}/0"),),
            0,
            (n * 7919) % 101 + 1,
            {room: Resources(0, 100 + n, 300 - n)},
        )
        for room in rooms
        for n in range(20)
    ]
    search = VictimSearch(dict(rooms), there, steps=2_000)
    members = [dict.fromkeys(rooms, Resources(0, 1500, 1500))] * 20
    chosen = search.seat(members)
    assert chosen is not None
    assert search.steps <= 0
