from __future__ import annotations

import pytest

from eva_policies.hadar_published.find_alloc import Allocation, Allocator, Candidate
from eva_policies.hadar_published.prices import PriceRange
from eva_policies.hadar_published.requests import GpuRequest, Utility
from eva_policies.hadar_published.servers import Kind, Server, Take, free_of, kinds
from eva_wire.values.ids import Family

V100, K80 = Family("v100"), Family("k80")
LOW = PriceRange(1e-6, 10.0)


def ask(tasks: int, v100: float = 10, k80: float = 4, gpus: int = 1) -> GpuRequest:
    return GpuRequest("a", tasks, 1000, 1000, {V100: v100, K80: k80}, {V100: gpus, K80: gpus})


def found(
    job: GpuRequest,
    *servers: tuple[Family, int, int],
    candidate: Candidate = Candidate.PAYOFF,
    spread_ppm: int = 100_000,
    prices: PriceRange = LOW,
) -> tuple[Allocation | None, tuple[Kind, ...]]:
    """What is found on servers, each by its type, its GPUs and how many of them are free."""
    there = [Server(f"s{n}", Kind(it, size), free) for n, (it, size, free) in enumerate(servers)]
    known = kinds(there)
    allocator = Allocator(
        known, {V100: prices, K80: prices}, Utility.THROUGHPUT, spread_ppm, candidate
    )
    return allocator.find(job, allocator.shape(job), free_of(there, known)), known


def families(allocation: Allocation | None, known: tuple[Kind, ...]) -> dict[Family, int]:
    assert allocation is not None
    counts: dict[Family, int] = {}
    for take in allocation.takes:
        family = known[take.kind].family
        counts[family] = counts.get(family, 0) + take.tasks
    return counts


def test_a_job_gets_the_type_on_which_it_is_fastest() -> None:
    allocation, known = found(ask(2), (K80, 4, 4), (V100, 4, 4))
    assert families(allocation, known) == {V100: 2}
    assert allocation is not None
    # It ends after 1000 / 20 s, and so is worth 20; an empty server costs next to nothing.
    assert (allocation.rate, allocation.payoff) == (10, pytest.approx(20, rel=1e-6))


def test_an_empty_server_is_cheaper_and_at_equal_prices_the_fullest_is_taken() -> None:
    servers = (V100, 4, 4), (V100, 4, 2), (V100, 4, 3)
    for prices, free in ((LOW, 4), (PriceRange(1e-6, 1e-6), 2)):
        allocation, _ = found(ask(2), *servers, prices=prices)
        assert allocation is not None
        assert [(it.free, it.tasks) for it in allocation.takes] == [(free, 2)]


def test_the_price_counts_what_others_have() -> None:
    """Of a server of 4 with 2 in use a GPU costs the geometric mean of lowest and highest."""
    allocation, _ = found(ask(1), (V100, 4, 2), prices=PriceRange(1.0, 9.0))
    assert allocation is not None
    assert allocation.payoff == pytest.approx(10 - 3)


def test_what_is_spread_over_types_goes_at_the_pace_of_the_slowest() -> None:
    allocation, known = found(ask(3), (V100, 2, 2), (K80, 1, 1))
    assert families(allocation, known) == {V100: 2, K80: 1}
    assert allocation is not None
    assert allocation.rate == 4
    assert allocation.payoff == pytest.approx(12 * 0.9, rel=1e-4)


def test_a_wide_gang_takes_whole_servers_first() -> None:
    servers = (V100, 4, 3), (V100, 4, 4), (V100, 4, 2)
    for prices, last in ((LOW, 3), (PriceRange(1e-6, 1e-6), 2)):
        allocation, _ = found(ask(6), *servers, prices=prices)
        assert allocation is not None
        assert [(it.free, it.tasks) for it in allocation.takes] == [(4, 4), (last, 2)]


def test_tasks_of_several_gpus_are_not_split_over_servers() -> None:
    job = ask(2, gpus=2)
    allocation, _ = found(job, (V100, 4, 3), (V100, 4, 3), spread_ppm=0)
    assert allocation is not None
    assert allocation.takes == (Take(0, 3, 1, 2), Take(0, 3, 1, 2))
    assert found(job, (V100, 4, 3), (V100, 4, 1))[0] is None


def test_the_cheapest_candidate_may_be_a_slow_one() -> None:
    servers = (V100, 4, 2), (K80, 4, 4)
    prices = PriceRange(0.01, 1.0)
    fast, known = found(ask(1), *servers, prices=prices)
    assert families(fast, known) == {V100: 1}
    slow, known = found(ask(1), *servers, prices=prices, candidate=Candidate.COST)
    assert families(slow, known) == {K80: 1}


def test_without_room_or_a_type_there_is_nothing() -> None:
    assert found(ask(3), (V100, 2, 2))[0] is None
    only = GpuRequest("a", 1, 10, 10, {V100: 1.0}, {V100: 1})
    assert found(only, (K80, 4, 4))[0] is None


def test_a_full_fleet_of_equals_admits_nobody() -> None:
    """The highest price is the most that anybody earns per GPU, so the last GPUs cost near that."""
    allocation, _ = found(ask(4), (V100, 4, 4), prices=PriceRange(10.0, 10.0))
    assert allocation is not None
    assert allocation.payoff <= 0
