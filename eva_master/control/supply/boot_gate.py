"""Which purchases of a plan are put off, since boots like theirs have failed.

Where the last boots failed, one task or gang tries for all: its instances are bought, the others
wait until one of them has registered. A job whose boots failed on several offerings waits for a
while whatever is on sale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.learning.boots import Boots, Scope, lost_scope
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import Plan, pooled
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.precedence import precedence
from eva_wire.values.durations import clock
from eva_wire.values.ids import JobId, Millis, RunId


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

    def passed(self, effect: PlanEffect) -> tuple[PlanEffect, bool]:
        """Take purchases that are not allowed yet out of a plan.

        Args:
            effect: The policy's plan.

        Returns:
            The rest of the plan, in which tasks that wait for an instance are held with the reason;
            and whether anything was taken out.
        """
        if not self.boots.streaks:
            return effect, False
        effect = self._told(effect)
        if not effect.plan.launches:
            return effect, False
        passed = _Tries(self, effect).outcome()
        return passed, passed is not effect

    def _told(self, effect: PlanEffect) -> PlanEffect:
        """A plan that tells tasks in line of boots that are slow or were doubtful."""
        slow: dict[str, str] = {}
        for view in effect.now.instances if effect.plan.lines else ():
            if view.pool and not view.ready and (suspects := self.suspects([view.offering])):
                slow.setdefault(view.pool, _waits_for_a_boot(next(iter(suspects.values()))))
        whys = {
            job: slow[name]
            for line in effect.plan.lines
            for name in line.pools
            if name in slow
            for job in line.jobs
        }
        runs = (effect.runs[name] for name in effect.held if name in effect.runs)
        return effect.explain({run.id: whys[run.job] for run in runs if run.job in whys})

    def suspects(self, offerings: Iterable[Offering]) -> dict[Scope, str]:
        """The scopes of failed boots that some offerings belong to, with the last failure."""
        return {
            scope: streak.why
            for offering in offerings
            for scope, streak in self.boots.suspects(offering)
        }

    def refusal(
        self, job: JobId, buys: bool, suspects: Mapping[Scope, str], trying: Collection[Scope]
    ) -> str:
        """Why nothing is bought for a task or gang now; empty if it is.

        Args:
            job: Its job.
            buys: Whether it needs a new instance.
            suspects: Scopes of the offerings to buy, with the last failure of each.
            trying: Scopes that others try already.
        """
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


class _Tries:
    """One plan behind the gate: the most urgent unit tries for all of a scope."""

    def __init__(self, gate: BootGate, effect: PlanEffect) -> None:
        self._gate = gate
        self._effect = effect
        self._doubtful = gate.boots.suspect_jobs()
        self._trying: set[Scope] = set()
        self._bought: set[int] = set()
        self._refused: set[int] = set()
        """New instances for which units wait that are to be the first there."""
        self._claimants = _claimants(effect.plan)
        self._waits: dict[RunId, str] = {}
        """Reasons of jobs in lines for members that are not bought."""

    def outcome(self) -> PlanEffect:
        """The rest of the plan."""
        units = sorted(
            self._effect.units, key=lambda unit: (precedence(unit.job), unit.entries[0].run)
        )
        held: dict[RunId, str] = {}
        for unit in units:
            needed = self._needed(unit)
            suspects = self._suspects_of(unit.job.id, needed)
            if why := self._why(unit.job.id, bool(needed), suspects):
                held.update((entry.run, why) for entry in unit.entries)
                self._refused |= unit.bought - self._bought
            else:
                self._trying |= suspects.keys()
                self._bought |= unit.bought
        gone = self._too_many(pooled(self._effect.plan))
        return self._effect.drop({**held, **self._waits}, gone)

    def _too_many(self, members: Sequence[int]) -> set[int]:
        """New members of pools that are not bought now."""
        barred = (self._refused - self._bought).intersection(members)
        for key in members:
            if key in barred or key in self._bought or key not in self._effect.launched:
                continue
            if not self._is_tried(key):
                barred.add(key)
        return barred

    def _is_tried(self, key: int) -> bool:
        """Whether a new member is bought for the jobs in its lines, or for none of them."""
        offering, whys = self._effect.launched[key], dict[JobId, str]()
        for job in self._claimants.get(key, ()):
            suspects = self._suspects_of(job, [offering])
            whys[job] = self._why(job, True, suspects)
            if not whys[job]:
                self._trying |= suspects.keys()
                return True
        suspects = self._gate.suspects([offering])
        if whys or suspects.keys() & (self._gate.booting | self._trying):
            for job, why in whys.items():
                if job in self._effect.jobs:
                    self._waits.update(dict.fromkeys(self._effect.jobs[job].runs, why))
            return False
        self._trying |= suspects.keys()
        return True

    def _needed(self, unit: Unit) -> list[Offering]:
        launched = self._effect.launched
        return [launched[key] for key in unit.bought - self._bought if key in launched]

    def _suspects_of(self, job: JobId, needed: Sequence[Offering]) -> dict[Scope, str]:
        suspects = self._gate.suspects(needed)
        if needed and job in self._doubtful:
            scope = lost_scope(job)
            suspects[scope] = self._gate.boots.streaks[scope].why
        return suspects

    def _why(self, job: JobId, buys: bool, suspects: Mapping[Scope, str]) -> str:
        return self._gate.refusal(job, buys, suspects, self._trying)


def _claimants(plan: Plan) -> Mapping[int, Sequence[JobId]]:
    """The jobs in whose lines new members of pools are, by the members' keys."""
    jobs_by_key: defaultdict[int, dict[JobId, None]] = defaultdict(dict)
    for pool in plan.pools:
        jobs = [job for line in plan.lines if pool.name in line.pools for job in line.jobs]
        for key in pool.members:
            if isinstance(key, int):
                jobs_by_key[key].update(dict.fromkeys(jobs))
    return {key: tuple(jobs) for key, jobs in jobs_by_key.items()}
