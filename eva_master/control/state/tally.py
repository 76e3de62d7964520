"""The running sums behind `Totals`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from eva_master.model.accounting.totals import Totals
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.ids import Exact
from eva_master.model.planning.plan import Json
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import COPY_STATES, JOB_STATES, JobState, RunState


class Tally:
    """Sums that follow every record that is added or replaced; what is forgotten stays in them.

    Attributes:
        changed: Whether any sum changed since `written` was called last.
    """

    def __init__(self) -> None:
        self.changed = False
        self._charged = self._idle = self._alone = self._migrations = 0
        self._jobs: defaultdict[JobState, int] = defaultdict(int)
        self._runs: defaultdict[RunState, int] = defaultdict(int)

    def job(self, old: Job | None, new: Job) -> None:
        """A job was added or replaced."""
        if old is not None and old.history is new.history:
            return
        before, after = None if old is None else old.history[-1][0], new.history[-1][0]
        if before != after:
            self.changed = True
            self._jobs[JOB_STATES[after]] += 1
            if before is not None:
                self._jobs[JOB_STATES[before]] -= 1

    def run(self, old: TaskRun | None, new: TaskRun) -> None:
        """A task run was added or replaced."""
        if old is not None and old.history is new.history and old.moves == new.moves:
            return
        before, after = None if old is None else old.history[-1][0], new.history[-1][0]
        self.changed = True
        self._migrations += new.moves - (0 if old is None else old.moves)
        if before != after:
            self._runs[COPY_STATES[after]] += 1
            if before is not None:
                self._runs[COPY_STATES[before]] -= 1

    def job_account(self, old: JobAccount | None, new: JobAccount) -> None:
        """What a job owes was replaced."""
        self.changed = True
        self._alone += new.alone if old is None else new.alone - old.alone

    def instance_account(self, old: InstanceAccount | None, new: InstanceAccount) -> None:
        """What an instance cost was replaced."""
        self.changed = True
        if old is None:
            self._charged += new.charged
            self._idle += new.idle
        else:
            self._charged += new.charged - old.charged
            self._idle += new.idle - old.idle

    def totals(self) -> Totals:
        """The sums as they are now."""
        return Totals(
            charged=Exact(self._charged),
            idle=Exact(self._idle),
            alone=Exact(self._alone),
            migrations=self._migrations,
            jobs={state: count for state, count in self._jobs.items() if count},
            runs={state: count for state, count in self._runs.items() if count},
        )

    def restore(self, written: Mapping[str, Json]) -> None:
        """Take the sums as the journal has them, see `to_json`."""
        for name in ("charged", "idle", "alone", "migrations"):
            setattr(self, f"_{name}", int(str(written[name])))
        jobs, runs = written["jobs"], written["runs"]
        assert isinstance(jobs, dict)
        assert isinstance(runs, dict)
        self._jobs = defaultdict(int, {JobState(k): int(str(v)) for k, v in jobs.items()})
        self._runs = defaultdict(int, {RunState(k): int(str(v)) for k, v in runs.items()})

    def to_json(self) -> dict[str, Json]:
        """The sums as a document; exact amounts are decimal strings, as in the tables."""
        totals = self.totals()
        return {
            "charged": str(totals.charged),
            "idle": str(totals.idle),
            "alone": str(totals.alone),
            "migrations": totals.migrations,
            "jobs": {state.value: count for state, count in totals.jobs.items()},
            "runs": {state.value: count for state, count in totals.runs.items()},
        }
