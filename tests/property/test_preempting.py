"""Who is suspended for the more urgent: never more than it takes, by comparison with all sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.preempting import Victim, VictimSearch
from eva_wire.values.ids import InstanceId, JobId, RunId
from tests.drawing import drawn

sizes = st.builds(Resources, st.integers(0, 2), st.integers(0, 6), st.integers(0, 6))
ROOMS = [InstanceId(name) for name in "abc"]


@st.composite
def victims(draw: st.DrawFn) -> list[Victim]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        places = draw(st.lists(st.sampled_from(ROOMS), min_size=1, max_size=2, unique=True))
        found.append(
            Victim(
                JobId(f"v{number}"),
                tuple(RunId(f"v{number}/{index}") for index in range(len(places))),
                draw(st.integers(0, 2)),
                draw(st.integers(0, 5)),
                {place: draw(sizes) for place in places},
            )
        )
    return found


def fits(free: Mapping[InstanceId, Resources], wanted: Sequence[Resources]) -> bool:
    """Whether some assignment of task runs to rooms leaves none overfull."""
    for rooms in product(free, repeat=len(wanted)):
        load = dict.fromkeys(free, NOTHING)
        for room, need in zip(rooms, wanted, strict=True):
            load[room] = load[room] + need
        if all(load[room].fits(free[room]) for room in free):
            return True
    return False


def freed(
    free: Mapping[InstanceId, Resources], chosen: Sequence[Victim]
) -> dict[InstanceId, Resources]:
    after = dict(free)
    for victim in chosen:
        for room, took in victim.frees.items():
            after[room] = after[room] + took
    return after


def price(chosen: Sequence[Victim]) -> tuple[int, int, int]:
    return (
        max((it.priority for it in chosen), default=-1),
        sum(it.cost for it in chosen),
        sum(len(it.runs) for it in chosen),
    )


def all_sets(there: Sequence[Victim]) -> Iterator[tuple[Victim, ...]]:
    for size in range(len(there) + 1):
        yield from combinations(there, size)


@drawn(120)
@given(victims(), st.lists(sizes, min_size=3, max_size=3), st.lists(sizes, min_size=1, max_size=3))
def test_no_set_of_victims_is_cheaper(
    there: list[Victim], room: list[Resources], wanted: list[Resources]
) -> None:
    free = dict(zip(ROOMS, room, strict=True))
    members = [dict.fromkeys(ROOMS, need) for need in wanted]
    chosen = VictimSearch(dict(free), there, steps=10**6).seat(members)
    enough = [price(it) for it in all_sets(there) if fits(freed(free, it), wanted)]
    if chosen is None:
        assert not enough
    else:
        assert fits(freed(free, chosen), wanted)
        assert price(chosen) == min(enough)


@drawn(60)
@given(victims(), st.lists(sizes, min_size=3, max_size=3), st.lists(sizes, max_size=5))
def test_one_after_the_other_nobody_is_suspended_twice_or_sits_on_another(
    there: list[Victim], room: list[Resources], wanted: list[Resources]
) -> None:
    free = dict(zip(ROOMS, room, strict=True))
    search = VictimSearch(dict(free), there, steps=200)
    seated = []
    gone: list[Victim] = []
    for need in wanted:
        chosen = search.seat([dict.fromkeys(ROOMS, need)])
        if chosen is not None:
            gone.extend(chosen)
            seated.append(need)
    assert len({it.job for it in gone}) == len(gone)
    assert fits(freed(free, gone), seated)
