"""Limits of one job, of one user and of the whole cluster.

A job beyond a limit is refused at submission. A plan with too many launches is carried out in part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.control.state.active_load import ActiveLoad
from eva_master.model.errors import LimitExceeded
from eva_master.model.ids import InstanceId, JobId, RunId
from eva_master.model.job import JobKind, JobSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, Plan, PlanEntry, left, pooled
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.precedence import among_all

Where = InstanceId | int
"""A live instance, or a new one by its key in the plan."""


def refusal(
    load: ActiveLoad, limits: Limits, spec: JobSpec, *, operator: bool = False
) -> LimitExceeded | None:
    """Why a job is beyond a limit, `None` if it is not.

    Args:
        load: The present load.
        limits: The limits.
        spec: The job.
        operator: Whether an operator submits it.
    """
    if spec.priority > limits.priority and not operator:
        return LimitExceeded(
            f"the job has priority {spec.priority:,}, and users may state {limits.priority:,}"
            " at most (limits.priority)",
            hint="state a lower one, or have an operator submit it or raise the limit",
        )
    owner, tasks, waits, text = spec.owner, spec.size, len(spec.stage.depends_on), spec.text
    if tasks > limits.tasks_per_job:
        return LimitExceeded(
            f"the job has {tasks:,} tasks, and a job may have {limits.tasks_per_job:,}"
            " (limits.tasks_per_job)",
            hint="split it into several jobs, or have an operator raise the limit",
        )
    for what, count, most, setting in (
        ("your unfinished jobs", load.jobs_of[owner] + 1, limits.jobs_per_user, "jobs_per_user"),
        (
            "the tasks of your unfinished jobs",
            load.tasks_of[owner] + tasks,
            limits.tasks_per_user,
            "tasks_per_user",
        ),
        (
            "the jobs that your unfinished ones run after",
            load.waits_of[owner] + waits,
            limits.waits_per_user if waits else NO_LIMIT,
            "waits_per_user",
        ),
        (
            "the characters of commands, variables and inputs of your unfinished jobs",
            load.text_of[owner] + text,
            limits.text_per_user,
            "text_per_user",
        ),
        ("the cluster's unfinished jobs", load.jobs + 1, limits.jobs, "jobs"),
        ("the tasks of the cluster's unfinished jobs", load.tasks + tasks, limits.tasks, "tasks"),
        (
            "the jobs that the cluster's unfinished ones run after",
            load.waits + waits,
            limits.waits if waits else NO_LIMIT,
            "waits",
        ),
        (
            "the characters of commands, variables and inputs of the cluster's unfinished jobs",
            load.text + text,
            limits.text,
            "text",
        ),
    ):
        if count > most:
            return LimitExceeded(
                f"with this job {what} would be {count:,}, and {most:,} are allowed"
                f" (limits.{setting})",
                hint="submit it again when some have ended, cancel some, or have an operator "
                "raise the limit",
            )
    return None


@dataclass(frozen=True, slots=True)
class Unit:
    """Task runs that are placed together: the members of a gang, or one task of an array."""

    job: JobView
    entries: tuple[Assign, ...]


def within(
    plan: Plan, now: Snapshot, limits: Limits, live: int, owner_of: Callable[[JobId], str]
) -> Plan:
    """The part of a plan that takes no more instances than are allowed.

    Tasks beyond the limits wait, those of the least urgent jobs first.

    Args:
        plan: The policy's plan.
        now: The cluster as it is.
        limits: Limits of the number of instances.
        live: Number of instances, those about to go included.
        owner_of: Function that gives the owner of a job.
    """
    if not plan.launches:
        return plan
    usage = Usage(now, limits, owner_of)
    held: dict[RunId, str] = {}
    for unit in units(plan, now):
        if reason := usage.excess(unit, live):
            held.update((entry.run, reason) for entry in unit.entries)
        else:
            usage.take(unit)
    plan = left(plan, usage.too_many(plan, live))
    if not held:
        return plan
    entries = tuple(held_back(plan.entries, held, {view.id: view for view in now.runs}))
    kept = usage.new | set(pooled(plan))
    launches = tuple(launch for launch in plan.launches if launch.key in kept)
    return replace(plan, launches=launches, entries=entries)


def units(plan: Plan, now: Snapshot) -> list[Unit]:
    """Groups of task runs that a plan places together, the most urgent first."""
    jobs = {job.id: job for job in now.jobs}
    job_of = {view.id: view.job for view in now.runs}
    together: dict[JobId | RunId, list[Assign]] = {}
    for entry in plan.entries:
        if isinstance(entry, Assign) and entry.run in job_of:
            job = jobs[job_of[entry.run]]
            key = job.id if job.spec.kind is JobKind.GANG else entry.run
            together.setdefault(key, []).append(entry)
    groups = [
        Unit(jobs[job_of[assigned[0].run]], tuple(assigned)) for assigned in together.values()
    ]
    return sorted(groups, key=lambda unit: among_all(unit.job))


def held_back(
    entries: Sequence[PlanEntry], held: Mapping[RunId, str], runs: Mapping[RunId, RunView]
) -> Iterator[PlanEntry]:
    """Entries of a plan in which some task runs are not placed after all, with the reason."""
    for entry in entries:
        if entry.run not in held:
            yield entry
        elif runs[entry.run].instance is None:
            yield Hold(entry.run, held[entry.run])
        # Else it stays where it is.


class Usage:
    """Counts the instances of jobs and users while units are placed one after the other.

    Making one takes time in proportion to the cluster, an answer in proportion to its unit alone.

    Args:
        now: The cluster as it is.
        limits: How many instances there may be.
        owner_of: Owner of a job.

    Attributes:
        new: Keys of the instances that are launched.
    """

    def __init__(self, now: Snapshot, limits: Limits, owner_of: Callable[[JobId], str]) -> None:
        self.new: set[int] = set()
        self._limits = limits
        self._owner_of = owner_of
        self._of_job: defaultdict[JobId, set[Where]] = defaultdict(set)
        self._of_user: defaultdict[str, set[Where]] = defaultdict(set)
        for view in now.runs:
            if view.instance is not None:
                self._of_job[view.job].add(view.instance)
                self._of_user[owner_of(view.job)].add(view.instance)

    def excess(self, unit: Unit, live: int) -> str:
        """Why a unit takes too many instances; empty if it does not.

        Args:
            unit: The unit.
            live: How many instances there are, those that are going included.
        """
        limits, owner = self._limits, self._owner_of(unit.job.id)
        places: set[Where] = {entry.on for entry in unit.entries}
        new = {where for where in places if isinstance(where, int)}
        if not new:
            return ""
        if live + len(self.new) + len(new - self.new) > limits.instances:
            return f"the cluster may have {limits.instances:,} instances (limits.instances)"
        if _together(self._of_user[owner], places) > limits.instances_per_user:
            return (
                f"tasks of {owner} may be on {limits.instances_per_user:,} instances"
                " (limits.instances_per_user)"
            )
        if _together(self._of_job[unit.job.id], places) > limits.instances_per_job:
            return (
                f"tasks of a job may be on {limits.instances_per_job:,} instances"
                " (limits.instances_per_job)"
            )
        return ""

    def too_many(self, plan: Plan, live: int) -> set[int]:
        """New members of pools that would be beyond the limit, once all units are placed."""
        extra = [key for key in pooled(plan) if key not in self.new]
        room = max(0, self._limits.instances - live - len(self.new))
        return set(extra[room:])

    def take(self, unit: Unit) -> None:
        """Place a unit, which counts for the next ones."""
        places: set[Where] = {entry.on for entry in unit.entries}
        self.new |= {where for where in places if isinstance(where, int)}
        self._of_user[self._owner_of(unit.job.id)] |= places
        self._of_job[unit.job.id] |= places


def _together(there: Set[Where], more: Set[Where]) -> int:
    """How many places two sets have together; takes time in proportion to the second one."""
    return len(there) + len(more - there)
