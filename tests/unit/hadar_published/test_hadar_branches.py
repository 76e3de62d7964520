from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from eva_policies.hadar_published.branches import Given, Refused, allocate
from eva_policies.hadar_published.find_alloc import Allocator, Candidate
from eva_policies.hadar_published.prices import extremes, price_ranges
from eva_policies.hadar_published.requests import GpuRequest, Utility
from eva_policies.hadar_published.servers import Kind, Server, free_of, kinds, seats
from eva_wire.values.ids import Family
from tests.fakes.fleets.exact_round import Gang, most_utility

TYPES = tuple(Family(it) for it in ("k80", "p100", "v100"))
HORIZON_S = 360_000.0


def fleet(servers: int, gpus: int) -> list[Server]:
    return [
        Server(f"{it}-{number}", Kind(it, gpus), gpus) for it in TYPES for number in range(servers)
    ]


def drawn(seed: int, number: int, most: int = 4) -> list[GpuRequest]:
    draw = random.Random(seed)
    found = []
    for index in range(number):
        rates = {it: draw.choice([1.0, 2.0, 3.0, 5.0, 8.0]) for it in TYPES}
        tasks = draw.choice([it for it in (1, 1, 2, 3, 4) if it <= most])
        size = draw.choice([500.0, 4_000.0, 30_000.0])
        found.append(GpuRequest(f"{index:03}", tasks, size, size, rates, dict.fromkeys(TYPES, 1)))
    return found


def allocator(
    asks: Sequence[GpuRequest], servers: Sequence[Server], spread_ppm: int = 0
) -> Allocator:
    capacity = {it: sum(s.kind.capacity for s in servers if s.kind.family == it) for it in TYPES}
    prices = price_ranges(extremes(asks, Utility.THROUGHPUT, HORIZON_S), capacity, None)
    return Allocator(kinds(servers), prices, Utility.THROUGHPUT, spread_ppm, Candidate.PAYOFF)


def chosen(
    asks: Sequence[GpuRequest],
    servers: Sequence[Server],
    most: int = 4,
    refused: Refused = Refused.WAITS,
) -> list[Given]:
    free = free_of(servers, kinds(servers))
    return allocate(asks, allocator(asks, servers), free, most, refused)


def utility(given: Sequence[Given]) -> float:
    return sum(it.ask.size / it.ask.ends_s(it.allocation.rate) for it in given)


# -- the dynamic programme -------------------------------------------------------------------------


@dataclass
class Plain:
    """Both choices for each job, over plain lists of servers, with no branch left out."""

    asks: Sequence[GpuRequest]
    servers: Sequence[Server]
    known: Allocator
    tried: int = 0

    def best(self, index: int = 0) -> float:
        return self._best(index, tuple(self.servers))

    def _best(self, index: int, servers: tuple[Server, ...]) -> float:
        self.tried += 1
        if index == len(self.asks):
            return 0.0
        skipped = self._best(index + 1, servers)
        ask, names = self.asks[index], kinds(self.servers)
        one = self.known.find(ask, self.known.shape(ask), free_of(servers, names))
        if one is None or one.payoff <= 0:
            return skipped
        places = seats([(ask.name, one.takes)], servers, {})[ask.name]
        after = tuple(replace(it, free=it.free - places.get(it.name, 0)) for it in servers)
        return max(skipped, one.payoff + self._best(index + 1, after))


@pytest.mark.parametrize("seed", range(6))
def test_with_all_branches_kept_nothing_earns_more(seed: int) -> None:
    asks, servers = drawn(seed, 9), fleet(1, 3)
    plain = Plain(asks, servers, allocator(asks, servers))
    given = chosen(asks, servers, most=10_000)
    assert sum(it.allocation.payoff for it in given) == pytest.approx(plain.best())
    assert plain.tried > 100


@pytest.mark.parametrize("seed", range(4))
def test_what_is_chosen_fits(seed: int) -> None:
    asks, servers = drawn(seed, 30, most=3), fleet(2, 4)
    for refused in Refused:
        given = chosen(asks, servers, refused=refused)
        assert len({it.ask.name for it in given}) == len(given)
        places = seats([(it.ask.name, it.allocation.takes) for it in given], servers, {})
        for it in given:
            assert sum(places[it.ask.name].values()) == it.ask.tasks
        for server in servers:
            assert sum(where.get(server.name, 0) for where in places.values()) <= server.free


def test_more_branches_earn_no_less_here() -> None:
    asks, servers = drawn(3, 40), fleet(2, 4)
    earned = [sum(it.allocation.payoff for it in chosen(asks, servers, n)) for n in (1, 4, 64)]
    assert earned == sorted(earned)
    assert earned[0] < earned[2]


# -- those that do not pay -------------------------------------------------------------------------


def _crowd() -> list[GpuRequest]:
    """A fast job, one that is worth nothing beside it, and a fast one again, on a server of 3."""
    rates = ((100.0, "fast"), (0.01, "slow"), (100.0, "last"))
    return [
        GpuRequest(
            name, 1, 1e6 * rate, 1e6 * rate, dict.fromkeys(TYPES, rate), dict.fromkeys(TYPES, 1)
        )
        for rate, name in rates
    ]


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (Refused.WAITS, ["fast", "last"]),
        (Refused.ENDS, ["fast"]),
        (Refused.FILLS, ["fast", "last", "slow"]),
    ],
)
def test_a_job_that_does_not_pay(refused: Refused, expected: list[str]) -> None:
    server = [Server("s", Kind(TYPES[0], 3), 3)]
    given = chosen(_crowd(), server, most=1, refused=refused)
    assert [it.ask.name for it in given] == expected


# -- against the exact optimum ---------------------------------------------------------------------


def exact(asks: Sequence[GpuRequest], servers: Sequence[Server]) -> float:
    gangs = [
        Gang(
            it.tasks,
            {str(name): it.size / it.ends_s(rate) for name, rate in it.rates.items()},
            {str(name): rate for name, rate in it.rates.items()},
        )
        for it in asks
    ]
    counts = {str(it): sum(s.free for s in servers if s.kind.family == it) for it in TYPES}
    return most_utility(gangs, counts)


@pytest.mark.parametrize("seed", range(4))
def test_no_round_earns_more_than_the_optimum(seed: int) -> None:
    asks, servers = drawn(seed, 40), fleet(2, 4)
    most = exact(asks, servers)
    per_gpu = sorted(asks, key=lambda it: -max(it.rates.values()))
    for queue in (asks, per_gpu):
        assert 0.5 * most <= utility(chosen(queue, servers, most=1)) <= most * (1 + 1e-6)


def test_the_optimum_of_a_round_by_hand() -> None:
    """Two GPUs, of which one is twice as fast for one gang: the other one takes the other."""
    gangs = [
        Gang(1, {"a": 4.0, "b": 2.0}, {"a": 2, "b": 1}),
        Gang(1, {"a": 4.0, "b": 3.5}, {"a": 2, "b": 1}),
    ]
    assert most_utility(gangs, {"a": 1, "b": 1}) == pytest.approx(7.5)
    # A gang of two goes at the pace of the slower one, and then leaves nothing.
    gangs.append(Gang(2, {"a": 20.0, "b": 8.0}, {"a": 2, "b": 1}))
    assert most_utility(gangs, {"a": 1, "b": 1}) == pytest.approx(8.0)


# -- which servers are meant -----------------------------------------------------------------------


def test_who_may_stay_stays() -> None:
    asks = [replace(it, tasks=2, rates=dict.fromkeys(TYPES, 1.0)) for it in drawn(1, 3)]
    servers = [Server(f"s{n}", Kind(TYPES[0], 2), 2) for n in range(4)]
    given = [(it.ask.name, it.allocation.takes) for it in chosen(asks, servers)]
    homes = {"000": {"s3": 2}, "002": {"s0": 2}}
    assert seats(given, servers, homes) == {"000": {"s3": 2}, "001": {"s1": 2}, "002": {"s0": 2}}


def test_the_order_of_servers_changes_nothing() -> None:
    asks, servers = drawn(5, 20), fleet(2, 4)
    given = [(it.ask.name, it.allocation.takes) for it in chosen(asks, servers)]
    assert given == [
        (it.ask.name, it.allocation.takes) for it in chosen(asks, list(reversed(servers)))
    ]
    assert seats(given, servers, {}) == seats(given, list(reversed(servers)), {})
