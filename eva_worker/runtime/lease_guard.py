"""The supervisor's part in fencing an owned node: it kills what no parent of its own kills."""

from __future__ import annotations

import time

import structlog

from eva_worker.process import lease
from eva_worker.runtime.registry import runtime
from eva_worker.settings import Settings

_AGAIN_S = 1.0
_LOOK_S = 1.0
_SURE = 2
"""So many looks in a row that find nothing: a request of the agent's may still be on its way."""

_log = structlog.get_logger()


class LeaseGuard:
    """Watches the lease of an owned node whose runtime has to be told when it runs out.

    Args:
        settings: The worker's.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runtime = runtime(settings.runtime)
        self._path = str(settings.lease_file.absolute())
        self._fenced: lease.Lease | None = None
        needed = settings.owned and self._runtime.fenced_by_supervisor
        self._timer = lease.Timer() if needed else None

    def patience_s(self) -> float | None:
        """Set the timer, and say when to look again at the latest; `None` for at its signal."""
        held = lease.read(self._path)
        if self._timer is None or (held is not None and held == self._fenced):
            # A new lease is that of an agent, which a look now and then finds soon enough.
            return None if self._timer is None else _LOOK_S
        if held is None:
            return _LOOK_S
        self._timer.after(held[1] - lease.now_ms())
        return None

    def over(self) -> bool:
        """Whether a lease has run out for which nothing was done yet."""
        held = lease.read(self._path) if self._timer is not None else None
        return held is not None and held != self._fenced and held[1] <= lease.now_ms()

    def enforce(self) -> None:
        """Return once no task runs; without an agent, which could start others."""
        held = lease.read(self._path)
        found_none = 0
        root = self._settings.state_dir / "runtime"
        while found_none < _SURE:
            found_none = found_none + 1 if self._runtime.fence(self._settings, root) else 0
            time.sleep(_AGAIN_S)
        self._fenced = held
        _log.error("no master for too long: no task runs on")
