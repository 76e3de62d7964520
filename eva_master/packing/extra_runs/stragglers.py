"""Extra runs for late tasks, decided beside the policies, under each of them alike.

A task of an array with ``stragglers: duplicate`` is late once it has run for half as long again as
tasks of its job take on average, and for longer than 19 in 20 of them; with a stated duration, for
twice as long. If its program tells how much is left, that must take longer at the task's own pace
than a new run would.

A late task is given one extra run, once, on an instance that has room and stays without this run:
one with other tasks, in a pool, or of the operator's own. No instance is bought for it: the price
of a new one is certain, its gain only expected. Waiting tasks go first: no extra run begins where a
waiting task would fit, and an extra run makes room for a task that fits only without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eva_master.model.catalog import Offering
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import ExtraRun, PlanEntry, Retire
from eva_master.model.planning.snapshot import RunTime, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.ids import InstanceId, JobId, own_run

_LEAVES = "its instance is given up"
_SELDOM_PPM = 50_000
_LATE_PERCENT = 150
_LATE_IF_STATED_PERCENT = 200


def completed(effect: PlanEffect) -> PlanEffect:
    """A policy's plan with the extra runs that begin and end.

    Args:
        effect: The policy's plan; its own entries stand.
    """
    now, plan = effect.now, effect.plan
    if all(job.sharing.replicas_left is None for job in now.jobs):
        return effect
    stated = {entry.run for entry in plan.entries}
    rooms = _Rooms(effect)
    entries: list[PlanEntry] = list(_retired(now, rooms))
    if not entries:  # else it is seen first who takes their room
        entries.extend(_begun(now, rooms))
    added = [entry for entry in entries if entry.run not in stated]
    return effect.with_plan(replace(plan, entries=(*plan.entries, *added))) if added else effect


def late(now: Snapshot) -> list[RunView]:
    """Late tasks that may be given an extra run, those most overdue first."""
    jobs = {job.id: job for job in now.jobs if job.sharing.replicas_left}
    overdue = [
        (-run.ran.ms(now.now_ms) * 100 // run.ran.expected.mean_ms, run.id, run)
        for run in (now.runs if jobs else ())
        if run.ran is not None and not run.pinned and (job := jobs.get(run.job)) is not None
        if run.ran.expected is not None and _is_late(run, run.ran, run.ran.expected, job, now)
    ]
    return [run for *_, run in sorted(overdue, key=lambda it: it[:2])]


def due_ms(estimate: Estimate) -> int:
    """The least time after which a task is late."""
    stated = estimate.source is Source.STATED
    return estimate.mean_ms * (_LATE_IF_STATED_PERCENT if stated else _LATE_PERCENT) // 100


def _is_late(run: RunView, time: RunTime, expected: Estimate, job: JobView, now: Snapshot) -> bool:
    ran = time.ms(now.now_ms)
    if ran < due_ms(expected) or expected.exceeds_ppm(ran) > _SELDOM_PPM:
        return False
    if run.remaining is None or run.remaining.estimated:
        return True
    rest_ms = run.remaining.standalone_ms(now.now_ms)
    done = expected.mean_ms - rest_ms
    if rest_ms == 0 or done <= 0:  # past a stated duration, or hardly begun
        return True
    return ran * rest_ms // done > expected.mean_ms + job.delays.launch_ms  # at its own pace


@dataclass(slots=True)
class _Room:
    """An instance once a plan is carried out.

    Attributes:
        free: Free room.
        tasks: Number of tasks on it.
        stays: Whether it is kept even if it is empty.
    """

    offering: Offering
    free: Resources
    tasks: int
    stays: bool


class _Rooms:
    """The instances that are ready, and who waits, once a plan is carried out."""

    def __init__(self, effect: PlanEffect) -> None:
        self.waiting = [run for run in effect.waiting if not run.replica]
        self.of = {
            view.id: _Room(
                view.offering,
                effect.free(view.id),
                sum(not run.replica for run in effect.occupants.get(view.id, ())),
                view.id in effect.keeping,
            )
            for view in effect.now.instances
            if view.ready
        }
        self.known = {view.id for view in effect.now.instances}

    def wanted(self, room: _Room, more: Resources) -> RunView | None:
        """A waiting task that fits into an instance's room with some more, but not without it."""
        for run in self.waiting:
            need = run.task.demand_on(room.offering.type.family)
            if need is None or not need.fits(room.free + more):
                continue
            if more == NOTHING or not need.fits(room.free):
                return run
        return None


def _retired(now: Snapshot, rooms: _Rooms) -> Iterator[Retire]:
    """The extra runs that end: for who waits, and with an instance that is given up."""
    runs = {run.id: run for run in now.runs}
    for extra in now.runs:
        own = runs.get(own_run(extra.id))
        if not extra.replica or own is None:
            continue  # it is all that its task has
        given_up = own.running and own.instance not in rooms.known
        if extra.instance not in rooms.known or given_up:
            yield Retire(extra.id, _LEAVES)
            continue
        room = None if extra.instance is None else rooms.of.get(extra.instance)
        if room is None or not own.running:
            continue
        need = extra.task.demand_on(room.offering.type.family) or NOTHING
        if need != NOTHING and (other := rooms.wanted(room, need)) is not None:
            room.free = room.free + need
            rooms.waiting.remove(other)
            yield Retire(extra.id, f"it makes room for {other.id}, which waits")


def _begun(now: Snapshot, rooms: _Rooms) -> Iterator[ExtraRun]:
    """Extra runs that begin."""
    allowed: dict[JobId, int] = {job.id: job.sharing.replicas_left or 0 for job in now.jobs}
    for run in late(now):
        place = _place(run, rooms)
        if place is None or not allowed[run.job] or run.ran is None or run.ran.expected is None:
            continue
        allowed[run.job] -= 1
        room = rooms.of[place]
        room.free = room.free - (run.task.demand_on(room.offering.type.family) or NOTHING)
        reason = (
            f"{run.id} has run for {_time(run.ran.ms(now.now_ms))}"
            f" where {_time(run.ran.expected.mean_ms)} were expected"
        )
        yield ExtraRun(run.id, place, reason)


def _place(run: RunView, rooms: _Rooms) -> InstanceId | None:
    """Place of an extra run: the fitting instance with the fewest tasks."""
    candidates = [
        (room.tasks, name)
        for name, room in rooms.of.items()
        if name != run.instance
        and (room.stays or room.tasks)
        and (need := run.task.demand_on(room.offering.type.family)) is not None
        and need.fits(room.free)
        and rooms.wanted(room, NOTHING) is None
    ]
    return min(candidates)[1] if candidates else None


def _time(ms: int) -> str:
    """A time for people, in two units at most."""
    seconds = max(1, ms // 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
