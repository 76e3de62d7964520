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
from eva_policies.astraea.allotting import Allotment, Share
from eva_policies.astraea.requests import RoomRequest
from eva_policies.astraea.requests_from_snapshot import RoomRequests, sizes_of


class Seating:
    """A round's tasks on machines, at their allotted sizes.

    Args:
        snapshot: The cluster; elastic gangs have their present sizes.
        asked: The asks of the round.
        allotment: The allotment.
        cache: The planner's cache.

    Attributes:
        snapshot: The cluster with the new sizes.
        instances: Its instances.
        contenders: The contenders, at the new sizes.
        sizes: The sizes that change.
        failed: Asks whose allotted room is not found on machines together.
    """

    def __init__(
        self, snapshot: Snapshot, asked: RoomRequests, allotment: Allotment, cache: PlannerCache
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
            replace(contender, job=jobs[contender.job.id], runs=tuple(runs[contender.job.id]))
            if contender.job.sharing.elastic is not None
            else contender
            for contender in asked.contenders.values()
        ]
        had = [
            replace(
                contender,
                runs=tuple(run for run in contender.runs if run.id in self.instances.row_of),
            )
            for contender in self.contenders
            if contender.id in asked.asks
            and not asked.asks[contender.id].fixed
            and contender.seated
        ]
        self._seats = Seats(self.snapshot, self.instances, had)
        self._asked = asked
        self._by_id: dict[str, Contender] = {
            contender.id: contender for contender in self.contenders
        }
        self.failed = self._seat(allotment)

    def has(self, name: str) -> bool:
        """Whether a contender has its seats."""
        return self._seats.has(self._by_id[name])

    def _seat(self, allotment: Allotment) -> list[str]:
        """Seat all asks; if not all fit, those within their own quota before others."""
        mark = self.instances.mark()
        asks = [
            self._asked.asks[name] for name in allotment.shares if not self._asked.asks[name].fixed
        ]
        stay = [ask for ask in asks if self._stays(ask, allotment.shares[ask.id])]
        names = {ask.id for ask in stay}
        others = sorted(
            (ask for ask in asks if ask.id not in names),
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

    def _in_turn(self, asks: Iterable[RoomRequest], allotment: Allotment) -> list[str]:
        failed = []
        for ask in asks:
            contender = self._by_id[ask.id]
            if not self._seats.on(contender, (allotment.shares[ask.id].family,)):
                failed.append(ask.id)
        return failed

    def _stays(self, ask: RoomRequest, share: Share) -> bool:
        return ask.now == share.members and ask.on == share.family

    def fill(self, accepts: Mapping[str, bool], allotment: Allotment) -> None:
        """Give idle room to contenders that found no room where it was allotted.

        Args:
            accepts: Whether each contender may have it, in the order of their turn.
            allotment: The allotment, to which their shares are added.
        """
        families = tuple(sorted(allotment.free))
        for name, may in accepts.items():
            contender = self._by_id[name]
            if not may or contender.between or self._seats.has(contender) or not contender.chooses:
                continue
            if contender.job.sharing.elastic is not None and name in self._asked.asks:
                continue
            order = sorted(contender.alone_ms, key=lambda it: (contender.alone_ms[it], it))
            single = [(family,) for family in order if family in contender.types]
            mixed = (*order, *(family for family in families if family not in order))
            for types in (*single, mixed):
                if self._seats.on(contender, types):
                    self._note(contender, allotment)
                    break

    def _note(self, one: Contender, allotment: Allotment) -> None:
        family = min(self._seats.seated_on(one))
        gpus = sum((run.task.demand_on(family) or run.task.demand[0][1]).gpus for run in one.runs)
        own = min(gpus, max(0, allotment.left.get(one.job.spec.tenant, {}).get(family, 0)))
        if own:
            allotment.left[one.job.spec.tenant][family] -= own
        allotment.shares[one.id] = Share(family, 1, own, gpus - own)
