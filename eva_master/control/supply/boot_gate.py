"""Which purchases of a plan are put off, since boots like theirs have failed.

Where the last boots failed, one task or gang tries for all: its instances are bought, the others
wait until one of them has registered. A job whose boots failed on several offerings waits for a
while whatever is on sale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.learning.boots import Boots, Scope, lost_scope
from eva_master.model.arithmetic.durations import clock
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.catalog import Offering
from eva_master.model.ids import JobId, Millis, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, Plan, PlanEntry, left, pooled
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.precedence import precedence

_NOBODY = JobId("")


@dataclass(frozen=True, slots=True)
class BootGate:
    """Boots and failures of boots at the time of a plan.

    Attributes:
        boots: Failures in a row.
        booting: Scopes with a booting instance, and scopes of jobs for which an instance was bought
            on which no task has run for a while yet.
        now: The time.
        wall: The wall clock, for times in texts for users.
    """

    boots: Boots
    booting: frozenset[Scope]
    now: Millis
    wall: WallClock = AS_LOOP

    def passed(self, seen: Snapshot, plan: Plan) -> tuple[Plan, bool]:
        """Take purchases that are not allowed yet out of a plan.

        Args:
            seen: The cluster as it is.
            plan: The policy's plan.

        Returns:
            The rest of the plan, in which tasks that wait for an instance are held with the reason;
            and whether anything was taken out.
        """
        if not self.boots.streaks:
            return plan, False
        plan = self._told(seen, plan)
        reasons, barred = self._put_off(seen, plan) if plan.launches else ({}, set())
        if not reasons and not barred:
            return plan, False
        plan = left(plan, barred)
        entries: list[PlanEntry] = [e for e in plan.entries if e.run not in reasons]
        waiting = {run.id for run in seen.runs if run.instance is None}
        entries.extend(Hold(run, why) for run, why in reasons.items() if run in waiting)
        used = {entry.on for entry in entries if isinstance(entry, Assign)} | set(pooled(plan))
        launches = tuple(launch for launch in plan.launches if launch.key in used)
        return replace(plan, launches=launches, entries=tuple(entries)), True

    def _told(self, seen: Snapshot, plan: Plan) -> Plan:
        """A plan that tells tasks in line of boots that are slow or were doubtful."""
        slow: dict[str, str] = {}
        for view in seen.instances if plan.lines else ():
            if view.pool and not view.ready and (suspects := self._suspects([view.offering])):
                slow.setdefault(view.pool, _waits_for_a_boot(next(iter(suspects.values()))))
        if not slow:
            return plan
        whys = {
            job: slow[name]
            for line in plan.lines
            for name in line.pools
            if name in slow
            for job in line.jobs
        }
        job_of = {run.id: run.job for run in seen.runs}
        entries = tuple(
            replace(entry, reason=why)
            if isinstance(entry, Hold) and (why := whys.get(job_of.get(entry.run, _NOBODY)))
            else entry
            for entry in plan.entries
        )
        return replace(plan, entries=entries)

    def _put_off(self, seen: Snapshot, plan: Plan) -> tuple[dict[RunId, str], set[int]]:
        """Why task runs have to wait, and the new members of pools that are not bought yet."""
        offerings = {launch.key: launch.offering for launch in plan.launches}
        trying: set[Scope] = set()
        bought: set[int] = set()
        refused: set[int] = set()
        """New members of pools for which those have to wait that are to be the first there."""
        reasons: dict[RunId, str] = {}
        doubtful = self.boots.suspect_jobs()
        for job, runs in _units(seen, plan):
            keys = {key for key in runs.values() if isinstance(key, int)} - bought
            needed = [offerings[key] for key in keys if key in offerings]
            suspects = self._suspects(needed)
            if needed and job in doubtful:
                suspects |= {lost_scope(job): self.boots.streaks[lost_scope(job)].why}
            why = self._why(job, bool(needed), suspects, trying)
            if why:
                reasons.update(dict.fromkeys(runs, why))
                refused |= keys
            else:
                trying |= suspects.keys()
                bought |= keys
        barred = (refused - bought).intersection(pooled(plan))
        claimants = _claimants(plan)
        for key in pooled(plan):
            if key in barred or key in bought or key not in offerings:
                continue
            suspects = self._suspects([offerings[key]])
            whys: dict[JobId, str] = {}
            for job in claimants.get(key, ()):
                own = suspects
                if job in doubtful:
                    own = suspects | {lost_scope(job): self.boots.streaks[lost_scope(job)].why}
                whys[job] = self._why(job, True, own, trying)
                if not whys[job]:
                    trying |= own.keys()
                    break
            else:
                if whys or suspects.keys() & (self.booting | trying):
                    barred.add(key)
                    for view in seen.jobs:
                        if view.id in whys:
                            reasons.update(dict.fromkeys(view.runs, whys[view.id]))
                else:
                    trying |= suspects.keys()
        return reasons, barred

    def _suspects(self, offerings: list[Offering]) -> dict[Scope, str]:
        return {
            scope: streak.why
            for offering in offerings
            for scope, streak in self.boots.suspects(offering)
        }

    def _why(
        self, job: JobId, buys: bool, suspects: Mapping[Scope, str], trying: set[Scope]
    ) -> str:
        """Why nothing is bought for a task or gang now; empty if it is."""
        streak = self.boots.of_job(job)
        if buys and streak is not None and streak.until_ms > self.now:
            what = "instances" if streak is self.boots.streaks.get(lost_scope(job)) else "boots"
            return (
                f"nothing is bought for it until {clock(self.wall.of(streak.until_ms))}, since "
                f"{streak.failures} {what} in a row failed; the last: {streak.why}"
            )
        for scope, why in suspects.items():
            if scope in self.booting or scope in trying:
                if scope == lost_scope(job):
                    return f"waits until another of its tasks runs well, since the last: {why}"
                return _waits_for_a_boot(why)
        return ""


def _waits_for_a_boot(why: str) -> str:
    return f"waits until another instance has booted, since the last did not: {why}"


def _claimants(plan: Plan) -> Mapping[int, Sequence[JobId]]:
    """The jobs in whose lines new members of pools are, by the members' keys."""
    jobs_by_key: defaultdict[int, dict[JobId, None]] = defaultdict(dict)
    for pool in plan.pools:
        jobs = [job for line in plan.lines if pool.name in line.pools for job in line.jobs]
        for key in pool.members:
            if isinstance(key, int):
                jobs_by_key[key].update(dict.fromkeys(jobs))
    return {key: tuple(jobs) for key, jobs in jobs_by_key.items()}


def _units(seen: Snapshot, plan: Plan) -> list[tuple[JobId, dict[RunId, object]]]:
    """The plan's assignments, gangs whole and other tasks one by one, the most urgent first."""
    jobs: Mapping[JobId, JobView] = {job.id: job for job in seen.jobs}
    job_of = {run.id: run.job for run in seen.runs}
    units: defaultdict[tuple[JobId, RunId | None], dict[RunId, object]] = defaultdict(dict)
    for entry in plan.entries:
        if isinstance(entry, Assign) and (job := job_of.get(entry.run)) is not None:
            gang = jobs[job].spec.kind is JobKind.GANG
            units[job, None if gang else entry.run][entry.run] = entry.on

    def urgency(unit: tuple[JobId, RunId | None]) -> tuple[object, ...]:
        return precedence(jobs[unit[0]]), unit[1] or ""

    return [(unit[0], units[unit]) for unit in sorted(units, key=urgency)]
