"""The wall clock of a live master."""

from __future__ import annotations

import time

from eva_master.model.ids import Millis


class SystemClock:
    """The machine's clock, as `eva_master.ports.Clock`."""

    def now(self) -> Millis:
        """See `eva_master.ports.Clock.now`."""
        return Millis(time.time_ns() // 1_000_000)
