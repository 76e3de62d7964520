"""One round of the published algorithm, beside the paper's example and exhaustive search."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from eva_master.model.resources import Resources
from eva_policies.astraea_published.calendar import Calendar, CalendarServer
from eva_policies.astraea_published.clock import round_at
from eva_policies.astraea_published.incomes import divided
from eva_policies.astraea_published.requests import Bandwidth, Request, Schedule
from eva_policies.astraea_published.rounds import Ledger, TypeQuota, scheduled
from eva_policies.astraea_published.schedules import TypeLimit, best
from eva_policies.astraea_published.theta import LEAST, Full, density, rounds_of
from eva_wire.values.ids import MILLION, Family

GPU = Family("gpu")
ONE = Resources(1, 0, 0)
EVEN = Bandwidth(1, 1)
THETA_16 = Full(15 * MILLION, 15 * MILLION)


def fleet(sizes: Sequence[int], slots: int, ps: int = 1, full: Full = THETA_16) -> Calendar:
    """Servers with so many GPUs each."""
    return Calendar([CalendarServer(None, Resources(it, 0, 0)) for it in sizes], slots, ps, full)


def job(
    name: str = "a",
    tenant: str = "u1",
    *,
    work: float,
    most: int,
    least: int = 1,
    apart: float = 1.0,
    worth: Callable[[int], int],
    slots: int,
    trains: bool = False,
    came: int = 0,
) -> Request:
    """A job of so many GPU-slots; members on several servers do `apart` times as much."""

    def lengths(_family: Family, members: int, spread: bool) -> int:
        return int(np.ceil(work / (members * (apart if spread else 1.0)) - 1e-9))

    values = tuple(worth(slot + 1) for slot in range(slots))
    came_at = (0, came, name)
    return Request(name, tenant, {GPU: ONE}, least, most, lengths, values, came_at, trains)


def falling(first: float, per_slot: float) -> Callable[[int], int]:
    """Worth so much at once, and so much less in each slot."""
    return lambda slot: max(0, round(MILLION * (first - per_slot * slot)))


def anything(calendar: Calendar) -> dict[Family, TypeLimit]:
    """No limit but what there is."""
    return {GPU: TypeLimit(np.full(calendar.slots, 1 << 20), np.full(calendar.slots, 1 << 20))}


# -- the worked example of sections 4.2 to 4.4 -----------------------------------------------------


def example() -> Ledger:
    """Round 1 of batch 2 after each user's first job: four servers of two workers and a PS."""
    calendar = fleet((2, 2, 2, 2), 4)
    quotas = {name: {GPU: TypeQuota(4, 2)} for name in ("u1", "u2")}
    ledger = Ledger({GPU: calendar}, quotas)
    for tenant, server, slots in (("u1", 0, (0, 2)), ("u2", 1, (2, 4))):
        calendar.take(server, *slots, ONE, 2)
        calendar.take_ps(server, *slots, 1)
        ledger.use(tenant, GPU, slice(*slots), 2, 1)
    return ledger


def test_the_example_s_prices() -> None:
    calendar = example().calendars[GPU]
    assert calendar.gpu_prices().tolist() == pytest.approx([MILLION] * 4)  # 16^(2/8) - 1
    assert calendar.ps_prices().tolist() == pytest.approx([MILLION] * 4)  # 16^(1/4) - 1


def test_the_example_s_first_job() -> None:
    """Two workers of one server for two slots are worth 96, apart for four slots 92."""
    calendar = fleet((2, 2, 2, 2), 4)
    small = job(work=4, most=2, apart=0.5, worth=falling(100, 2), slots=4, trains=True)
    found = best(small, {GPU: calendar}, anything(calendar), EVEN)
    assert found is not None
    assert (found.start, found.end, found.payoff) == (0, 2, 96 * MILLION)
    assert len(found.members) == 1


def test_the_example_s_cost_and_incomes() -> None:
    """Three workers and a PS for four slots cost 16; of that u2 gets 8."""
    ledger = example()
    calendar, limits = ledger.calendars[GPU], ledger.lent()
    third = job(work=6, least=3, most=3, apart=0.5, worth=falling(100, 2), slots=4, trains=True)
    found = best(third, ledger.calendars, limits, EVEN)
    assert found is not None
    assert (found.start, found.end, found.size) == (0, 4, 3)
    assert found.cost == pytest.approx(16 * MILLION)
    assert found.payoff == pytest.approx((92 - 16) * MILLION)
    assert limits[GPU].gpus.tolist() == [6] * 4
    assert limits[GPU].ps.tolist() == [3] * 4
    idle = {name: ledger.idle(name, GPU) for name in ("u1", "u2")}
    income = divided(found, 3, calendar.gpu_prices(), calendar.ps_prices(), idle)
    earned = dict(income.earned)
    assert sum(earned.values()) == found.cost
    assert earned["u2"] == pytest.approx(8 * MILLION)


def test_the_example_s_batch() -> None:
    """Jobs that came in slot 3 are of batch 2, which is scheduled in two rounds from 8 to 16."""
    rounds = [round_at(slot, 2) for slot in range(8, 16)]
    assert [(it.batch, it.number, it.start, it.end) for it in rounds if it is not None] == [
        *[(2, 1, 8, 12)] * 4,
        *[(2, 2, 12, 16)] * 4,
    ]


@pytest.mark.parametrize("rounds", [1, 2, 3, 192])
def test_each_slot_is_in_one_round(rounds: int) -> None:
    assert all(round_at(slot, rounds) is None for slot in range(rounds))
    slot, seen = rounds, []
    while slot < 40 * rounds:
        found = round_at(slot, rounds)
        assert found is not None
        assert found.start == slot
        assert 1 <= found.number <= rounds
        assert found.slots == 1 << found.batch
        assert all(round_at(it, rounds) == found for it in range(found.start, found.end))
        seen.append(found.key)
        slot = found.end
    assert seen == sorted(set(seen))


# -- prices ----------------------------------------------------------------------------------------


def test_a_full_cluster_admits_nothing() -> None:
    """At theta told from the densest job no job is worth what all of a cluster costs."""
    dense = density(100 * MILLION, gpu_slots=8, slots=4)
    assert dense == Full(12_500_000, 25 * MILLION)
    assert 8 * dense.gpu >= 100 * MILLION
    assert LEAST.raised([dense]) == dense
    assert [dense.times(it * 10_000).gpu for it in (80, 100, 120)] == [
        10_000_000,
        12_500_000,
        15_000_000,
    ]


def test_lambda_by_the_formula() -> None:
    """By hand: f sums to 1,000, the least is 10, theta 16 for both, so sigma is 11.09."""
    worths = [10 * MILLION, 490 * MILLION, 500 * MILLION, 0]
    assert rounds_of(worths, THETA_16) == 50  # ceil(4.605 / 0.0945) + 1
    assert rounds_of(worths[:1], THETA_16) == 1


# -- exhaustive search -----------------------------------------------------------------------------


def payoffs(request: Request, calendar: Calendar, link: Bandwidth) -> list[int]:
    """What every schedule pays: all starts, all ways to place members and parameter servers."""
    room = calendar.room(ONE).tolist()
    ps = calendar.ps.tolist()
    gpu_prices, ps_prices = calendar.gpu_prices().tolist(), calendar.ps_prices().tolist()
    found = []
    servers = range(len(room))
    for placed in itertools.product(range(request.most + 1), repeat=len(room)):
        members, spread = sum(placed), sum(map(bool, placed)) > 1
        if not request.least <= members <= request.most or not members:
            continue
        length = request.lengths(GPU, members, spread)
        for start in range(calendar.slots - length + 1):
            window = range(start, start + length)
            if any(placed[s] > room[s][t] for s in servers for t in window):
                continue
            cost = sum(members * gpu_prices[t] for t in window)
            value = request.worth[start + length - 1]
            if not request.trains:
                found.append(value - cost)
                continue
            for home in servers:
                for count in range(1, 5):
                    free = all(ps[home][t] >= count for t in window)
                    remote = members - placed[home]
                    if spread and remote < 1:
                        continue
                    if free and remote * link.worker_mbps <= count * link.ps_mbps:
                        found.append(value - cost - count * sum(ps_prices[t] for t in window))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_pays_better(seed: int) -> None:
    draw = random.Random(seed)
    slots = draw.randint(2, 5)
    calendar = fleet([draw.randint(1, 3) for _ in range(3)], slots, ps=draw.randint(1, 2))
    for _ in range(draw.randint(0, 3)):
        start = draw.randrange(slots)
        server = draw.randrange(3)
        if calendar.room(ONE)[server, start:].min() > 0:
            calendar.take(server, start, slots, ONE, 1)
    request = job(
        work=draw.choice((1, 2, 3, 4, 6)),
        most=draw.randint(1, 4),
        apart=draw.choice((0.5, 1.0)),
        worth=falling(draw.choice((3, 10, 60)), draw.choice((0.5, 2))),
        slots=slots,
        trains=draw.random() < 0.6,
    )
    link = Bandwidth(1, draw.choice((1, 2, 3)))
    found = best(request, {GPU: calendar}, anything(calendar), link)
    every = payoffs(request, calendar, link)
    assert (None if found is None else found.payoff) == max(every, default=None)
    if found is not None:
        assert found.payoff == request.worth[found.end - 1] - found.cost


# -- what the round keeps to -----------------------------------------------------------------------


def drawn(draw: random.Random, slots: int, tenants: Sequence[str]) -> list[Request]:
    """Some jobs that fit into a round."""
    return [
        job(
            f"j{number}",
            draw.choice(list(tenants)),
            work=draw.choice((1, 2, 3, 4, 6, 8)),
            most=draw.randint(1, 4),
            apart=draw.choice((0.5, 1.0)),
            worth=falling(draw.choice((1, 4, 20, 60)), draw.choice((0.2, 2))),
            slots=slots,
            trains=draw.random() < 0.5,
            came=number,
        )
        for number in range(draw.randint(2, 4))
    ]


def market(draw: random.Random, slots: int, tenants: int) -> Ledger:
    """Servers of one GPU that belong to tenants evenly."""
    each = draw.randint(1, 3)
    names = [f"u{number}" for number in range(tenants)]
    calendar = fleet([1] * (each * tenants), slots, ps=1, full=Full(4 * MILLION, 3 * MILLION))
    return Ledger({GPU: calendar}, {name: {GPU: TypeQuota(each, each)} for name in names})


@pytest.mark.parametrize("seed", range(30))
def test_no_report_of_a_job_gains(seed: int) -> None:
    """With prices and order fixed; one stage, since all is one tenant's."""
    draw = random.Random(seed)
    slots = 4
    jobs = drawn(draw, slots, ["u0"])
    jobs[-1] = replace(jobs[-1], worth=tuple(it + MILLION for it in jobs[-1].worth))
    sizes = draw.randint(2, 4)

    def true_payoff(told: Request) -> int:
        """What the last job has of a round in which it tells this."""
        calendar = fleet([1] * sizes, slots, full=Full(4 * MILLION, 3 * MILLION))
        ledger = Ledger({GPU: calendar}, {"u0": {GPU: TypeQuota(sizes, sizes)}})
        found = scheduled(ledger, [*jobs[:-1], told], EVEN).get(told.id)
        if found is None:
            return 0
        schedule = found.schedule
        spread = len(schedule.members) > 1
        needed = jobs[-1].lengths(GPU, schedule.size, spread)
        # One that is cut off is worth nothing; nor are more workers than it can use of any use.
        if schedule.size > jobs[-1].most:
            needed = jobs[-1].lengths(GPU, jobs[-1].most, spread)
        enough = schedule.end - schedule.start >= needed
        carried = not jobs[-1].trains or schedule.ps is not None
        done = jobs[-1].worth[schedule.start + needed - 1] if enough and carried else 0
        return done - schedule.cost

    honest = true_payoff(jobs[-1])
    assert honest >= 0
    for _ in range(12):
        lie = job(
            jobs[-1].id,
            "u0",
            work=draw.choice((1, 2, 3, 5, 8, 10)),
            most=draw.randint(1, 5),
            apart=draw.choice((0.5, 1.0)),
            worth=falling(draw.choice((0.5, 4, 20, 90)), draw.choice((0.1, 2, 4))),
            slots=slots,
            trains=jobs[-1].trains,
            came=jobs[-1].came[1],
        )
        assert true_payoff(lie) <= honest


@pytest.mark.parametrize("seed", range(30))
def test_nobody_could_be_added_and_what_is_paid_is_earned(seed: int) -> None:
    draw = random.Random(seed)
    ledger = market(draw, 4, tenants=2)
    jobs = drawn(draw, 4, ["u0", "u1"])
    found = scheduled(ledger, jobs, EVEN)
    calendar = ledger.calendars[GPU]
    assert calendar.room(ONE).min() >= 0
    assert calendar.ps.min() >= 0
    assert min(calendar.gpu_prices().tolist()) >= 0
    for request in jobs:
        if request.id not in found and not request.worthless:
            assert max(payoffs(request, calendar, EVEN), default=0) <= 0
    for admitted in found.values():
        if admitted.income is not None:
            assert sum(amount for _, amount in admitted.income.earned) == admitted.schedule.cost
            assert sum(admitted.income.lent) <= 1000 * admitted.income.gpus


@pytest.mark.parametrize("seed", range(20))
def test_a_tenant_has_at_least_what_it_would_have_alone(seed: int) -> None:
    """Where prices steer nobody: whatever others do, its own quota serves it as if it was alone."""
    draw = random.Random(seed)
    jobs = drawn(draw, 4, ["u0", "u1"])
    nearly_free = Full(1, 1)

    def own(requests: Sequence[Request], tenants: int) -> dict[str, Schedule]:
        calendar = fleet([1] * (2 * tenants), 4, full=nearly_free)
        quotas = {f"u{number}": {GPU: TypeQuota(2, 2)} for number in range(tenants)}
        found = scheduled(Ledger({GPU: calendar}, quotas), requests, EVEN, share=False)
        return {name: it.schedule for name, it in found.items()}

    mine = [it for it in jobs if it.tenant == "u0"]
    together, alone = own(jobs, 2), own(mine, 1)
    times = {name: (it.start, it.end, it.size) for name, it in alone.items()}
    assert {
        name: (it.start, it.end, it.size) for name, it in together.items() if name in times
    } == times


def test_who_is_worth_nothing_runs_at_the_end() -> None:
    """Else it would be refused in every round."""
    ledger = market(random.Random(0), 4, tenants=2)
    dear = job("dear", "u0", work=2, most=1, worth=falling(50, 1), slots=4)
    stale = job("stale", "u1", work=2, most=1, worth=falling(0, 0), slots=4, came=1)
    found = scheduled(ledger, [stale, dear], EVEN)
    assert found.keys() == {"dear", "stale"}
    assert found["stale"].income is None


def test_without_sharing_a_job_stays_in_its_quota() -> None:
    """BatchSche: what the other tenant leaves is of no use to it."""
    wide = job("wide", "u0", work=8, least=4, most=4, worth=falling(50, 1), slots=4)
    quotas = {name: {GPU: TypeQuota(2, 2)} for name in ("u0", "u1")}
    for share in (True, False):
        ledger = Ledger({GPU: fleet([1] * 4, 4)}, quotas)
        assert bool(scheduled(ledger, [wide], EVEN, share=share)) is share
