"""Of the work with little time to lose only a share is in one spot pool."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.features.deadlines.slack import slack
from eva_master.control.machine import Machine
from eva_master.learning.market.pools import SpotPool
from eva_master.model.events import JobSubmitted, Tick
from eva_master.packing.deadlines.thin_work import ThinWork
from eva_wire.text.quantities import parse_share
from eva_wire.values.ids import MILLION, JobId, Millis
from tests.unit.control.test_control_cloud import SPOT, launched
from tests.unit.deadlines.test_market_choice import HOUR, JOB, machine, within

A, B = SpotPool("x", "za"), SpotPool("x", "zb")
HALF = MILLION // 2
SECOND = JobId("second-2")


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([(), (A,), (B,), (A, B)]), st.integers(1, 9))
    )
)
def test_sums_are_those_of_the_jobs_that_are_there(
    puts: list[tuple[int, tuple[SpotPool, ...], int]],
) -> None:
    work, there = ThinWork(), dict[int, tuple[tuple[SpotPool, ...], int]]()
    for job, pools, amount in puts:
        if amount == 9:
            work.drop(JobId(str(job)))
            there.pop(job, None)
        else:
            work.put(JobId(str(job)), pools, amount)
            there[job] = pools, amount
    total = sum(amount for _, amount in there.values())
    for pool in (A, B):
        held = sum(amount for pools, amount in there.values() if pool in pools)
        assert work.is_crowded(pool, HALF) == (2 * held > total)
        assert work.is_crowded(pool, HALF, more=3) == (2 * (held + 3) > total)


def second(event: JobSubmitted) -> JobSubmitted:
    return replace(event, command="second", spec=replace(event.spec, name="second"))


def reserve_ms() -> int:
    it = machine()
    it.handle([within(3)], Millis(0))
    stands = slack(it.state, it.state.jobs[JOB], Millis(0), it.settings)
    assert stands is not None
    return stands.reserve_ms


def submitted_thin(it: Machine, *, much: bool = False) -> None:
    """Two jobs with time for one change only, or for many."""
    hours = 2 + reserve_ms() / HOUR * (20 if much else 1.8)
    it.handle([within(hours), second(within(hours))], Millis(0))


@pytest.mark.parametrize(
    ("share_ppm", "much", "kept"),
    [
        (MILLION, False, [False, False]),
        (HALF, True, [False, False]),
        # The first would be all such work in the one pool that there is; then half of it may be.
        (HALF, False, [True, False]),
        (HALF - 1, False, [True, True]),
        (0, False, [True, True]),
    ],
)
def test_a_share_of_them_is_kept_off_a_pool(share_ppm: int, much: bool, kept: list[bool]) -> None:
    it = machine(pool_share_ppm=share_ppm)
    submitted_thin(it, much=much)
    assert [it.state.jobs[name].buys.kept for name in (JOB, SECOND)] == kept


def test_who_gets_little_time_on_the_way_is_looked_at_then() -> None:
    it = machine(pool_share_ppm=HALF)
    launched(it, it.handle([within(9)], Millis(0)), SPOT, 1)
    assert not it.state.jobs[JOB].buys.kept
    alarm = it.next_alarm()
    assert alarm is not None
    stands = slack(it.state, it.state.jobs[JOB], Millis(0), it.settings)
    assert stands is not None
    assert alarm <= stands.slack_ms - stands.reserve_ms + 1
    it.handle([Tick()], alarm)
    assert it.state.jobs[JOB].buys.kept


@pytest.mark.parametrize(("text", "ppm"), [("0%", 0), ("12.5%", 125_000), ("100%", MILLION)])
def test_shares_are_read(text: str, ppm: int) -> None:
    assert parse_share(text) == ppm


@pytest.mark.parametrize("text", ["101%", "-1%", "0.5", 50, "50 %"])
def test_what_is_no_share(text: object) -> None:
    with pytest.raises(ValueError, match="not a part of a whole"):
        parse_share(text)
