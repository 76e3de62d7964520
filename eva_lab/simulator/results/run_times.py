"""How well the run times of wide jobs were estimated when a policy had to decide by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eva_lab.simulator.results.metrics import quantile
from eva_lab.simulator.scenario.submission import work_ms
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import TraceJob
from eva_master.ports import Planned, Policy
from eva_wire.values.ids import MILLION, JobId, Millis

WIDE = 3
"""Jobs with fewer tasks are thin: nobody waits for pilots of theirs."""
PILOTS_PPM = 30_000
"""The share of a wide job's tasks that are its pilots."""
_FIRST_QUEUE_MS = 1_000_000
_GROWTH = 10
"""Jobs are sorted by their work into queues: up to 1,000 s, up to ten times that, and so on."""
BEFOREHAND = (Estimates.HISTORY, Estimates.THREE_SIGMA, Estimates.POINT)


def queue_of(work_ms: float) -> int:
    """The number of the queue for jobs with so much work, from 0 for the smallest."""
    queue, edge = 0, _FIRST_QUEUE_MS
    while work_ms >= edge:
        queue, edge = queue + 1, edge * _GROWTH
    return queue


def pilots_of(tasks: int) -> int:
    """How many tasks of a wide job are its pilots, at least one."""
    return max(1, round(tasks * PILOTS_PPM / MILLION))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far off the estimates of wide jobs were.

    Attributes:
        jobs: Wide jobs.
        estimated: Number of tasks with an estimate; all other figures are about these, and 0 if
            there is none.
        p50: Median of the error of a task's mean run time, as a share of that.
        p90: The 90th percentile.
        right_queue: Share of the jobs that come to the same queue by the estimate of their work as
            by that work itself.
    """

    jobs: int
    estimated: int
    p50: float
    p90: float
    right_queue: float


class WatchedEstimates:
    """Wraps a policy and notes what it was told of the run times of wide jobs.

    Jobs that end before a plan is about them, or before one is about them after their pilots, are
    not among those noted.

    Args:
        policy: The one that decides.
        jobs: Of the trace; others are not looked at.

    Attributes:
        at_first: By job of the trace: the estimate of a task's mean run time in the first snapshot
            that shows the job, if there was one.
        after_pilots: Estimates in the first snapshot in which as many of its tasks have finished as
            it has pilots.
        pilots: By job: when the policy first chose pilots of it, in milliseconds, how many, and how
            many tasks it has.
    """

    def __init__(self, policy: Policy, jobs: Iterable[TraceJob]) -> None:
        self._policy = policy
        self.name = policy.name
        self._jobs = wide(jobs)
        self._seen: set[JobId] = set()
        self._noted: set[JobId] = set()
        self.at_first: dict[str, int] = {}
        self.after_pilots: dict[str, int] = {}
        self.pilots: dict[str, tuple[int, int, int]] = {}

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        for job in snapshot.jobs:
            if job.id not in self._noted:
                self._look_at(job)
        plan, after = self._policy.plan(snapshot, memory)
        self._note_pilots(plan, snapshot.now_ms)
        return plan, after

    def _note_pilots(self, plan: Plan, now: Millis) -> None:
        for chosen in (plan.pilots, *(line.chosen for line in plan.lines)):
            for name, indexes in chosen:
                job = self._jobs.get(trace_name(name))
                if job is not None and job.id not in self.pilots:
                    self.pilots[job.id] = now, len(indexes), len(job.tasks)

    def decisive(self, mode: Estimates, *, stated: bool) -> Mapping[str, int]:
        """By job, the estimate by which the policy could first sort it.

        That is the first one where finished tasks change nothing, else the one after the pilots.

        Args:
            mode: Source of estimates.
            stated: Whether jobs told how long they take.
        """
        return self.at_first if stated or mode in BEFOREHAND else self.after_pilots

    def _look_at(self, view: JobView) -> None:
        name = trace_name(view.id)
        job, estimate = self._jobs.get(name), view.progress.estimate
        if job is None:
            self._noted.add(view.id)
            return
        if view.id not in self._seen:
            self._seen.add(view.id)
            if estimate is not None:
                self.at_first[name] = estimate.mean_ms
        done = view.progress.pilots_left == 0
        if view.progress.pilots_left is None and estimate is not None:
            done = estimate.tasks >= pilots_of(len(job.tasks))
        if done and estimate is not None:
            self._noted.add(view.id)
            self.after_pilots[name] = estimate.mean_ms


def trace_name(job: JobId) -> str:
    """The name in the trace of a job, which the master has numbered."""
    return job.rpartition("-")[0]


def sort_of(job: TraceJob) -> str:
    """Whether a job is thin or wide, and small or large (Table 8 of SLearn)."""
    whole = sum(work_ms(job, index) for index in range(len(job.tasks)))
    width = "wide" if len(job.tasks) >= WIDE else "thin"
    return f"{width}_{'large' if queue_of(whole) else 'small'}"


def wide(jobs: Iterable[TraceJob]) -> dict[str, TraceJob]:
    """The arrays among jobs of a trace that have at least three tasks, by name."""
    return {job.id: job for job in jobs if job.is_array and len(job.tasks) >= WIDE}


def accuracy(estimates: Mapping[str, int], jobs: Iterable[TraceJob]) -> Accuracy:
    """Compare estimates with how long tasks really take.

    Args:
        estimates: By job: of the mean run time of its tasks, in milliseconds.
        jobs: Of the trace.
    """
    wide_jobs = wide(jobs)
    errors, right = [], 0
    for name, mean_ms in estimates.items():
        tasks = len(wide_jobs[name].tasks)
        whole = sum(work_ms(wide_jobs[name], index) for index in range(tasks))
        errors.append(abs(mean_ms * tasks - whole) / whole)
        right += queue_of(mean_ms * tasks) == queue_of(whole)
    if not errors:
        return Accuracy(len(wide_jobs), 0, 0.0, 0.0, 0.0)
    p50, p90 = (quantile(errors, share) for share in (0.5, 0.9))
    return Accuracy(len(wide_jobs), len(errors), p50, p90, right / len(errors))
