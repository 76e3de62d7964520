"""The loop's time, whatever is done to the clocks of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.loop.clock import DOCUMENT, LoopClock, MachineClocks, TimedJournal
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.store.journal import SqlJournal
from eva_master.model.arithmetic.loop_time import AS_LOOP, Clocks, LoopTime, WallClock
from eva_master.model.changes import Changes, Round
from eva_master.model.events import ClocksMoved, Event, Tick
from eva_wire.values.ids import Millis

HOUR = 3_600_000
NOON = 1_800_000_000_000


@dataclass
class Machine:
    """A machine with clocks of its own, and what really happened beside them.

    Attributes:
        wall_ms: What its wall clock shows; up_ms, awake_ms: likewise the others.
        passed_ms: How much time has really passed since the last boot.
    """

    wall_ms: int = NOON
    up_ms: int = 7_000
    awake_ms: int = 7_000
    boots: int = 1
    passed_ms: int = field(default=0)

    def __call__(self) -> Clocks:
        return Clocks(f"boot-{self.boots}", self.up_ms, self.awake_ms, self.wall_ms)

    def run(self, ms: int) -> None:
        self.awake_ms += ms
        self.sleep(ms)

    def sleep(self, ms: int) -> None:
        self.wall_ms += ms
        self.up_ms += ms
        self.passed_ms += ms

    def set(self, by_ms: int) -> None:
        self.wall_ms += by_ms

    def reboot(self, down_ms: int, wrong_ms: int) -> None:
        self.wall_ms += down_ms + wrong_ms
        self.boots += 1
        self.up_ms = self.awake_ms = 3_000
        self.passed_ms = 0


class Master:
    """A master on that machine, with what is left of it when it is killed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.saved: object = None
        self.clock = LoopClock(machine)

    def write(self) -> None:
        self.saved = self.clock.document()

    def restart(self) -> None:
        self.clock = LoopClock(self.machine, self.saved)


JUMPS = st.integers(-30 * HOUR, 30 * HOUR)
PAUSES = st.integers(0, 20 * HOUR)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), PAUSES),
        st.tuples(st.just("sleep"), PAUSES),
        st.tuples(st.just("set"), JUMPS),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("reboot"), JUMPS),
        st.tuples(st.just("look"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_time_goes_on_as_it_passes_and_never_back(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    master = Master(machine)
    began, since = master.clock.now(), 0
    assert began == NOON
    for step, ms in steps:
        written = master.clock.now()
        match step:
            case "run":
                machine.run(ms)
            case "sleep":
                machine.sleep(ms)
            case "set":
                machine.set(ms)
            case "restart":
                master.write()
                master.restart()
            case "reboot":
                master.write()
                machine.reboot(60_000, ms)
                master.restart()
                now = master.clock.now()
                assert now == max(written, machine.wall_ms)
                began, since = now, machine.passed_ms
            case "look":
                master.clock.look()
                assert master.clock.wall.loop_ms(machine.wall_ms) - master.clock.now() in range(
                    -500, 501
                )
        assert master.clock.now() == began + machine.passed_ms - since
        assert master.clock.now() >= written


def test_a_clock_that_is_set_while_the_master_is_down_changes_nothing() -> None:
    machine = Machine()
    master = Master(machine)
    machine.run(5_000)
    master.write()
    machine.set(-3 * HOUR)
    machine.run(60_000)
    master.restart()
    assert master.clock.now() == NOON + 65_000
    assert master.clock.wall == WallClock(ahead_ms=-3 * HOUR)


def test_a_machine_from_a_snapshot_does_not_go_back() -> None:
    machine = Machine()
    master = Master(machine)
    machine.run(10 * HOUR)
    master.write()
    machine.up_ms -= 9 * HOUR  # the same boot, but earlier
    master.restart()
    assert master.clock.now() == NOON + 10 * HOUR


def test_a_journal_of_before_begins_from_its_latest_record_or_the_wall_clock() -> None:
    machine = Machine()
    assert LoopClock(machine, None, Millis(NOON - 1)).now() == NOON
    behind = LoopClock(machine, None, Millis(NOON + HOUR))
    assert behind.now() == NOON + HOUR
    machine.run(1_000)
    assert behind.now() == NOON + HOUR + 1_000


@pytest.mark.parametrize(
    "document",
    [
        None,
        3,
        [],
        {},
        {"boot": "boot-1", "offset_ms": "x", "latest_ms": 5},
        {"boot": "boot-1", "offset_ms": 10**30, "latest_ms": 5},
    ],
)
def test_a_damaged_document_is_none(document: object) -> None:
    assert LoopClock(Machine(), document).now() == NOON


def test_the_document_is_read_as_it_was_written() -> None:
    time = LoopTime("boot-1", -5, Millis(7))
    assert LoopTime.from_json(time.to_json()) == time


def test_a_clock_that_is_set_is_told_once() -> None:
    machine = Machine()
    clock = LoopClock(machine)
    machine.run(1_000)
    assert clock.look() is None
    machine.set(300)
    assert clock.look() is None, "time servers move it a little all the time"
    machine.set(2 * HOUR - 300)
    told = clock.look()
    assert told == ClocksMoved(WallClock(2 * HOUR, Millis(NOON + 1_000), 2 * HOUR))
    assert clock.look() is None
    machine.set(-3 * HOUR)
    again = clock.look()
    assert again is not None
    assert (again.wall.ahead_ms, again.wall.set_by_ms) == (-HOUR, -3 * HOUR)


def test_moments_are_carried_from_one_clock_to_the_other() -> None:
    wall = WallClock(ahead_ms=2 * HOUR)
    assert wall.of(NOON) == NOON + 2 * HOUR
    assert wall.loop_ms(NOON + 2 * HOUR) == NOON
    assert AS_LOOP.of(NOON) == NOON


def test_the_time_is_in_the_journal_with_all_that_happens(tmp_path: Path) -> None:
    machine = Machine()
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        assert journal.document(DOCUMENT) is None
        assert journal.latest_ms() == 0
        clock = LoopClock(machine)
        machine.run(9_000)
        TimedJournal(journal, clock).commit(Changes(rounds=(Round(1, Millis(NOON), 1, 0, 0),)))
        saved, latest = journal.document(DOCUMENT), journal.latest_ms()
    assert latest == NOON
    machine.reboot(60_000, -8 * HOUR)
    assert LoopClock(machine, saved).now() == NOON + 9_000


class Looks:
    """A clock that stands, and somebody who is told at the third look."""

    def __init__(self) -> None:
        self.times = 0

    def now(self) -> Millis:
        return Millis(0)

    def __call__(self) -> Event | None:
        self.times += 1
        return Tick() if self.times == 3 else None


def test_a_loop_that_waits_for_ever_still_looks_at_the_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eva_master.adapters.loop.inbox._LOOK_S", 0.001)
    looks = Looks()
    assert LiveInbox(looks, looks).wait(None) == [Tick()]


def test_the_clocks_of_this_machine_are_read() -> None:
    read = MachineClocks()
    first, second = read(), read()
    assert first.boot == second.boot != ""
    assert 0 < first.awake_ms <= second.awake_ms
    assert first.awake_ms <= first.up_ms + 1
