"""A plain reference for filling room in pools."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.model.planning.standing import Line
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.room import room_beside
from eva_wire.values.ids import InstanceId, RunId


class Filling:
    """Fills the room of pools from lines, one task after the other.

    Args:
        jobs: The jobs that there are.
        runs: Their task runs, with the places that a plan gave them.
        instances: The instances that take tasks, by id.
        plan: Its pools and lines; new instances have the ids of `names`.
        names: Ids of new instances, by key.
    """

    def __init__(
        self,
        jobs: tuple[JobView, ...],
        runs: tuple[RunView, ...],
        instances: Mapping[InstanceId, InstanceView],
        plan: Plan,
        names: Mapping[int, InstanceId],
    ) -> None:
        self._runs = {run.id: run for run in runs}
        self._jobs = {job.id: job for job in jobs}
        self._instances = instances
        self._names = names
        self._plan = plan
        self.places: dict[RunId, InstanceId] = {}

    def filled(self) -> dict[RunId, InstanceId]:
        """The task runs that take room, and where."""
        while (placed := self._next()) is not None:
            run, instance = placed
            self.places[run] = instance
        return self.places

    def _next(self) -> tuple[RunId, InstanceId] | None:
        lines = list(enumerate(self._plan.lines))
        for _, line in sorted(lines, key=lambda it: (it[1].rank, self._share(it[1]), it[0])):
            for job in line.jobs:
                if not self._has_cap_left(line, job):
                    continue
                for run in self._jobs[job].runs if job in self._jobs else ():
                    place = self._room(line, self._runs[run]) if self._waits(run) else None
                    if place is not None:
                        return run, place
        return None

    def _share(self, line: Line) -> Fraction:
        only = self._only(line)
        members = {member for name in line.pools for member in self._members(name)}
        members &= only or members
        sizes = dict(line.sizes)
        held = sum(
            sizes.get(job, 1) * (self._place(run) in members)
            for job in set(line.jobs)
            for run in (self._jobs[job].runs if job in self._jobs else ())
        )
        return Fraction(held, line.weight_ppm)

    def _has_cap_left(self, line: Line, job: str) -> bool:
        for name, most in line.at_most:
            if name == job:
                return sum(not self._waits(run) for run in self._jobs[name].runs) < most
        return True

    def _waits(self, run: RunId) -> bool:
        return self._place(run) is None and not self._runs[run].pinned

    def _place(self, run: RunId) -> InstanceId | None:
        return self.places.get(run, self._runs[run].instance)

    def _members(self, name: str) -> list[InstanceId]:
        return [
            self._names[member] if isinstance(member, int) else member
            for pool in self._plan.pools
            if pool.name == name
            for member in pool.members
            if member not in pool.closed
        ]

    def _only(self, line: Line) -> set[InstanceId]:
        return {self._names[member] if isinstance(member, int) else member for member in line.only}

    def _room(self, line: Line, run: RunView) -> InstanceId | None:
        only = self._only(line)
        for name in line.pools:
            for member in self._members(name):
                view = self._instances.get(member)
                if view is None or not view.ready or (only and member not in only):
                    continue
                need = run.task.demand_on(view.offering.type.family)
                if need is not None and need.fits(self._free(view)):
                    return member
        return None

    def _free(self, view: InstanceView) -> Resources:
        used = NOTHING
        for run in self._runs.values():
            if self._place(run.id) == view.id:
                used = used + (run.task.demand_on(view.offering.type.family) or NOTHING)
        return room_beside(view.offering, used)
