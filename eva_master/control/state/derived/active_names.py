"""Active jobs by their names."""

from __future__ import annotations

from eva_master.model.records import Job
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB


class ActiveNames:
    """Which active jobs of an owner share a name, in the order of their submission."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], dict[JobId, None]] = {}

    def follow(self, job: Job) -> None:
        """Take in a job as it is now."""
        key = (job.spec.owner, job.spec.name)
        if job.state not in TERMINAL_JOB:
            self._jobs.setdefault(key, {})[job.id] = None
        elif (named := self._jobs.get(key)) is not None:
            named.pop(job.id, None)
            if not named:
                del self._jobs[key]

    def first(self, owner: str, name: str) -> JobId | None:
        """The oldest active job of an owner that has a name."""
        return next(iter(self._jobs.get((owner, name), ())), None)
