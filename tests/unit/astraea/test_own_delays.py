"""Delays that a tenant makes itself: its twin is as late, and the others do not pay for them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from eva_master.model.accounting.worth import Worth
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.resources import Resources
from eva_policies.astraea.requests import RoomRequest
from eva_policies.astraea.standalone_shadow import TwinJob, advance, fits
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family
from tests.unit.astraea.played import Market, Work, alone, spent

HOUR = MILLIS_PER_HOUR
G = Family("g")
QUOTA = {"ana": ((G, 1),)}
WORTH = Worth(100 * MILLION, loses_per_hour=MILLION)


def twin_of(hours: float = 1, *, cpus: int = 1_000, gpus: int = 1, start_ms: int = 0) -> TwinJob:
    """A job of ana's with a task, in its twin."""
    need = {G: Resources(gpus, cpus, 1_024)}
    left = {G: round(hours * HOUR)}
    ask = RoomRequest("j/0", "j", "ana", 1, need, left, (0, "j"), start_ms=start_ms)
    return TwinJob.of([ask], 0, WORTH)


def play(twin: TwinJob, since: float, until: float, rest: int = 0) -> None:
    span = round(since * HOUR), round(until * HOUR)
    advance({"j": twin}, QUOTA, *span, rounds=False, rests={"j": rest})


class TestTwins:
    def test_a_twin_rests_while_the_real_job_waits_for_a_reason_of_its_own(self) -> None:
        twin = twin_of(2)
        play(twin, 0, 1)
        rest = twin.rests(HOUR, held=HOUR // 2)
        play(twin, 1, 2, rest)
        assert twin.left == HOUR // 2
        # Half an hour more of the two that it waits in all is all that passes now.
        assert twin.rests(HOUR // 2, held=2 * HOUR) == HOUR // 2
        assert twin.rests(9 * HOUR, held=2 * HOUR) == HOUR

    def test_a_twin_that_is_done_already_would_have_been_done_so_much_later(self) -> None:
        twin = twin_of(1)
        play(twin, 0, 5)
        assert twin.done == HOUR
        twin.rests(3 * HOUR, held=2 * HOUR)
        assert twin.done == 3 * HOUR
        twin.rests(HOUR, held=None)
        assert twin.done == 4 * HOUR

    def test_failed_attempts_take_the_twin_as_long_as_the_real_job(self) -> None:
        twin = twin_of(2)
        play(twin, 0, 1)
        twin.spoil(HOUR)
        twin.spoil(HOUR)
        play(twin, 1, 10)
        assert twin.done == 3 * HOUR

    def test_a_failed_task_of_an_array_takes_the_twin_as_long_as_one_member(self) -> None:
        need = {G: Resources(1, 0, 0)}
        asks = [RoomRequest(f"j/{n}", "j", "ana", 1, need, {G: HOUR}, (0, "j")) for n in range(4)]
        array = TwinJob.of(asks, 0, WORTH)
        array.spoil(HOUR, one_by_one=True)
        play(array, 0, 20)
        assert array.done == 5 * HOUR

    def test_a_limit_of_its_own_keeps_tasks_of_an_array_back_in_its_twin_too(self) -> None:
        """Of ten tasks two may have a place at a time, on a quota of four GPUs."""
        need = {G: Resources(1, 0, 0)}
        asks = [RoomRequest(f"j/{n}", "j", "ana", 1, need, {G: HOUR}, (0, "j")) for n in range(2)]
        twin = TwinJob.of(asks, 0, WORTH, more=8)
        advance({"j": twin}, {"ana": ((G, 4),)}, 0, 20 * HOUR, rounds=False)
        assert twin.done == pytest.approx(5 * HOUR, abs=1_000)

    def test_failed_attempts_of_a_job_that_the_twin_has_done_take_its_quota_from_others(
        self,
    ) -> None:
        twin, other = twin_of(1), twin_of(1)
        play(twin, 0, 1)
        twin.priority = 1
        twin.spoil(2 * HOUR)
        advance({"a": twin, "b": other}, QUOTA, HOUR, 9 * HOUR, rounds=False)
        assert (twin.done, other.done) == (3 * HOUR, 4 * HOUR)

    @pytest.mark.parametrize("took", [17, 23])
    def test_a_job_that_succeeded_is_as_long_as_it_was_whatever_was_told(self, took: int) -> None:
        """20 s were told, and a start of 47 s assumed that took one: three jobs in a row."""
        jobs = {name: twin_of(20 / 3_600, start_ms=47_000) for name in "abc"}
        ended = (took + 1) * 1_000
        advance(jobs, QUOTA, 0, ended, rounds=False)
        unneeded = {it: job.over(ended, took * 1_000, 1_000) for it, job in jobs.items()}
        assert unneeded == dict.fromkeys("abc", 0)
        advance(jobs, QUOTA, ended, HOUR, rounds=False)
        assert sorted(it.done for it in jobs.values()) == [ended, 2 * ended, 3 * ended]

    def test_a_job_that_needs_more_cpus_than_go_with_the_quota_is_in_no_twin(self) -> None:
        each = {G: Resources(8, 32_000, 64 * 1_024)}
        assert fits(twin_of(cpus=4_000), QUOTA["ana"], each)
        assert not fits(twin_of(cpus=4_001), QUOTA["ana"], each)
        # A job that needs more GPUs than the quota has is one that sharing alone can do.
        assert fits(twin_of(cpus=9_000, gpus=2), QUOTA["ana"], each)


HONEST = [
    Work(f"speech{n}", "speech", 6, dollars=100, loses=3, launch_s=47, arrives=n) for n in range(3)
]
LIE = Work(
    "lie", "vision", 1, dollars=10_000, loses=100, fails=999, fails_after=0, backoff=2, cancelled=60
)


class TestPayments:
    @pytest.mark.parametrize(
        "lie",
        [
            LIE,
            replace(LIE, fails_after=1, backoff=0),
            # Its worth is over long before it is cancelled.
            replace(LIE, dollars=50, loses=50, backoff=9),
            # In the end it succeeds, after all that it has made itself.
            replace(LIE, fails=9, backoff=5, cancelled=None),
            replace(LIE, fails=9, hours=3, fails_after=3, cancelled=None),
            # Room of its own is idle, and it could have been lent.
            replace(LIE, arrives=9),
        ],
    )
    def test_a_tenant_is_not_paid_for_a_delay_of_its_own_making(self, lie: Work) -> None:
        works = [*HONEST, lie]
        market = spent(Market([1, 1, 1], {"vision": 2, "speech": 1}, works, {"settle_s": 3_600}))
        assert market.standing["vision"].received == 0
        assert market.standing["speech"].given == 0
        slack = sum(work.loses for work in HONEST) * MILLION
        assert market.net("speech") >= alone("speech", 1, works) - slack

    @pytest.mark.parametrize("delay", [{"suspended": (1, 60)}, {"waits_for_spot": True}])
    def test_a_twin_rests_while_its_owner_keeps_the_job_back(self, delay: dict[str, Any]) -> None:
        dear = replace(LIE, fails=0, cancelled=None, hours=99, **delay)
        market = Market([1, 1, 1], {"vision": 2, "speech": 1}, [*HONEST, dear]).play(40)
        assert market.memory is not None
        assert market.memory.data["jobs"]["lie"]["away"] == 39 * HOUR  # type: ignore[index, call-overload]
        assert market.standing["vision"].received == 0

    def test_what_is_settled_goes_on_after_a_restart_of_the_master(self) -> None:
        """The memory is JSON, and one of before, without what it did not know, goes on as well."""
        kinds = [{}, {"held", "spoiled", "away", "beside"}]
        nets = []
        for left_out in kinds:
            market = Market([1, 1, 1], {"vision": 2, "speech": 1}, [*HONEST, LIE])
            market.play(5)
            assert market.memory is not None
            data = json.loads(json.dumps(market.memory.data))
            for job in data["jobs"].values():
                for name in left_out:
                    job.pop(name, None)
            market.memory = PolicyMemory(market.memory.policy, market.memory.version, data)
            nets.append(spent(market).net("speech"))
        assert nets[0] == nets[1]
        assert asdict(twin_of())["held"] == 0
