"""A journal that waits for room on its disk, instead of taking the master down."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from eva_master.model.changes import Changes
from eva_master.ports import Clock, Journal
from eva_master.ports.reading import Pause
from eva_wire.values.errors import StorageFull
from eva_wire.values.ids import Millis

_RETRY_S = 1.0
_TOLD_EVERY_S = 60.0
_MAKE_ROOM = "make room on the disk of the master's journal; it goes on by itself"

log = structlog.get_logger(__name__)


class PatientJournal:
    """Repeats a commit until the disk has room for it; the rest is the journal's.

    The control loop stands still meanwhile: nothing is done that is not on record. Tasks run on,
    and workers keep what they have to report.

    Args:
        journal: The one that is written.
        paused: Called with what to tell users when the disk is full, and with `None` when the
            commit has succeeded after all.
        stopping: Once it is set, a full disk is an error like any other.
        clock: Tells since when the disk is full.
    """

    def __init__(
        self,
        journal: Journal,
        paused: Callable[[Pause | None], None],
        stopping: threading.Event,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._paused = paused
        self._stopping = stopping
        self._clock = clock

    def load(self, since: Millis | None = None) -> Changes:
        """See `eva_master.ports.Journal.load`."""
        return self._journal.load(since)

    def commit(self, changes: Changes) -> None:
        """See `eva_master.ports.Journal.commit`; waits while the disk is full.

        Raises:
            StorageError: The database refused for another reason, or the master stops.
        """
        waited_s = 0.0
        while True:
            try:
                self._journal.commit(changes)
                break
            except StorageFull as error:
                if self._stopping.is_set():
                    raise
                if not waited_s:
                    self._paused(Pause(self._clock.now(), error.message, _MAKE_ROOM))
                if waited_s % _TOLD_EVERY_S == 0:
                    log.error(
                        "the disk of the journal is full: the master pauses until there is room",
                        reason=error.message,
                        for_s=round(waited_s),
                    )
                self._stopping.wait(_RETRY_S)
                waited_s += _RETRY_S
        if waited_s:
            self._paused(None)
            log.info("there is room for the journal again: the master goes on")
