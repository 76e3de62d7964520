"""Rounds of the policy `astraea` on small markets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.model.planning.plan import Assign, Hold, Plan, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.plan_checks import check
from eva_wire.values.ids import MILLION
from tests.unit.astraea.played import Market, Work

NAMES = ("ana", "bob", "cy")


@st.composite
def markets(draw: st.DrawFn, most_jobs: int = 6) -> Market:
    """Two or three tenants with a node each, and jobs that come in the first slots."""
    tenants = NAMES[: draw(st.integers(2, 3))]
    quotas = {name: draw(st.sampled_from([1, 2, 4])) for name in tenants}
    works = []
    for number in range(draw(st.integers(1, most_jobs))):
        least = draw(st.sampled_from([1, 1, 2]))
        works.append(
            Work(
                f"j{number}",
                draw(st.sampled_from(tenants)),
                draw(st.integers(1, 30)),
                most=least + draw(st.integers(1, 6)),
                least=least,
                loses=draw(st.integers(1, 50)) / 10,
                arrives=draw(st.integers(0, 3)),
            )
        )
    return Market(quotas.values(), quotas, works)


def gpus_of(market: Market) -> Counter[str]:
    return Counter(market.known[run.split("/")[0]].tenant for run in market.places)


class TestOwnQuota:
    def test_a_lender_gets_its_quota_back_in_the_same_plan(self) -> None:
        market = Market(
            [2, 2],
            {"ana": 2, "bob": 2},
            [
                Work("long", "ana", 100, most=4),
                Work("back", "bob", 10, most=2, arrives=1),
            ],
        )
        market.round()
        assert market.members("long") == 4
        market.round()
        assert market.members("back") == 2
        assert market.members("long") == 2

    @pytest.mark.parametrize("pricing", ["clearing", "posted", "none"])
    def test_a_job_that_cannot_give_room_back_in_time_is_lent_none(self, pricing: str) -> None:
        market = Market(
            [2, 2, 1],
            {"ana": 2, "bob": 2},
            [Work("held", "ana", 100, most=5, loses=40, unlent="slow"), Work("short", "ana", 9)],
            {"pricing": pricing, "posted_usd_per_hour": 1.0},
        )
        market.round()
        # Its own quota and what belongs to no tenant, but nothing of what others leave idle.
        assert market.members("short") == 1
        assert market.members("held") == 3

    def test_a_job_that_is_lent_nothing_sets_no_price(self) -> None:
        others = [Work("back", "bob", 100, most=1), Work("low", "ana", 100, loses=2)]
        for unlent, price in (("", 2 * MILLION), ("too slow", 0)):
            market = Market(
                [1, 1],
                {"ana": 0, "bob": 2},
                [Work("hostage", "ana", 100, loses=8, unlent=unlent), *others],
            )
            market.round()
            assert market.plans[0].figures["price:g"] == price

    def test_a_suspension_names_the_job_that_has_its_quota_back(self) -> None:
        market = Market(
            [2],
            {"ana": 0, "bob": 2},
            [
                Work("long", "ana", 100, most=2, least=2),
                Work("back", "bob", 10, most=2, least=2, arrives=1),
            ],
        )
        market.sizes = {"long": 2, "back": 2}
        market.round()
        assert market.members("long") == 2
        plan = market.round()
        told = [it for it in plan.entries if isinstance(it, Suspend)]
        assert told
        assert {(it.job, it.reason) for it in told} == {(None, "bob has its quota back, for back")}
        assert market.members("back") == 2

    def test_of_borrowers_that_are_alike_the_latest_gives_way_first(self) -> None:
        """Also while both are under their leases."""
        market = Market(
            [1, 1, 1],
            {"ana": 0, "bob": 0, "cy": 3},
            [
                Work("a-later", "ana", 100, arrives=1),
                Work("b-first", "bob", 100),
                Work("back", "cy", 10, most=2, least=2, arrives=2),
            ],
            {"lease_s": 7 * 3600},
        )
        market.sizes = {"back": 2}
        market.play(3)
        assert market.members("b-first") == 1
        assert market.members("a-later") == 0
        assert market.members("back") == 2

    def test_a_borrower_that_is_never_recalled_keeps_what_it_has(self) -> None:
        market = Market(
            [2],
            {"ana": 0, "bob": 2},
            [Work("long", "ana", 6, most=2), Work("back", "bob", 10, most=2, arrives=1)],
            {"recall": "never"},
        )
        market.play(3)
        assert market.members("back") == 0
        market.play(1)
        assert market.members("back") == 2

    @settings(max_examples=40, deadline=None)
    @given(market=markets())
    def test_nobody_is_above_its_quota_while_a_lender_waits(self, market: Market) -> None:
        for _ in range(6):
            market.round()
            assert market.snapshot is not None
            used = gpus_of_snapshot(market.snapshot)
            waits = [job for job in market.snapshot.jobs if not placed(market.snapshot, job.id)]
            above = {name for name, gpus in used.items() if gpus > market.quotas[name]}
            for job in waits:
                room = market.quotas[job.spec.tenant] - used[job.spec.tenant]
                assert not above or market.known[job.id].least > room, (job.id, used)


def placed(snapshot: Snapshot, job: str) -> int:
    return sum(run.job == job and run.instance is not None for run in snapshot.runs)


def gpus_of_snapshot(snapshot: Snapshot) -> Counter[str]:
    tenants = {job.id: job.spec.tenant for job in snapshot.jobs}
    return Counter(tenants[run.job] for run in snapshot.runs if run.instance is not None)


class TestPrices:
    def market(self, **options: object) -> Market:
        """Four GPUs of cy are idle; ana's job has more to lose than bob's, dee's has most."""
        return Market(
            [4],
            {"ana": 0, "bob": 0, "cy": 4},
            [
                Work("dear", "ana", 8, most=4, least=1, loses=8),
                Work("cheap", "bob", 8, most=4, least=1, loses=2),
            ],
            dict(options),
        )

    def test_the_price_is_what_waiting_costs_the_best_that_gets_nothing(self) -> None:
        plan = self.market().round()
        # Two dollars an hour for four GPUs, of which it got none.
        assert plan.figures["price:g"] == 500_000
        assert [(it.job, it.gpus, it.lenders) for it in plan.loans.terms] == [
            ("dear", 4, (("cy", 4 * 500_000),))
        ]

    def test_nothing_is_paid_while_something_stays_idle(self) -> None:
        market = self.market()
        market.works = [*list(market.works)[:1]]
        plan = market.round()
        assert plan.figures["price:g"] == 0
        assert [it.per_hour for it in plan.loans.terms] == [0]

    def test_without_prices_nobody_pays(self) -> None:
        plan = self.market(pricing="none").round()
        assert [it.per_hour for it in plan.loans.terms] == [0]

    def test_a_job_to_which_waiting_costs_less_does_not_borrow(self) -> None:
        """It would come first by the work that it has left, and leaves the room to others."""
        market = Market(
            [2],
            {"ana": 0, "bob": 0, "cy": 2},
            [
                Work("short", "ana", 0.5, loses=0.1),
                Work("one", "bob", 50, loses=8),
                Work("two", "bob", 60, loses=9),
            ],
        )
        plan = market.round()
        assert plan.figures["price:g"] == 8_000_000
        assert market.members("short") == 0
        assert market.members("one") == market.members("two") == 1

    def test_posted_prices_grow_with_the_share_in_use(self) -> None:
        """With a theta of 16 a quarter costs 0, 1, 3 and 7 dollars: who cannot pay waits."""
        market = Market(
            [4],
            {"ana": 0, "cy": 4},
            [Work(f"j{n}", "ana", 8, loses=3, arrives=0) for n in range(4)],
            {"pricing": "posted", "posted_usd_per_hour": 15.0},
        )
        plan = market.round()
        assert [it.per_hour for it in plan.loans.terms] == pytest.approx(
            [0, MILLION, 3 * MILLION], abs=30
        )

    @settings(max_examples=40, deadline=None)
    @given(market=markets())
    def test_what_is_paid_is_earned_and_prices_are_never_negative(self, market: Market) -> None:
        for _ in range(6):
            snapshot = market.seen()
            plan = market.round()
            check_money(market, snapshot)
            for one in plan.loans.terms:
                assert one.per_hour >= 0
                assert sum(one.lent) <= 1000 * one.gpus
                assert one.lenders == tuple(sorted(one.lenders))
                assert all(amount >= 0 for _, amount in one.lenders)
            idle = sum(market.nodes) - sum(gpus_of_snapshot(market.snapshot).values())  # type: ignore[arg-type]
            if idle:
                assert not sum(it.per_hour for it in plan.loans.terms)


def check_money(market: Market, snapshot: Snapshot) -> None:
    told = market.standing.values()
    assert sum(it.paid for it in told) == sum(it.earned for it in told)
    assert sum(it.given for it in told) == sum(it.received for it in told)
    assert snapshot.tenants


class TestNames:
    @settings(max_examples=25, deadline=None)
    @given(market=markets(), order=st.permutations(NAMES))
    def test_tenants_of_other_names_get_the_same(self, market: Market, order: list[str]) -> None:
        new = dict(zip(NAMES, order, strict=True))
        other = Market(
            market.nodes,
            {new[name]: quota for name, quota in market.quotas.items()},
            [replace(work, tenant=new[work.tenant]) for work in market.works],
        )
        for _ in range(5):
            plan, renamed = market.round(), other.round()
            assert unnamed(plan) == unnamed(renamed)
            assert plan.sizes == renamed.sizes
            assert [(it.job, it.gpus) for it in plan.loans.terms] == [
                (it.job, it.gpus) for it in renamed.loans.terms
            ]


def unnamed(plan: Plan) -> list[object]:
    """What a plan does; its reasons name tenants."""
    return [replace(it, reason="") if hasattr(it, "reason") else it for it in plan.entries]


class TestOneRound:
    @settings(max_examples=30, deadline=None)
    @given(market=markets(most_jobs=4))
    def test_no_other_choice_is_better_for_one_and_worse_for_nobody(self, market: Market) -> None:
        """Pareto, by exhaustion: nobody can have more members unless somebody has fewer."""
        works = [replace(it, arrives=0) for it in market.works]
        market = Market(market.nodes, market.quotas, works, {"pricing": "none"})
        market.round()
        total = sum(market.quotas.values())
        assert market.snapshot is not None
        has = {work.name: placed(market.snapshot, work.name) for work in works}
        free = total - sum(has.values())
        for work in works:
            more = max(1, work.least - has[work.name])
            assert has[work.name] == work.most or more > free

    @settings(max_examples=30, deadline=None)
    @given(market=markets())
    def test_nobody_has_less_in_a_round_than_its_quota_would_give_it(self, market: Market) -> None:
        """Sharing incentive, counted in members: sharing takes nothing that alone would run."""
        works = [replace(it, arrives=0) for it in market.works]
        market = Market(market.nodes, market.quotas, works)
        market.round()
        for name, quota in market.quotas.items():
            own = [it for it in works if it.tenant == name]
            alone = Market([quota], {name: quota}, own)
            alone.round()
            for work in own:
                assert market.members(work.name) >= alone.members(work.name) or (
                    work.name in market.done
                )


def test_plans_are_lawful() -> None:
    market = Market(
        [2, 4, 8],
        {"ana": 4, "bob": 10},
        [
            Work(f"j{n}", NAMES[n % 2], 20 + n, most=5, loses=1 + n, arrives=n // 2)
            for n in range(8)
        ],
    )
    for _ in range(12):
        snapshot = market.seen()
        plan = market.round()
        if not plan.sizes:
            check(snapshot, plan)
        assert all(isinstance(it, Assign | Hold | Suspend) for it in plan.entries)


def test_nothing_moves_once_everybody_has_what_it_can_use() -> None:
    market = Market(
        [4, 4],
        {"ana": 4, "bob": 4},
        [Work("a", "ana", 500, most=3), Work("b", "bob", 400, most=4, arrives=1)],
    )
    market.play(3)
    for _ in range(5):
        plan = market.round()
        assert not plan.sizes
        assert not plan.entries


def test_a_restart_for_more_members_has_to_pay_within_an_hour() -> None:
    """A second of 50 members is not worth ten minutes of all of them."""
    slow = Work("a", "ana", 5000, most=50, launch_s=500, checkpoint_s=100)
    market = Market([49, 1], {"ana": 49, "bob": 1}, [slow, Work("b", "bob", 1.0)])
    market.play(4)
    assert market.members("a") == 49
    free = replace(slow, launch_s=0, checkpoint_s=0)
    market = Market([49, 1], {"ana": 49, "bob": 1}, [free, Work("b", "bob", 1.0)])
    market.play(4)
    assert market.members("a") == 50


def test_jobs_of_unknown_length_borrow_last_and_pay_like_others() -> None:
    unknown = Work("unknown", "ana", 1, loses=50, known=False)
    market = Market([1], {"ana": 0, "cy": 1}, [unknown, Work("known", "ana", 90, loses=0.1)])
    market.round()
    assert market.members("known") == 1
    market = Market([1], {"ana": 0, "cy": 1}, [unknown, replace(unknown, name="v", loses=5)])
    plan = market.round()
    assert [(it.job, it.per_hour) for it in plan.loans.terms] == [("unknown", 5_000_000)]


def test_whoever_waits_is_told_what_it_would_take() -> None:
    market = Market(
        [1], {"ana": 0, "cy": 1}, [Work("a", "ana", 10, loses=8), Work("b", "ana", 10, loses=2)]
    )
    plan = market.round()
    (told,) = [it for it in plan.entries if isinstance(it, Hold)]
    assert told.reason == (
        "others lose more by waiting: it would run now if an hour of waiting cost it $8.00 "
        "instead of $2.00"
    )
