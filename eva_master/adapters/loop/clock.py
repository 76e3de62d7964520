"""The clocks of a live master: the wall clock, and the control loop's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from eva_master.model.arithmetic.loop_time import AS_LOOP, Clocks, LoopTime, WallClock
from eva_master.model.changes import Changes
from eva_master.model.events import ClocksMoved
from eva_master.model.planning.plan import Json
from eva_master.ports import Journal
from eva_wire.values.durations import span
from eva_wire.values.ids import Millis

DOCUMENT = "clock"
"""Name of the journal's document that holds the loop's time."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MILLION = 1_000_000
_SLEEP_MS = 1_000
"""A shorter time is no sleep, and no difference that users have to know of."""

log = structlog.get_logger(__name__)


class SystemClock:
    """The machine's wall clock, as `eva_master.ports.Clock`.

    The wall clock is for certificates, which other machines check by their own clocks.
    """

    def now(self) -> Millis:
        """See `eva_master.ports.Clock.now`."""
        return Millis(time.time_ns() // _MILLION)


class MachineClocks:
    """Reads all clocks of this machine."""

    def __init__(self) -> None:
        self._boot = _BOOT_ID.read_text(encoding="ascii").strip()

    def __call__(self) -> Clocks:
        """Read them, one right after the other."""
        return Clocks(
            self._boot,
            up_ms=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _MILLION,
            awake_ms=time.monotonic_ns() // _MILLION,
            wall_ms=time.time_ns() // _MILLION,
        )


class LoopClock:
    """The control loop's time, as `eva_master.ports.Clock`; any thread may ask.

    Args:
        read: Reads the clocks of this machine.
        saved: The journal's document; `None` if it has none.
        latest_ms: The latest time among the journal's other records.

    Attributes:
        wall: The wall clock, as of the last look.
        journal_ms: The latest time on record when the master started.
    """

    def __init__(
        self, read: Callable[[], Clocks], saved: object = None, latest_ms: Millis = Millis(0)
    ) -> None:
        self._read = read
        clocks = read()
        self._time = LoopTime.begun(clocks, LoopTime.from_json(saved), latest_ms)
        self.journal_ms = self._time.latest_ms
        ahead = AS_LOOP.seen(self._time.ahead_ms(clocks), self._time.at(clocks)).ahead_ms
        self.wall = WallClock(ahead)
        self._slept_ms = clocks.slept_ms
        if ahead:
            log.warning(
                "the wall clock and the journal's time are apart: the master keeps its own time",
                wall_clock=_apart(ahead),
            )

    def now(self) -> Millis:
        """See `eva_master.ports.Clock.now`."""
        return self._time.at(self._read())

    def look(self) -> ClocksMoved | None:
        """Compare the clocks with each other; for the loop's thread only.

        Returns:
            Changes since the look before; `None` if all went on alike.
        """
        clocks = self._read()
        seen = self.wall.seen(self._time.ahead_ms(clocks), self._time.at(clocks))
        slept_ms = clocks.slept_ms - self._slept_ms
        if slept_ms < _SLEEP_MS:
            slept_ms = 0
        else:
            self._slept_ms = clocks.slept_ms
            log.warning("this machine was asleep", slept=span(slept_ms))
        if seen is self.wall and not slept_ms:
            return None
        if seen is not self.wall:
            log.warning(
                "the wall clock was set: deadlines at a time of day follow it, nothing else does",
                by=_signed(seen.set_by_ms),
                wall_clock=_apart(seen.ahead_ms),
            )
        self.wall = seen
        return ClocksMoved(seen, slept_ms)

    def document(self) -> dict[str, int | str]:
        """Readings to be journalled with everything that happens now; for one thread only."""
        self._time = self._time.noted(self.now())
        return self._time.to_json()


class TimedJournal:
    """A journal that writes the loop's time down with each of its changes.

    Args:
        journal: The one that is written.
        clock: The loop's.
    """

    def __init__(self, journal: Journal, clock: LoopClock) -> None:
        self._journal = journal
        self._clock = clock

    def load(self, since: Millis | None = None) -> Changes:
        """See `eva_master.ports.Journal.load`."""
        return self._journal.load(since)

    def commit(self, changes: Changes) -> None:
        """See `eva_master.ports.Journal.commit`."""
        clock: Json = {**self._clock.document()}
        self._journal.commit(replace(changes, values={**changes.values, DOCUMENT: clock}))


def _signed(ms: int) -> str:
    return f"{_rounded(ms)} {'forward' if ms > 0 else 'back'}"


def _apart(ms: int) -> str:
    noticeable = abs(ms) >= _SLEEP_MS
    return f"{_rounded(ms)} {'ahead' if ms > 0 else 'behind'}" if noticeable else "level"


def _rounded(ms: int) -> str:
    """A difference of clocks, which are read one after the other, to the second."""
    return span((abs(ms) + 500) // 1000 * 1000)
