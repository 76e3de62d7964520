"""A snapshot with claims as policies see it that know nothing of them, and the whole plan.

Task runs and instances that a policy must leave alone are not in what it sees. Room that can be
made, by resizing a gang or by suspending task runs, is there as if it had been made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Hold, Plan, Suspend
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import NO_ROOM
from eva_master.packing.claims.hidden_members import hidden_members, with_hidden
from eva_master.packing.claims.rooms import without
from eva_master.packing.claims.walk import Step, Walk, Way
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.preempting import FutureLoad, assigned
from eva_wire.values.ids import JobId, RunId, job_of

Refused = frozenset[tuple[int, Way]]
_SHOWN = 3
"""So many instances are named where several are kept."""


@dataclass(frozen=True, slots=True)
class ClaimView:
    """Part of a snapshot with claims that a policy sees.

    Attributes:
        whole: The snapshot.
        shown: The part that the policy sees.
        walk: The progress of the claims.
        contended: Whether task runs that come later are seen beside claims that have room.
    """

    whole: Snapshot
    shown: Snapshot
    walk: Walk
    contended: bool

    @classmethod
    def of(cls, snapshot: Snapshot, refused: Refused = frozenset(), alone: int = -1) -> ClaimView:
        """Make the view of a snapshot.

        Args:
            snapshot: A snapshot with claims.
            refused: Claims that the policy has not placed, each with the way that failed.
            alone: The last claim to plan, without later task runs; -1 for none.
        """
        walk = Walk(snapshot, refused)
        for number, claim in enumerate(snapshot.claims):
            level = walk.level(claim)
            if level:
                walk.add(number, claim, level)
            if walk.over or number == alone:
                break
        walk.finish(alone=alone >= 0)
        shown = without(snapshot, walk.hidden, walk.instances, walk.slots)
        yielding = {run for victim, _ in walk.victims for run in victim.runs}
        if yielding:
            shown = _left(without(shown, yielding), yielding)
        ready = sum(step.way is Way.READY for step in walk.steps)
        shown = replace(shown, unclaimed=True)
        return cls(snapshot, shown, walk, ready > 1 or bool(walk.comers))

    def missed(self, plan: Plan) -> Step | None:
        """The first claim with room that a plan has not placed.

        If no victims are involved, placing other task runs of the claim than the first fit chose is
        enough.
        """
        return next(self._missed(plan), None)

    def unused(self, plan: Plan) -> frozenset[JobId]:
        """Jobs with claims for which there is room already, and that a plan places nowhere."""
        missed = (step for step in self._missed(plan) if step.way is Way.READY)
        return frozenset(job_of(run) for step in missed for run in step.placed)

    def _missed(self, plan: Plan) -> Iterator[Step]:
        placed = assigned(plan).keys()
        lined = {job for line in plan.lines for job in line.jobs}
        for step in self.walk.steps:
            if not step.placed:
                continue
            served = step.placed
            if step.way is Way.READY:
                served = served.union(step.claim.runs) - self.walk.hidden.keys()
            if served.isdisjoint(placed) and lined.isdisjoint(map(job_of, served)):
                yield step

    def completed(self, plan: Plan) -> Plan:
        """A plan for the whole snapshot, with reasons for waiting task runs that were not seen."""
        walk = self.walk
        if not walk.hidden and not walk.rivals and not walk.victims and not walk.instances:
            return plan
        entries = [
            replace(entry, reason=walk.rivals[entry.run].refusal)
            if isinstance(entry, Hold) and entry.run in walk.rivals
            else entry
            for entry in plan.entries
            if entry.run not in walk.hidden
        ]
        entries.extend(self._bound())
        suspends = list(self._suspends(plan))
        yielding = {entry.run for entry in suspends}
        entries.extend(entry for entry in self._holds() if entry.run not in yielding)
        entries.extend(suspends)
        pools = with_hidden(plan.pools, hidden_members(self.whole, self.shown))
        sold = {offering.id: offering for offering in self.whole.catalog}
        launches = tuple(
            replace(launch, offering=sold.get(launch.offering.id, launch.offering))
            for launch in plan.launches
        )
        return replace(plan, entries=tuple(entries), pools=pools, launches=launches)

    def _holds(self) -> Iterator[Hold]:
        demands = {run.id: run.task.demand for run in self.whole.runs}
        for run, claim in self.walk.hidden.items():
            if run not in claim.runs:
                yield Hold(run, claim.refusal)
                continue
            why = why_unplaced(demands[run], self.whole.catalog, self.whole.now_ms)
            names = claim.instances
            shown = ", ".join(names[:_SHOWN])
            shown += f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            about = f"; kept for it once there is room: {shown}" if names else ""
            about += f", since it {claim.why}" if names and claim.equals else ""
            yield Hold(run, (why or NO_ROOM) + about)

    def _bound(self) -> Iterator[Hold]:
        """Holds for waiting members of gangs that have another member on a kept instance."""
        waiting = {run.id for run in self.whole.runs if run.instance is None and not run.pinned}
        bound = {run.id for run in self.shown.runs if run.pinned and run.id in waiting}
        places = {run.id: run.instance for run in self.whole.runs}
        for job in self.whole.jobs if bound else ():
            mates = {places[run] for run in job.runs}
            kept = (claim for claim in self.whole.claims if mates.intersection(claim.instances))
            first = next(kept, None)
            if first is not None:
                why = f"another task of its gang is where {first.refusal}"
                yield from (Hold(run, why) for run in job.runs if run in bound)

    def _suspends(self, plan: Plan) -> Iterator[Suspend]:
        """The victims without which there is no room, those first that can be spared least."""
        victims = self.walk.victims
        if not victims or self.walk.steps[-1].placed.isdisjoint(assigned(plan)):
            return
        whole = with_sizes(self.whole, {entry.job: entry.members for entry in plan.sizes})
        load = FutureLoad(whole, plan, {run for victim, _ in victims for run in victim.runs})
        views = {view.id: view for view in whole.jobs}
        for victim, job in sorted(victims, key=lambda pair: pair[0].price, reverse=True):
            if not load.stays(victim):
                reason = f"makes room for {job}, which {_why_first(views[job], views[victim.job])}"
                yield from (Suspend(run, reason, job) for run in victim.runs)


def _why_first(job: JobView, victim: JobView) -> str:
    """Why a job comes before a victim, for the user."""
    if job.priority > victim.priority:
        return "has a higher priority"
    if job.urgency.ahead is not None:
        return "would be late for its deadline behind it"
    return "was submitted before"


def _left(seen: Snapshot, gone: set[RunId]) -> Snapshot:
    """A snapshot whose instances are left by some task runs."""
    instances = tuple(
        replace(view, residents=tuple(run for run in view.residents if run not in gone))
        for view in seen.instances
    )
    return replace(seen, instances=instances)
