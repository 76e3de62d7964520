"""What jobs cost on spot instances, and how often they were interrupted there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.catalog import Offering
from eva_master.model.changes import JobAccount
from eva_master.model.events import InstanceGone, InstanceInterrupted
from eva_wire.values.ids import JobId, Millis
from tests.unit.control.test_control_cloud import CATALOG, FIRST, SPOT, ZONES, machine, running

JOB = JobId("job-1")
GONE = InstanceGone(FIRST, None, Millis(80_000), "taken back", reclaimed=True)


def account(it: Machine, seconds: int) -> JobAccount:
    return ledger.job_account(it.state, JOB, Millis(1_000 * seconds))


@pytest.mark.parametrize("on", [SPOT, ZONES[0]])
def test_the_part_for_spot_instances(on: Offering) -> None:
    it = machine()
    running(it, on)
    after = account(it, 120)
    assert after.busy_ms == 100_000
    if on is not SPOT:
        assert (after.spot, after.spot_ms, after.listed) == (0, 0, 0)
        return
    assert (after.spot, after.spot_ms) == (after.charged, after.busy_ms)
    # A dollar on demand in place of 40 cents.
    assert after.charged % 400_000 == 0
    assert after.listed == after.charged * 5 // 2


@pytest.mark.parametrize("notice", [True, False])
def test_an_interruption_is_counted_once(notice: bool) -> None:
    it = machine()
    running(it, SPOT)
    if notice:
        it.handle([InstanceInterrupted(FIRST, 2, Millis(80_000), "interruption")], Millis(40_000))
        assert account(it, 40).interruptions == 1
        it.handle([InstanceInterrupted(FIRST, 2, Millis(80_000), "interruption")], Millis(41_000))
    it.handle([GONE], Millis(80_000))
    assert account(it, 100).interruptions == 1


def test_it_is_on_record() -> None:
    it = machine()
    running(it, SPOT)
    it.handle([GONE], Millis(80_000))
    before = account(it, 80)
    assert before.spot > 0
    again = State.restored(CATALOG, it.take_changes())
    assert replace(again.job_accounts[JOB]) == before
