"""Claims of a snapshot: for whom room is kept, and which.

Without them a large job would never start where what can be bought is limited: whatever becomes
free is soon enough for a small one, and never for it. So room is kept for task runs whose priority
is higher than another job's, and which can only run on offerings that are limited or not to be had.
Of those that have waited for longer than the operator's patience one of each owner is also kept
room for against jobs of the same priority.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.claims.rooms import NEVER_MS, ClaimUnit, demands, endless
from eva_master.packing.claims.walk import Walk
from eva_master.packing.precedence import precedence
from eva_master.packing.valuation.reservation_price import Demand
from eva_wire.values.durations import span
from eva_wire.values.ids import JobId, Millis, OfferingId

_MOST_DEMANDS = 32
"""For so many different demands room is kept in one round, the most urgent first; a demand that
waits at two priorities counts twice. So users who choose thousands of priorities or sizes delay
nobody: the others are planned for like everybody else."""


_LATE = "would be late for its deadline behind others"
_PASSED = "was passed by jobs with deadlines for long"
_PATIENT_BOOTS = 10
"""Patience lasts for at least so many times what an instance takes to be ordered and to boot."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How claims are made.

    Attributes:
        ignored: Jobs for which nothing is kept, since they could not use it now.
        preemption: Whether running task runs may be suspended for those of higher priority.
        patience_ms: For how long a task run waits until room is kept for it against jobs of the
            same priority; `None` for ever.
        short: Which jobs wait in an order of their own, in which patience plays no part; `None`
            for none.
        unused: Jobs whose policy had no use for room that was kept for them. Their claims keep
            none, and still come before those of a lower priority.
    """

    ignored: Collection[JobId] = ()
    preemption: Preemption = Preemption.NEVER
    patience_ms: int | None = None
    short: ShortJobs | None = None
    unused: Collection[JobId] = ()


def with_claims(snapshot: Snapshot, rules: Rules) -> Snapshot:
    """A snapshot with the claims for its waiting task runs.

    Task runs of equal priority share a claim. Exceptions, which come first, are jobs that would be
    late behind others and, for each owner, a job that has waited for long. At most `_MOST_DEMANDS`
    demands are considered.

    Args:
        snapshot: The cluster.
        rules: Rules for making claims.
    """
    if all(endless(offering, snapshot.now_ms) for offering in snapshot.catalog):
        return snapshot
    priorities = {job.priority for job in snapshot.jobs}
    patient = _patient(snapshot, rules)
    apart = patient | {job.id for job in snapshot.jobs if job.urgency.ahead is not None}
    if len(priorities) <= 1 and not apart:
        return snapshot
    lowest = min(priorities)
    by_priority: defaultdict[int, list[JobView]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.id not in rules.ignored and (job.priority > lowest or job.id in apart):
            by_priority[job.priority].append(job)
    maker = _Maker(snapshot, rules)
    for priority in sorted(by_priority, reverse=True):
        jobs = sorted(by_priority[priority], key=precedence)
        maker.keep_for_due([job for job in jobs if job.urgency.ahead is not None])
        maker.keep_for_patient([job for job in jobs if job.id in patient])
        if priority > lowest:
            maker.keep_for(jobs)
    claims = tuple(step.claim for step in maker.walk.steps)
    return replace(snapshot, claims=claims) if claims else snapshot


class _Maker:
    """Makes claims one after the other.

    Attributes:
        walk: The claims so far, and what they leave.
    """

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self.walk = Walk(snapshot, plain=True)
        self._rules = rules
        self._left = _MOST_DEMANDS
        self._boots_ms = {offering.id: offering.type.boot_ms for offering in snapshot.catalog}
        self._kept: set[tuple[str, OfferingId]] = set()

    def keep_for(self, jobs: Sequence[JobView]) -> None:
        """Keep room for jobs of one priority, against those of a lower one."""
        unused = [job for job in jobs if job.id in self._rules.unused]
        for some in [job for job in jobs if job.id not in self._rules.unused], unused:
            level = _first(_waiting(self.walk, some), self._left)
            if level and self._left > 0:
                claim = replace(_claim(self.walk, level), preemption=self._rules.preemption)
                self._add(level, claim)

    def keep_for_due(self, jobs: Sequence[JobView]) -> None:
        """Keep room for each job that goes before others of its priority, see `JobView.ahead`."""
        for job in jobs:
            level = _first(_waiting(self.walk, [job]), self._left)
            if level and self._left > 0:
                why = _LATE if job.urgency.due is not None else _PASSED
                claim = replace(_claim(self.walk, level), why=why, equals=True)
                self._add(level, replace(claim, preemption=self._rules.preemption))

    def keep_for_patient(self, jobs: Sequence[JobView]) -> None:
        """Keep room for jobs of one priority that have waited for long: one of each owner.

        An owner may have several such claims on different offerings.
        """
        for unit in (unit for job in jobs for unit in _waiting(self.walk, [job])[:1]):
            hosting = self.walk.rooms.hosting(unit)
            waits_ms = self._waits_ms(unit)
            patience_ms = self._patience_ms(hosting)
            ours = {(unit.job.spec.owner, name) for name in hosting}
            if waits_ms < patience_ms or not self._kept.isdisjoint(ours) or self._left <= 0:
                continue
            self._kept |= ours
            claim, now = _claim(self.walk, [unit]), self.walk.whole.now_ms
            after_ms = self.walk.rooms.kept([unit]).after_ms
            complete_ms = Millis(now + after_ms) if 0 < after_ms < NEVER_MS else None
            time = span(patience_ms).removesuffix(" 0s").removesuffix(" 0m")
            why = f"has waited for more than {time}"
            self._add([unit], replace(claim, why=why, equals=True, complete_ms=complete_ms))

    def _add(self, level: Sequence[ClaimUnit], claim: Claim) -> None:
        self._left -= len(demands(level))
        if claim.job in self._rules.unused:
            claim = replace(claim, instances=(), slots=())
        self.walk.add(len(self.walk.steps), claim, level)

    def _waits_ms(self, unit: ClaimUnit) -> int:
        """For how long all of a unit has been waiting."""
        now = self.walk.whole.now_ms
        return min(now - (now if run.since_ms is None else run.since_ms) for run in unit.runs)

    def _patience_ms(self, hosting: Collection[OfferingId]) -> int:
        boots_ms = max((self._boots_ms.get(name, 0) for name in hosting), default=0)
        return max(self._rules.patience_ms or 0, _PATIENT_BOOTS * boots_ms)


def _patient(snapshot: Snapshot, rules: Rules) -> set[JobId]:
    """Jobs with a task run that has waited for as long as the operator's patience."""
    if rules.patience_ms is None:
        return set()
    since = snapshot.now_ms - rules.patience_ms
    jobs = {
        run.job
        for run in snapshot.runs
        if run.since_ms is not None and run.since_ms <= since and not run.pinned
    }
    short = rules.short
    if short is not None and jobs:
        for job in snapshot.jobs:
            task_ms = None if job.progress.estimate is None else job.progress.estimate.mean_ms
            if job.stands_in_line and short.has(job.spec.latency, task_ms):
                jobs.discard(job.id)
    return jobs


def _waiting(walk: Walk, jobs: Sequence[JobView]) -> list[ClaimUnit]:
    """Task runs of jobs that wait for room, in order.

    Not among them is what would not fit into the empty cluster, for it waits for something else.
    """
    rooms = walk.rooms
    units = [unit for job in sorted(jobs, key=precedence) for unit in rooms.waiting(job)]
    limited = [unit for unit in walk.visible(units) if not rooms.buyable(unit)]
    return [unit for unit in limited if rooms.possible(unit)]


def _claim(walk: Walk, level: Sequence[ClaimUnit]) -> Claim:
    first, kept = level[0].job, walk.rooms.kept(level)
    return Claim(
        first.id,
        tuple(run.id for unit in level for run in unit.runs),
        first.priority,
        tuple(sorted(kept.instances)),
        tuple(sorted(kept.slots.items())),
    )


def _first(units: Sequence[ClaimUnit], most: int) -> list[ClaimUnit]:
    """First units, up to a number of distinct demands; the very first unit in any case."""
    counted: set[Demand] = set()
    first: list[ClaimUnit] = []
    for unit in units:
        new = {run.task.demand for run in unit.runs} - counted
        if not first or len(counted) + len(new) <= most:
            counted |= new
            first.append(unit)
    return first
