"""The guarantee of the policy `astraea`: twins, and who is made whole out of what."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.model.accounting.worth import Worth
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import TenantBenefit, Transfer
from eva_policies.astraea.requests import RoomRequest
from eva_policies.astraea.settling import Position, Settlement, settle
from eva_policies.astraea.standalone_shadow import TwinJob, advance
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Exact, Family
from tests.unit.astraea.played import DAY, Market, Work

AMOUNT = st.integers(0, 10**12)
EARNED = 10**12
"""More than any tenant of these tests lacks."""
POSITION = st.builds(Position, AMOUNT, AMOUNT, earned=st.just(2 * EARNED))


class TestSettlement:
    def test_who_is_short_is_made_whole_in_proportion_to_the_gains(self) -> None:
        found = settle({"a": lacks(40, 100), "b": Position(190, 100), "c": Position(130, 100)})
        assert found.transfers == (Transfer("b", "a", 45), Transfer("c", "a", 15))
        assert not found.uncovered

    def test_gains_that_are_not_enough_leave_something_owed(self) -> None:
        found = settle({"a": lacks(0, 90), "b": lacks(70, 100), "c": Position(140, 100)})
        assert found.transfers == (Transfer("c", "a", 30), Transfer("c", "b", 10))
        assert found.uncovered == {"a": 60, "b": 20}

    def test_what_may_still_come_is_no_gain(self) -> None:
        assert not settle({"a": lacks(0, 90), "b": Position(200, 100, feared=100)}).transfers
        assert not settle({"a": lacks(0, 90), "b": Position(200, 100, pending=100)}).transfers

    def test_a_tenant_gets_no_more_than_its_lending_earned_and_is_owed_no_more(self) -> None:
        found = settle({"a": Position(0, 90, earned=50), "b": Position(130, 100)})
        assert found.transfers == (Transfer("b", "a", 30),)
        assert found.uncovered == {"a": 20}
        assert settle({"a": Position(0, 90), "b": Position(200, 100)}) == Settlement((), {})

    @settings(max_examples=200, deadline=None)
    @given(positions=st.dictionaries(st.text("abcdef", min_size=1), POSITION, max_size=7))
    def test_nobody_gives_more_than_it_gained_or_gets_more_than_it_lacks(
        self, positions: dict[str, Position]
    ) -> None:
        found = settle(positions)
        after = {name: it.real for name, it in positions.items()}
        for one in found.transfers:
            assert one.amount > 0
            assert one.payer != one.payee
            after[one.payer] -= one.amount
            after[one.payee] += one.amount
        short = 0
        for name, it in positions.items():
            if it.real >= it.twin:
                assert after[name] >= it.twin
            else:
                assert it.real <= after[name] <= it.twin
                assert found.uncovered.get(name, 0) == it.twin - after[name]
                short += it.twin - after[name]
        if short:
            assert all(after[it] <= one.twin for it, one in positions.items())


def lacks(real: int, twin: int) -> Position:
    """The position of a tenant that may get all that it lacks."""
    return Position(real, twin, earned=EARNED)


def unlucky(**options: object) -> Market:
    """Ana's job runs for two days on bob's room and pays; her own quota waits for her second job.

    Bob is away for that long, and what he earns is all that is gained.
    """
    return Market(
        [2, 2],
        {"ana": 2, "bob": 2},
        [
            Work("one", "ana", 40, most=2, dollars=200, loses=1),
            Work("two", "bob", 40, most=2, dollars=200, loses=1),
            Work("late", "bob", 400, most=4, dollars=9000, loses=3),
        ],
        dict(options),
    )


class TestTwins:
    def test_a_twin_has_its_jobs_done_on_the_quota_alone(self) -> None:
        """40 hours of work on two GPUs are 20 hours; on four they would be 10."""
        market = Market(
            [2, 2],
            {"ana": 2, "bob": 2},
            [
                Work("one", "ana", 40, most=4, dollars=200, loses=1),
                Work("b", "bob", 90, arrives=30),
            ],
        )
        market.play(30)
        assert market.done["one"] == 10
        market.play(1)
        assert market.memory is not None
        assert market.memory.data["twin"] == {"ana": pytest.approx((200 - 20) * MILLION, abs=100)}

    def test_within_a_quota_the_twin_is_as_good_as_the_cluster(self) -> None:
        market = Market(
            [2],
            {"ana": 2},
            [
                Work("a", "ana", 7, most=2, loses=1),
                Work("b", "ana", 12, most=2, loses=3),
                Work("c", "ana", 5, most=2, loses=2, arrives=3),
            ],
        ).to_end()
        market.play(1)
        assert market.memory is not None
        slack = 4 * MILLION  # within the slot in which a job ends
        assert 0 <= market.memory.data["twin"]["ana"] - market.net("ana") <= slack

    def test_memory_is_json_and_holds_no_jobs_that_both_have_done(self) -> None:
        market = unlucky().to_end(600)
        market.play(3)
        assert market.memory is not None
        assert json.loads(json.dumps(market.memory.data)) == market.memory.data
        assert not [job for job in market.memory.data["jobs"].values() if job["done"]]  # type: ignore[union-attr]

    def test_a_cancelled_job_counts_in_no_twin(self) -> None:
        """Else whoever cancels dear jobs would be made whole for them."""
        works = [
            Work("dear", "ana", 300, most=2, dollars=90_000, loses=1),
            Work("b", "bob", 300, most=2, dollars=900, loses=1),
        ]
        market = Market([2, 2], {"ana": 2, "bob": 2}, works)
        market.play(100)
        market.cancel("dear")
        market.play(4 * DAY)
        assert market.memory is not None
        assert "dear" not in market.memory.data["jobs"]
        assert not market.memory.data["twin"].get("ana")  # type: ignore[union-attr]
        assert market.standing["ana"].received == 0

    def test_a_job_of_unknown_length_is_done_in_no_twin_before_it_really_is(self) -> None:
        unknown = Work("unknown", "ana", 300, most=2, dollars=9000, loses=1, known=False)
        market = Market([2, 2], {"ana": 2, "bob": 2}, [unknown]).play(100)
        assert market.memory is not None
        assert market.memory.data["jobs"]["unknown"]["done"] == 0  # type: ignore[index, call-overload]


class TestGuarantee:
    def robbed(self, market: Market, dollars: int, earned: int) -> None:
        """Ana has earned something from bob, and paid him so much more than that."""
        back, paid = (Exact(it * MILLION * 3_600_000) for it in (earned, earned + dollars))
        ana, bob = market.standing["ana"], market.standing["bob"]
        market.standing["ana"] = replace(
            ana, paid=Exact(ana.paid + paid), earned=Exact(ana.earned + back)
        )
        market.standing["bob"] = replace(
            bob, earned=Exact(bob.earned + paid), paid=Exact(bob.paid + back)
        )

    def test_once_a_day_a_tenant_is_made_whole_out_of_what_others_gained(self) -> None:
        market = unlucky().play(20)
        self.robbed(market, 50, earned=30)
        market.play(DAY)
        # She lacks 50, and gets what her lending has earned.
        assert market.standing["ana"].received == 30 * MILLION
        assert market.standing["ana"].received == market.standing["bob"].given

    def test_without_the_guarantee_nothing_is_settled(self) -> None:
        market = unlucky(guarantee=False).play(20)
        self.robbed(market, 50, earned=30)
        market.play(2 * DAY)
        assert market.standing["ana"].received == 0
        assert market.memory is None

    def test_what_gains_do_not_cover_is_carried_forward_and_lending_stops_meanwhile(self) -> None:
        market = unlucky().play(22)
        ana = market.standing["ana"]
        hours = 10**9 * 3_600_000
        market.standing["ana"] = replace(
            ana, paid=Exact(ana.paid + 2 * hours), earned=Exact(ana.earned + hours)
        )
        market.play(2 * DAY)
        owed = market.plans[-1].figures["owed:ana"]
        assert isinstance(owed, int)
        assert owed > 100 * MILLION
        assert market.members("late") <= 2, "ana's idle GPUs are not lent"
        market.standing["ana"] = TenantBenefit(received=10**12)
        market.play(DAY + 1)
        assert "owed:ana" not in market.plans[-1].figures
        assert market.members("late") == 4

    @settings(max_examples=15, deadline=None)
    @given(
        works=st.lists(
            st.tuples(
                st.sampled_from(["ana", "bob", "cy"]),
                st.integers(1, 60),
                st.integers(2, 8),
                st.integers(1, 40),
                st.integers(0, 30),
            ),
            min_size=2,
            max_size=8,
        )
    )
    def test_nobody_ends_worse_off_than_alone_if_all_are_better_off_together(
        self, works: list[tuple[str, int, int, int, int]]
    ) -> None:
        """All but what a slot that is begun costs each job, since twins end within slots."""
        market = Market(
            [4, 4, 4],
            {"ana": 4, "bob": 4, "cy": 4},
            [
                Work(f"j{n}", tenant, hours, most=most, loses=loses / 10, arrives=arrives)
                for n, (tenant, hours, most, loses, arrives) in enumerate(works)
            ],
        ).to_end(400)
        market.play(10 * DAY)
        assert market.memory is not None
        twin = market.memory.data["twin"]
        assert isinstance(twin, dict)
        slack = sum(loses for *_, loses, _ in works) * MILLION // 10
        together = sum(map(market.net, market.quotas)) - sum(twin.values())  # type: ignore[arg-type]
        assert together >= -slack
        for name in market.quotas:
            assert market.net(name) >= twin.get(name, 0) - slack, name  # type: ignore[operator]


QUOTA = {"ana": ((Family("g"), 1),)}


class TestUntrueLengths:
    def test_a_twin_is_not_done_before_the_job_that_takes_longer_than_was_told(self) -> None:
        """An hour was told; the real one has run for two, and in the end for ten."""
        twin = _told_an_hour()
        advance({"j": twin}, QUOTA, 0, 5 * MILLIS_PER_HOUR, rounds=False)
        assert twin.done == MILLIS_PER_HOUR
        twin.seen(MILLIS_PER_HOUR)
        assert twin.done == MILLIS_PER_HOUR
        twin.seen(2 * MILLIS_PER_HOUR)
        assert (twin.done, twin.guessed) == (0, True)
        twin.seen(10 * MILLIS_PER_HOUR)
        twin.over(12 * MILLIS_PER_HOUR, 10 * MILLIS_PER_HOUR, 0)
        until = 30 * MILLIS_PER_HOUR
        advance({"j": twin}, QUOTA, 12 * MILLIS_PER_HOUR, until, rounds=False)
        # It still has nine of ten hours to do.
        assert twin.done == 21 * MILLIS_PER_HOUR

    def test_what_is_about_as_long_as_was_told_counts_as_told(self) -> None:
        twin = _told_an_hour()
        twin.seen(round(1.09 * MILLIS_PER_HOUR))
        assert not twin.guessed

    def test_what_really_ended_is_not_looked_at_again(self) -> None:
        twin = _told_an_hour()
        twin.over(MILLIS_PER_HOUR, MILLIS_PER_HOUR, 0)
        twin.seen(9 * MILLIS_PER_HOUR)
        assert not twin.guessed


def _told_an_hour() -> TwinJob:
    need = {Family("g"): Resources(1, 0, 0)}
    ask = RoomRequest("j/0", "j", "ana", 1, need, {Family("g"): MILLIS_PER_HOUR}, (0, "j"))
    return TwinJob.of([ask], 0, Worth(100 * MILLION, loses_per_hour=MILLION))
