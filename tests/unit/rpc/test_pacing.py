"""What one user gets of the users' port, by a clock that the test sets."""

from __future__ import annotations

import asyncio

import pytest

from eva_master.adapters.rpc.server.admission import pacing
from eva_master.adapters.rpc.server.admission.pacing import Pacing, UserLimits
from eva_wire.rpc.methods import CallLine
from eva_wire.values.errors import Busy


class Timer:
    """A monotonic clock that only a sleep moves on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Timer:
    timer = Timer()
    monkeypatch.setattr(pacing.asyncio, "sleep", timer.sleep)
    return timer


async def calls(pace: Pacing, owner: str, count: int) -> None:
    for _ in range(count):
        (await pace.begin(owner, CallLine.CALLS))()


async def test_calls_in_the_long_run_come_at_the_rate_and_bursts_at_once(timer: Timer) -> None:
    pace = Pacing(UserLimits(calls_per_second=10), now=timer)
    await calls(pace, "ann", 50)
    assert timer.slept == []
    await calls(pace, "ann", 101)
    assert timer.now == pytest.approx(1010.0, abs=0.2)


async def test_others_are_not_held_up(timer: Timer) -> None:
    pace = Pacing(UserLimits(calls_per_second=10), now=timer)
    await calls(pace, "ann", 60)
    slept = len(timer.slept)
    assert slept
    await calls(pace, "bob", 40)
    assert len(timer.slept) == slept


async def test_whoever_is_much_too_fast_is_told_when_to_come_back() -> None:
    now = 5.0
    pace = Pacing(UserLimits(calls_per_second=1), now=lambda: now)
    begun = [asyncio.ensure_future(pace.begin("ann", CallLine.CALLS)) for _ in range(30)]
    await asyncio.sleep(0)
    refused = [it.exception() for it in begun if it.done() and it.exception()]
    assert refused
    assert all(isinstance(error, Busy) for error in refused)
    last = refused[-1]
    assert isinstance(last, Busy)
    assert last.retry_after_ms >= 2_000
    assert f"try again in {last.retry_after_ms / 1000:.1f} s" in last.message
    for it in begun:
        it.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    assert pace._user("ann").in_line == 0


async def test_calls_at_once_wait_for_each_other_and_end_once() -> None:
    pace = Pacing(UserLimits())
    ends = [await pace.begin("ann", CallLine.CALLS) for _ in range(pacing.AT_ONCE[CallLine.CALLS])]
    waiting = asyncio.ensure_future(pace.begin("ann", CallLine.CALLS))
    await asyncio.sleep(0)
    assert not waiting.done()
    # Neither others wait for them, nor what has another line.
    (await pace.begin("bob", CallLine.CALLS))()
    for line in (CallLine.FILES, CallLine.UPLOADS, CallLine.TOKENS, CallLine.STREAMS):
        (await pace.begin("ann", line))()
    ends[0]()
    (await waiting)()


async def test_streams_of_a_user_are_limited_and_given_back() -> None:
    pace = Pacing(UserLimits(streams=3))
    ends = [await pace.begin("ann", CallLine.STREAMS) for _ in range(3)]
    with pytest.raises(Busy, match="ann has 3 open streams") as refused:
        await pace.begin("ann", CallLine.STREAMS)
    assert "limits.streams" in refused.value.hint
    (await pace.begin("bob", CallLine.STREAMS))()
    ends[0]()
    (await pace.begin("ann", CallLine.STREAMS))()


async def test_all_users_together_have_so_many_streams() -> None:
    pace = Pacing(UserLimits(streams=2))
    for owner in range(10):
        for _ in range(2):
            await pace.begin(f"user{owner}", CallLine.STREAMS)
    with pytest.raises(Busy, match="master has too many"):
        await pace.begin("one more", CallLine.STREAMS)


async def test_messages_of_a_user_come_at_a_rate_and_hold_up_no_other(timer: Timer) -> None:
    pace = Pacing(now=timer)
    for _ in range(500):  # Five seconds' worth come as fast as all users' together.
        await pace.message("ann")
    assert timer.now == pytest.approx(1000.5, abs=0.1)
    for _ in range(1_000):
        await pace.message("ann")
    assert timer.now == pytest.approx(1010.0, abs=0.2)
    begun = timer.now
    for _ in range(20):
        await pace.message("bob")
    assert timer.now == begun


async def test_messages_of_all_users_leave_time_for_calls(timer: Timer) -> None:
    pace = Pacing(now=timer)
    for _ in range(3):
        for number in range(1_000):
            await pace.message(f"user-{number}")
    assert timer.now == pytest.approx(1003.0, abs=0.1)


async def test_watches_of_all_jobs_are_given_back() -> None:
    pace = Pacing(UserLimits(watches_of_all=1))
    for _ in range(2):
        with (
            pace.all_jobs("ann"),
            pytest.raises(Busy, match="ann watches all jobs 1 times"),
            pace.all_jobs("ann"),
        ):
            raise AssertionError


async def test_submissions_that_are_large_together_are_refused_for_a_while(timer: Timer) -> None:
    pace = Pacing(now=timer)
    for _ in range(31):
        pace.submission("ann", 1_000_000)
    with pytest.raises(Busy, match="100,000 characters a second") as refused:
        pace.submission("ann", 10)
    assert refused.value.retry_after_ms == pytest.approx(10_000, abs=1)
    pace.submission("bob", 1_000_000)
    timer.now += 10.001
    pace.submission("ann", 1_000_000)
    with pytest.raises(Busy):
        pace.submission("ann", 10)
