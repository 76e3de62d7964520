"""Jobs and instances that are over and still in memory, in the order of their ends."""

from __future__ import annotations

from collections import deque
from operator import itemgetter

from eva_master.model.records import Job
from eva_wire.values.ids import InstanceId, JobId, Millis

MOST_KEPT = 50_000
"""So many are in memory, however short it is since they ended: about 400 MB."""
MOST_TEXT = 100_000_000
"""Their jobs have so many characters, see `JobSpec.text`."""


class Over:
    """Tells what is to leave memory: it was over long ago, or too much has ended since.

    Readers find it in the journal, as after a restart.
    """

    def __init__(self) -> None:
        self._entries = deque[tuple[Millis, JobId | None, InstanceId | None, int]]()
        self._text = 0

    def add_job(self, job: Job) -> None:
        """Add a job that has just ended."""
        text = job.spec.text
        self._entries.append((job.since_ms, job.id, None, text))
        self._text += text

    def add_instance(self, instance: InstanceId, at: Millis) -> None:
        """Add an instance that has just gone."""
        self._entries.append((at, None, instance, 0))

    def sort(self) -> None:
        """Put the entries in order, after they were read from the journal."""
        self._entries = deque(sorted(self._entries, key=itemgetter(0)))

    def next_ms(self) -> Millis | None:
        """When the first one was over; `None` if there is none."""
        return self._entries[0][0] if self._entries else None

    def pop(self, until: Millis) -> tuple[JobId | None, InstanceId | None]:
        """Take the next job or instance that is to leave memory; two `None` if there is none.

        Args:
            until: Time by which it must have been over.
        """
        entries = self._entries
        crowded = len(entries) > MOST_KEPT or self._text > MOST_TEXT
        if not entries or not (crowded or entries[0][0] <= until):
            return None, None
        _, job, instance, text = entries.popleft()
        self._text -= text
        return job, instance
