"""The time of the control loop: milliseconds since the epoch that never jump and never go back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eva_wire.values.ids import Millis

_JITTER_MS = 500
"""A wall clock that is off by less was not set: it is slewed, or was read a moment later."""
_MOST_MS = 2**53
"""Largest time that counts: the year 287396."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a machine, read at one moment.

    Attributes:
        boot: Names the boot of the machine; no other boot of any machine has this name.
        up_ms: CLOCK_BOOTTIME: time since the boot, also while asleep. Nothing sets this clock.
        awake_ms: CLOCK_MONOTONIC: time since the boot, except while asleep.
        wall_ms: CLOCK_REALTIME: time since the epoch. Users and time servers set this clock.
    """

    boot: str
    up_ms: int
    awake_ms: int
    wall_ms: int

    @property
    def slept_ms(self) -> int:
        """How long the machine has slept since its boot."""
        return self.up_ms - self.awake_ms


@dataclass(frozen=True, slots=True)
class LoopTime:
    """The time of a control loop, as its journal holds it.

    Within a boot it is CLOCK_BOOTTIME and an offset that is decided once, whoever sets the wall
    clock. The offset is journalled, so a restart of the master changes nothing. A new boot begins
    from the wall clock, or from the journal's latest time if that is later.

    Attributes:
        boot: The boot that the offset is for.
        offset_ms: From CLOCK_BOOTTIME to this time.
        latest_ms: The latest time that anything was written down at.
    """

    boot: str
    offset_ms: int
    latest_ms: Millis

    @classmethod
    def begun(
        cls, clocks: Clocks, saved: LoopTime | None = None, latest_ms: Millis = Millis(0)
    ) -> LoopTime:
        """The time of a master that starts.

        Args:
            clocks: As they are now.
            saved: The journal's; `None` if it has none.
            latest_ms: The latest time among the journal's other records, for one without.
        """
        if saved is not None:
            latest_ms = max(latest_ms, saved.latest_ms)
            goes_on = saved.boot == clocks.boot
            # A machine that was restored from a snapshot has its old boot, and less of it.
            if goes_on and saved.offset_ms + clocks.up_ms >= latest_ms:
                return replace(saved, latest_ms=latest_ms)
        now = max(latest_ms, clocks.wall_ms)
        return cls(clocks.boot, now - clocks.up_ms, latest_ms)

    def at(self, clocks: Clocks) -> Millis:
        """The time at which clocks of the same boot were read."""
        return Millis(max(clocks.up_ms + self.offset_ms, self.latest_ms))

    def ahead_ms(self, clocks: Clocks) -> int:
        """By how much the wall clock is ahead of this time; negative if it is behind."""
        return clocks.wall_ms - self.at(clocks)

    def noted(self, now: Millis) -> LoopTime:
        """This time, with `now` as the latest time written down if it is later."""
        return self if now <= self.latest_ms else replace(self, latest_ms=now)

    def to_json(self) -> dict[str, int | str]:
        """Convert it to a document of the journal."""
        return {"boot": self.boot, "offset_ms": self.offset_ms, "latest_ms": self.latest_ms}

    @classmethod
    def from_json(cls, document: object) -> LoopTime | None:
        """Read the document of `to_json`; `None` if it is none, or damaged."""
        match document:
            case {"boot": str(boot), "offset_ms": int(offset), "latest_ms": int(latest)} if (
                abs(offset) < _MOST_MS and 0 <= latest < _MOST_MS
            ):
                return cls(boot, offset, Millis(latest))
            case _:
                return None


@dataclass(frozen=True, slots=True)
class WallClock:
    """How the wall clock stands to the loop's time, and since when.

    Attributes:
        ahead_ms: By how much it is ahead; negative if it is behind.
        set_ms: When it was set last while the master looked, by the loop's time; `None` if it was
            not.
        set_by_ms: By how much; negative if it was set back.
    """

    ahead_ms: int = 0
    set_ms: Millis | None = None
    set_by_ms: int = 0

    def of(self, at_ms: int) -> Millis:
        """Time that the wall clock shows at a moment of the loop's time."""
        return Millis(at_ms + self.ahead_ms)

    def loop_ms(self, wall_ms: int) -> Millis:
        """The loop's time at which the wall clock shows a time, unless it is set until then."""
        return Millis(wall_ms - self.ahead_ms)

    def seen(self, ahead_ms: int, now: Millis) -> WallClock:
        """This clock after another look; it is this very value unless the wall clock was set."""
        moved = ahead_ms - self.ahead_ms
        return self if abs(moved) < _JITTER_MS else WallClock(ahead_ms, now, moved)


AS_LOOP = WallClock()
"""A wall clock that shows the loop's time, as in every simulation."""
