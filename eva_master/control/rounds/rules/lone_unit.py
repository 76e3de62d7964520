"""The stage that places a gang, or a task, that fits, whatever it is worth there.

A policy may leave tasks waiting since they are worth less together than an instance costs. Where
nothing else has a place that would be for ever. Limits that policies do not see may likewise cut
each plan for tasks that would fit on fewer or cheaper instances: always, for a gang of more members
than a job may have instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eva_master.control.planning.validate_plan import Decision
from eva_master.control.rounds.rules.own_room import Bounds, own_room
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Plan, Resize
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.bounds import JobKind


def lone(effect: PlanEffect, decision: Decision) -> JobView | None:
    """The first waiting job, where nothing has a place or gets one.

    Args:
        effect: The policy's plan.
        decision: The part of it that is carried out.
    """
    busy = any(run.instance is not None for run in effect.now.runs)
    leaving = any(view.residents for view in effect.now.draining)
    if busy or leaving or decision.places or decision.extras:
        return None
    jobs = [job for job in effect.now.jobs if job.runs]
    return min(jobs, key=lambda job: (-job.priority, job.submitted_ms, job.id), default=None)


def crowded_out(before: PlanEffect, after: PlanEffect, decision: Decision) -> JobView | None:
    """The most urgent gang that limits of the number of instances cut.

    Args:
        before: The plan before these limits.
        after: The plan after them.
        decision: The part of the plan that is carried out.
    """
    if len(before.assigned) == len(after.assigned):
        return None
    placed = {run for run, _ in decision.places}
    cut = before.assigned.keys() - after.assigned.keys() - placed
    for unit in before.units:
        whole = len(unit.entries) == len(unit.job.runs) > 1
        waits = all(
            entry.run in cut and before.runs[entry.run].instance is None for entry in unit.entries
        )
        if whole and waits:
            return unit.job
    return None


def placed_alone(effect: PlanEffect, job: JobView, bounds: Bounds) -> Plan | None:
    """A plan that places a lone job as well: the whole of a gang, the first task of an array.

    Args:
        effect: The policy's plan, which leaves the job waiting.
        job: The job, see `lone` and `crowded_out`.
        bounds: The limits.

    Returns:
        `None` if the job does not fit, stands in a line, or is not held by the plan.
    """
    plan, present, views = effect.plan, effect.now, effect.runs
    if effect.held.keys().isdisjoint(job.runs) or any(job.id in line.jobs for line in plan.lines):
        return None
    gang = job.spec.kind is JobKind.GANG
    runs = [views[name] for name in (job.runs if gang else job.runs[:1])]
    if any(run.pinned for run in runs):
        return None
    elastic = job.sharing.elastic
    for count in dict.fromkeys((len(runs), elastic.least if elastic else len(runs))):
        seating = _seated(plan, job, runs[:count], present, bounds)
        if seating is not None and count < len(runs):
            resized = Resize(job.id, count, "there is room for no more")
            sizes = (*(size for size in seating.sizes if size.job != job.id), resized)
            return replace(seating, sizes=sizes)
        if seating is not None:
            return seating
    return None


def _seated(
    plan: Plan, job: JobView, runs: Sequence[RunView], present: Snapshot, bounds: Bounds
) -> Plan | None:
    """The plan with places for some task runs."""
    room = own_room(PlanEffect(present, plan), job, runs, bounds)
    if room is None:
        return None
    gang = job.spec.kind is JobKind.GANG
    ours = {*job.runs} if gang else {run.id for run in runs}
    kept = (entry for entry in plan.entries if entry.run not in ours)
    entries = (*kept, *(Assign(run, place) for run, place in room.places.items()))
    return replace(plan, launches=(*plan.launches, *room.launches), entries=entries)
