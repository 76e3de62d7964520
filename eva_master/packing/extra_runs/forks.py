"""Forks beside the policies: policies see no forks, and forks use the room that plans leave.

A forked job trains on as many instances as its user allows and no other job needs. Policies see
only its own run, fork 0, as if the room of the others were free. Room that their plans leave idle
goes to forks: the job with the fewest runs comes first, and gets the instance where it is fastest.
Only instances that stay without the fork are used: the operator's own, and those in pools. No fork
begins where a waiting task run would fit, and a fork gives up its room at once when a plan places
another run there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import ExtraRun, PlanEntry, Retire
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.room import need_on
from eva_wire.values.ids import Family, InstanceId, JobId, RunId, Workload

_LEAVES = "its instance is given up"
_ALONE = "fork 0 of its job has no place"


def hidden(now: Snapshot) -> Snapshot:
    """The cluster as policies see it: without any fork but the first of each job."""
    jobs = {job.id for job in now.jobs if job.sharing.forks is not None}
    gone = {run.id for run in now.runs if run.replica and run.job in jobs} if jobs else set()
    if not gone:
        return now
    return replace(
        now,
        jobs=tuple(_job_without(job, gone) if job.id in jobs else job for job in now.jobs),
        runs=tuple(run for run in now.runs if run.id not in gone),
        instances=tuple(
            replace(
                view,
                residents=tuple(resident for resident in view.residents if resident not in gone),
            )
            if not gone.isdisjoint(view.residents)
            else view
            for view in now.instances
        ),
    )


def _job_without(job: JobView, gone: set[RunId]) -> JobView:
    return replace(job, runs=tuple(run for run in job.runs if run not in gone))


def completed(effect: PlanEffect) -> PlanEffect:
    """A policy's plan with the forks that begin and end.

    Args:
        effect: The policy's plan, on the cluster with all forks; its own entries stand.
    """
    jobs = {job.id: job for job in effect.now.jobs if job.sharing.forks is not None}
    if not jobs:
        return effect
    rooms = _Rooms(effect, jobs)
    retired = rooms.retired()
    changes: tuple[PlanEntry, ...] = (*retired, *rooms.begun())
    plan = effect.plan
    return effect.with_plan(replace(plan, entries=(*plan.entries, *changes))) if changes else effect


@dataclass(slots=True)
class _Room:
    """An instance once a plan is carried out.

    Attributes:
        free: Free room beside the runs that policies see, and forks that stay.
        forks: The forks on it.
        jobs: Jobs with any run on it.
        fits: Whether forks may begin on it.
    """

    offering: Offering
    free: Resources
    forks: list[RunView]
    jobs: set[JobId]
    fits: bool

    def holds(self, run: RunView) -> bool:
        """Whether a waiting run fits into the free room."""
        need = run.task.demand_on(self.offering.type.family)
        return need is not None and need.fits(self.free)

    def in_the_way_of(self, run: RunView, lost: set[RunId]) -> list[RunView]:
        """Forks to retire so that this run fits; empty if retiring all of them is not enough."""
        need = run.task.demand_on(self.offering.type.family)
        leaving: list[RunView] = []
        free = self.free
        for fork in self.forks if need is not None else ():
            if fork.id not in lost:
                leaving.append(fork)
                free = free + need_on(fork.task, self.offering)
                if need is not None and need.fits(free):
                    return leaving
        return []


class _Rooms:
    """The instances once a plan is carried out."""

    def __init__(self, effect: PlanEffect, jobs: Mapping[JobId, JobView]) -> None:
        now, self._jobs, self._places = effect.now, jobs, effect.places
        self._speeds = dict(now.standalone.measured)
        self._own = {run.job: run for run in now.runs if run.job in jobs and not run.replica}
        self._forks = [run for run in now.runs if run.job in jobs and run.replica]
        names = {run.id for run in self._forks}
        self._waiting = [run for run in effect.waiting if run.id not in names]
        self._rooms: dict[InstanceId, _Room] = {}
        for view in now.instances:
            occupants = effect.occupants.get(view.id, ())
            forks = [run for run in occupants if run.id in names]
            free = effect.free(view.id)
            for fork in forks:
                free = free + need_on(fork.task, view.offering)
            fits = view.ready and view.id in effect.keeping
            self._rooms[view.id] = _Room(
                view.offering, free, forks, {run.job for run in occupants}, fits
            )

    def retired(self) -> tuple[Retire, ...]:
        """Forks to retire: in the way of others, without fork 0, or on an instance given up."""
        retired: list[Retire] = []
        for fork in self._forks:
            own, place = self._own.get(fork.job), fork.instance
            if place is None or place not in self._rooms:
                retired.append(Retire(fork.id, _LEAVES))
            elif own is None or self._places[own.id] is None:
                retired.append(Retire(fork.id, _ALONE))
        lost = {entry.run for entry in retired}
        for name, room in self._rooms.items():
            for fork in room.forks:
                if fork.id in lost:
                    continue
                need, own = need_on(fork.task, room.offering), self._own[fork.job]
                if self._places[own.id] == name:
                    retired.append(Retire(fork.id, "fork 0 comes to its instance"))
                elif not need.fits(room.free):
                    retired.append(Retire(fork.id, "its room is needed"))
                else:
                    room.free = room.free - need
        lost = {entry.run for entry in retired}
        return (*retired, *self._making_way(lost))

    def _making_way(self, lost: set[RunId]) -> list[Retire]:
        """Forks to retire for waiting runs that a plan places in no such room."""
        retired: list[Retire] = []
        for run in self._waiting:
            if any(room.holds(run) for room in self._rooms.values()):
                continue  # it waits for something other than room
            for room in self._rooms.values():
                leaving = room.in_the_way_of(run, lost)
                if not leaving:
                    continue
                why = f"it makes room for {run.id}, which waits"
                retired += [Retire(fork.id, why) for fork in leaving]
                lost.update(fork.id for fork in leaving)
                freed = sum((need_on(fork.task, room.offering) for fork in leaving), NOTHING)
                room.free = room.free + freed - need_on(run.task, room.offering)
                break
        return retired

    def begun(self) -> tuple[ExtraRun, ...]:
        """Forks that begin, wherever room remains."""
        more_forks = {
            name: job.sharing.forks or 0
            for name, job in self._jobs.items()
            if (own := self._own.get(name)) is not None and self._places[own.id] is not None
        }
        count = {name: sum(fork.job == name for fork in self._forks) for name in more_forks}
        forks: list[ExtraRun] = []
        while True:
            wanted = sorted(
                (count[name], self._jobs[name].submitted_ms, name)
                for name, more in more_forks.items()
                if more > 0
            )
            begun = next(
                ((name, fork) for *_, name in wanted if (fork := self._fork_of(name))), None
            )
            if begun is None:
                return tuple(forks)
            name, fork = begun
            forks.append(fork)
            more_forks[name] -= 1
            count[name] += 1

    def _fork_of(self, name: JobId) -> ExtraRun | None:
        """One more fork of a job, where it is fastest."""
        own = self._own[name]
        rates = _rates(own, self._speeds)
        able = [
            (-rates.get(room.offering.type.family, 0), place)
            for place, room in self._rooms.items()
            if room.fits and name not in room.jobs and self._leaves_room(own, room)
        ]
        if not able:
            return None
        _, place = min(able)
        room = self._rooms[place]
        room.free = room.free - need_on(own.task, room.offering)
        room.jobs.add(name)
        return ExtraRun(own.id, place, "nobody else needs its room")

    def _leaves_room(self, own: RunView, room: _Room) -> bool:
        need = own.task.demand_on(room.offering.type.family)
        if need is None or not need.fits(room.free):
            return False
        for run in self._waiting:
            other = run.task.demand_on(room.offering.type.family)
            if other is not None and other.fits(room.free):
                return False
        return True


def _rates(run: RunView, measured: Mapping[tuple[Workload, Family], int]) -> dict[Family, int]:
    """A run's rates by family, in millionths: stated ones, else measured ones."""
    measured_rates = {
        family: rate
        for (workload, family), rate in measured.items()
        if workload == run.task.workload
    }
    return {**measured_rates, **dict(run.task.throughput)}
