"""How much of the cluster's unfinished work is whose, kept as running sums."""

from __future__ import annotations

from collections import Counter

from eva_master.model.records import Job
from eva_wire.values.states import TERMINAL_JOB


class ActiveLoad:
    """Counts jobs that have not ended, and their tasks, per owner and in all.

    Attributes:
        jobs: Of all owners. tasks: Those of these jobs.
        waits: Jobs that these depend on, each as often as it is named.
        text: Characters of these jobs, see `JobSpec.text`.
        jobs_of: By owner. tasks_of: By owner. waits_of: By owner. text_of: By owner.
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.tasks = 0
        self.waits = 0
        self.text = 0
        self.jobs_of: Counter[str] = Counter()
        self.tasks_of: Counter[str] = Counter()
        self.waits_of: Counter[str] = Counter()
        self.text_of: Counter[str] = Counter()

    def follow(self, old: Job | None, new: Job) -> None:
        """A job was added or replaced."""
        was = old is not None and old.state not in TERMINAL_JOB
        change = (new.state not in TERMINAL_JOB) - was
        if not change:
            return
        owner, tasks = new.spec.owner, change * new.spec.size
        waits, text = change * len(new.spec.stage.depends_on), change * new.spec.text
        self.jobs += change
        self.tasks += tasks
        self.waits += waits
        self.text += text
        counters = (
            *((self.jobs_of, change), (self.tasks_of, tasks)),
            *((self.waits_of, waits), (self.text_of, text)),
        )
        for counted, more in counters:
            counted[owner] += more
            if not counted[owner]:
                del counted[owner]
