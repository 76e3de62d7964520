"""Gives the GPUs that were counted out to tasks, on machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.toolkit import PlannerCache, open_instances
from eva_master.policies.astraea.allotting import Allotment, Share
from eva_master.policies.astraea.asks import Ask
from eva_master.policies.astraea.gathering import Asked, sizes_of


class Seating:
    """A round's tasks on machines, at the sizes that they were allotted.

    Args:
        snapshot: The cluster; elastic gangs have the sizes that they have.
        asked: Who asks for what.
        allotment: Who gets what.
        cache: The planner's.

    Attributes:
        snapshot: The cluster with the new sizes.
        instances: Of it.
        contenders: Who competes, at the new sizes.
        sizes: The sizes that change.
        failed: Asks that were allotted room that no machines have together.
    """

    def __init__(
        self, snapshot: Snapshot, asked: Asked, allotment: Allotment, cache: PlannerCache
    ) -> None:
        members = {name: share.members for name, share in allotment.shares.items()}
        before = {job.id: len(job.runs) for job in snapshot.jobs}
        sizes = sizes_of(asked, members)
        self.sizes = {job: size for job, size in sizes.items() if size != before[job]}
        self.snapshot = with_sizes(snapshot, self.sizes)
        self.instances: OpenInstances = open_instances(self.snapshot, cache)
        runs: dict[str, list[RunView]] = {}
        for run in self.snapshot.runs:
            runs.setdefault(run.job, []).append(run)
        jobs = {job.id: job for job in self.snapshot.jobs}
        self.contenders = [
            replace(one, job=jobs[one.job.id], runs=tuple(runs[one.job.id]))
            if one.job.elastic is not None
            else one
            for one in asked.contenders.values()
        ]
        had = [
            replace(one, runs=tuple(run for run in one.runs if run.id in self.instances.row_of))
            for one in self.contenders
            if one.id in asked.asks and not asked.asks[one.id].fixed and one.seated
        ]
        self._seats = Seats(self.snapshot, self.instances, had)
        self._asked = asked
        self._by_id: dict[str, Contender] = {one.id: one for one in self.contenders}
        self.failed = self._seat(allotment)

    def has(self, name: str) -> bool:
        """Whether a contender has its seats."""
        return self._seats.has(self._by_id[name])

    def _seat(self, allotment: Allotment) -> list[str]:
        """Seat everybody; if not all find room, those within their own quota before others."""
        mark = self.instances.mark()
        asks = [self._asked.asks[it] for it in allotment.shares if not self._asked.asks[it].fixed]
        stay = [it for it in asks if self._stays(it, allotment.shares[it.id])]
        names = {it.id for it in stay}
        others = sorted(
            (it for it in asks if it.id not in names),
            key=lambda it: (allotment.shares[it.id].borrowed > 0, it.rank),
        )
        if not (failed := self._in_turn((*stay, *others), allotment)):
            return []
        self.instances.back(mark)
        fairly = sorted(
            asks, key=lambda it: (allotment.shares[it.id].borrowed > 0, it.id not in names, it.rank)
        )
        if len(again := self._in_turn(fairly, allotment)) <= len(failed):
            return again
        self.instances.back(mark)
        return self._in_turn((*stay, *others), allotment)

    def _in_turn(self, asks: Iterable[Ask], allotment: Allotment) -> list[str]:
        failed = []
        for ask in asks:
            one = self._by_id[ask.id]
            if not self._seats.on(one, (allotment.shares[ask.id].family,)):
                failed.append(ask.id)
        return failed

    def _stays(self, ask: Ask, share: Share) -> bool:
        return ask.now == share.members and ask.on == share.family

    def fill(self, accepts: Mapping[str, bool], allotment: Allotment) -> None:
        """Give what is idle to those that found no room where they were allotted some.

        Args:
            accepts: Who may have it, who comes first first.
            allotment: Gets their shares.
        """
        families = tuple(sorted(allotment.free))
        for name, may in accepts.items():
            one = self._by_id[name]
            if not may or one.between or self._seats.has(one) or not one.chooses:
                continue
            if one.job.elastic is not None and name in self._asked.asks:
                continue
            order = sorted(one.alone_ms, key=lambda it: (one.alone_ms[it], it))
            single = [(it,) for it in order if it in one.types]
            mixed = (*order, *(it for it in families if it not in order))
            for types in (*single, mixed):
                if self._seats.on(one, types):
                    self._note(one, allotment)
                    break

    def _note(self, one: Contender, allotment: Allotment) -> None:
        family = min(self._seats.seated_on(one))
        gpus = sum((it.task.demand_on(family) or it.task.demand[0][1]).gpus for it in one.runs)
        own = min(gpus, max(0, allotment.left.get(one.job.tenant, {}).get(family, 0)))
        if own:
            allotment.left[one.job.tenant][family] -= own
        allotment.shares[one.id] = Share(family, 1, own, gpus - own)
