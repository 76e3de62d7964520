"""Dates of EC2 in the master's time, whatever the clocks of its machine say."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from eva_master.adapters.ec2.client import Aws, Ec2Client
from eva_master.adapters.ec2.cloud_time import CloudTime
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.control.machine import Machine
from eva_master.control.state.store import State
from eva_master.model.events import InstanceGone, InstanceUp
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis
from tests.unit.control.test_control_cloud import CATALOG, FIRST, ZONES, launched, submitted
from tests.unit.deadlines.test_market_choice import machine

HOUR = 3_600_000
NOON = 1_800_000_000_000


class Clock:
    """The loop's time."""

    def __init__(self) -> None:
        self.ms = NOON

    def now(self) -> Millis:
        return Millis(self.ms)


def dated(at_ms: int) -> dict[str, Any]:
    """An answer of EC2, which tells whole seconds."""
    date = format_datetime(datetime.fromtimestamp(at_ms // 1000, UTC), usegmt=True)
    return {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}


def heard(time: CloudTime, clock: Clock, ahead_ms: int, takes_ms: int = 200) -> None:
    """An answer of EC2, whose clock is so far ahead of the loop's time."""
    asked_ms = time.asked()
    clock.ms += takes_ms
    time.answered(asked_ms, dated(clock.ms - takes_ms // 2 + ahead_ms))


@pytest.mark.parametrize("ahead_ms", [-900, 0, 900, 1_900])
def test_clocks_that_agree_change_nothing(ahead_ms: int) -> None:
    clock = Clock()
    time = CloudTime(clock)
    for _ in range(20):
        heard(time, clock, ahead_ms)
        clock.ms += 777
    assert time.loop_ms(12_345) == 12_345
    assert time.cloud_ms(12_345) == 12_345


@pytest.mark.parametrize("ahead_ms", [-3 * HOUR, -9_000, 9_000, 2 * HOUR])
def test_times_of_a_clock_that_is_apart_are_carried_over(ahead_ms: int) -> None:
    clock = Clock()
    time = CloudTime(clock)
    heard(time, clock, ahead_ms)
    carried = time.loop_ms(NOON + ahead_ms)
    assert abs(carried - NOON) <= 1_000
    assert time.cloud_ms(carried) == NOON + ahead_ms
    for _ in range(20):
        clock.ms += 777
        heard(time, clock, ahead_ms)
    assert time.loop_ms(NOON + ahead_ms) == carried, "equal answers stay equal"
    assert abs(time.now().timestamp() * 1000 - (clock.ms + ahead_ms)) <= 1_000


def test_a_slow_answer_tells_less() -> None:
    clock = Clock()
    time = CloudTime(clock)
    heard(time, clock, 0, takes_ms=60_000)
    assert time.loop_ms(5) == 5


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"ResponseMetadata": "x"},
        {"ResponseMetadata": {}},
        {"ResponseMetadata": {"HTTPHeaders": {"date": "soon"}}},
        {"ResponseMetadata": {"HTTPHeaders": {"date": 5}}},
    ],
)
def test_an_answer_without_a_date_tells_nothing(answer: object) -> None:
    time = CloudTime(Clock())
    time.answered(time.asked(), answer)
    assert time.loop_ms(5) == 5


class Listing:
    """EC2 that lists one instance which ran for 50 minutes; its clock is two hours ahead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def describe_instances(self, **_request: Any) -> dict[str, Any]:
        ended = datetime.fromtimestamp((NOON + 2 * HOUR) / 1000, UTC)
        instance = {
            "InstanceId": "i-0a",
            "State": {"Name": "terminated"},
            "LaunchTime": datetime.fromtimestamp((NOON + 2 * HOUR - 3_000_000) / 1000, UTC),
            "StateTransitionReason": f"User initiated ({ended:%Y-%m-%d %H:%M:%S} GMT)",
            "Tags": [{"Key": "eva:instance", "Value": "i-1"}, {"Key": "eva:up", "Value": "1"}],
        }
        listed = {"Reservations": [{"Instances": [instance]}]}
        return listed | dated(self._clock.ms + 2 * HOUR)


def test_listings_have_the_loops_times() -> None:
    clock = Clock()
    settings = Ec2Settings(cluster="c", region="eu-west-1")
    aws = Aws(settings, threading.Event(), lambda _settings, _service: Listing(clock), clock)
    (seen,) = Ec2Client(aws, settings).instances()
    assert seen.ended_ms is not None
    assert seen.up_ms is not None
    assert abs(seen.ended_ms - NOON) <= 1_000
    assert seen.ended_ms - seen.up_ms == 3_000_000


def up_at(up_ms: int) -> Machine:
    """An instance that is up."""
    it = machine()
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(up_ms))], Millis(up_ms))
    return it


def test_a_bill_is_the_time_between_the_clouds_own_times() -> None:
    it = up_at(10_000)
    # Meanwhile the master began anew with another time, two hours behind the cloud's.
    it.handle(
        [InstanceGone(FIRST, Millis(10_000 + 2 * HOUR), Millis(3 * HOUR + 10_000))], Millis(HOUR)
    )
    account = it.state.instance_accounts[FIRST]
    assert account.closed
    assert account.charged == ZONES[0].price * HOUR
    assert account.charged / MILLIS_PER_HOUR == ZONES[0].price
    assert it.state.instances[FIRST].gone_ms == HOUR + 10_000
    assert State.restored(CATALOG, it.take_changes()).instances[FIRST].gone_ms == HOUR + 10_000
