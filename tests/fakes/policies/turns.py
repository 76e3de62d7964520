"""A policy that has tasks take turns, as plainly as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PolicyMemory, Suspend
from eva_master.model.planning.reasons import Hosting, Occupant, Reasons
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.ports import PolicyKind
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, InstanceId, RunId

Group = list[RunView]
Where = InstanceId | int


@dataclass(frozen=True, slots=True)
class Config:
    """Options.

    Attributes:
        lease_s: A task that was given a place keeps it for so long.
        honest: Whether it does; else it takes half of it.
        restless: Whether it has tasks take turns though everybody has a place.
        explained: Whether plans have reasons.
    """

    lease_s: int = 600
    honest: bool = True
    restless: bool = False
    explained: bool = True


class Turns:
    """First come, first served; whoever waits has the turn of those who ran for longest."""

    name = "turns"

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Place who waits, if need be in the room of those whose lease is over."""
        known = memory.data if memory is not None else {}
        draft = _Draft(snapshot, {RunId(k): int(str(v)) for k, v in known.items()})
        lease = self._config.lease_s * (1000 if self._config.honest else 500)
        turned = False
        for group in draft.waiting():
            if not draft.seat(group) and not turned:
                turned = draft.turn(group, lease)
        if self._config.restless and draft.over(0):
            draft.entries.update({it.id: Suspend(it.id, "bored") for it in draft.over(0)[0]})
        plan = draft.plan()
        if not self._config.explained:
            plan = replace(plan, reasons=Reasons())
        return plan, PolicyMemory(self.name, 1, draft.memory())


class _Draft:
    def __init__(self, snapshot: Snapshot, since: dict[RunId, int]) -> None:
        self._snapshot = snapshot
        self._since = {
            run.id: since.get(run.id, int(snapshot.now_ms))
            for run in snapshot.runs
            if run.instance is not None
        }
        self._runs = {run.id: run for run in snapshot.runs}
        self._offerings: dict[Where, Offering] = {it.id: it.offering for it in snapshot.instances}
        self._free: dict[Where, Resources] = {}
        for view in snapshot.instances:
            self._free[view.id] = view.offering.type.capacity
        for run in snapshot.runs:
            if run.instance in self._free:
                self._take(run, run.instance)
        self._launches: list[NewInstance] = []
        self.entries: dict[RunId, Assign | Hold | Suspend] = {}

    def _need(self, run: RunView, where: Where) -> Resources | None:
        return run.task.demand_on(self._offerings[where].type.family)

    def _take(self, run: RunView, where: Where, sign: int = 1) -> None:
        need = self._need(run, where) or NOTHING
        free = self._free[where]
        self._free[where] = free - need if sign > 0 else free + need

    def _groups(self, chosen: list[RunView]) -> list[Group]:
        found = []
        for job in self._snapshot.jobs:
            mine = [run for run in chosen if run.job == job.id]
            if mine and job.spec.kind is JobKind.GANG:
                found.append(mine)
            else:
                found.extend([run] for run in mine)
        return found

    def waiting(self) -> list[Group]:
        live = {view.id for view in self._snapshot.instances}
        return self._groups(
            [it for it in self._snapshot.runs if it.instance not in live and not it.pinned]
        )

    def over(self, lease: int) -> list[Group]:
        """Groups whose lease is over, the longest first."""
        now = self._snapshot.now_ms
        live = {view.id for view in self._snapshot.instances}
        groups = self._groups([it for it in self._snapshot.runs if it.instance in live])
        ready = [
            group
            for group in groups
            if all(
                it.running
                and not it.pinned
                and now - self._since[it.id] >= lease
                and it.id not in self.entries
                for it in group
            )
            and len(group) == self._whole(group)
        ]
        return sorted(ready, key=lambda group: (self._since[group[0].id], group[0].id))

    def _whole(self, group: Group) -> int:
        job = next(it for it in self._snapshot.jobs if it.id == group[0].job)
        return len(job.runs) if job.spec.kind is JobKind.GANG else 1

    def seat(self, group: Group) -> bool:
        """Give all of a group places, or say why it waits."""
        before = dict(self._free), list(self._launches), dict(self.entries)
        for run in group:
            where = self._room(run)
            if where is None:
                self._free, self._launches, self.entries = before
                self.entries.update({it.id: Hold(it.id, "no room") for it in group})
                return False
            self._take(run, where)
            self.entries[run.id] = Assign(run.id, where)
        return True

    def _room(self, run: RunView) -> Where | None:
        for where, free in self._free.items():
            need = self._need(run, where)
            if need is not None and need.fits(free):
                return where
        counts = [it.offering.id for it in (*self._snapshot.instances, *self._launches)]
        for offering in sorted(self._snapshot.catalog, key=lambda it: (it.price, it.id)):
            need = run.task.demand_on(offering.type.family)
            bought = counts.count(offering.id)
            if need is None or not need.fits(offering.type.capacity):
                continue
            if not offering.available(self._snapshot.now_ms):
                continue
            if offering.limit is not None and bought >= offering.limit:
                continue
            key = len(self._launches)
            self._launches.append(NewInstance(key, offering))
            self._offerings[key] = offering
            self._free[key] = offering.type.capacity
            return key
        return None

    def turn(self, group: Group, lease: int) -> bool:
        """Suspend one group after the other until there is room."""
        before = dict(self._free), list(self._launches), dict(self.entries)
        for other in self.over(lease):
            for run in other:
                assert run.instance is not None
                self._take(run, run.instance, -1)
                self.entries[run.id] = Suspend(run.id, "another one's turn")
            if self.seat(group):
                return True
        self._free, self._launches, self.entries = before
        return False

    def plan(self) -> Plan:
        used = {it.on for it in self.entries.values() if isinstance(it, Assign)}
        launches = tuple(it for it in self._launches if it.key in used)
        places: dict[Where, list[RunId]] = {}
        for run in self._snapshot.runs:
            entry = self.entries.get(run.id)
            where = entry.on if isinstance(entry, Assign) else None
            if entry is None and run.instance in self._free:
                where = run.instance
            if where is not None:
                places.setdefault(where, []).append(run.id)
        hostings = tuple(
            Hosting(
                where,
                self._offerings[where].type.name,
                self._offerings[where].price,
                0,
                tuple(Occupant(run, 0, MILLION, 0) for run in runs),
            )
            for where, runs in places.items()
        )
        return Plan(launches, tuple(self.entries.values()), {}, Reasons(hostings))

    def memory(self) -> dict[str, Any]:
        now = int(self._snapshot.now_ms)
        kept = {k: v for k, v in self._since.items() if k not in self.entries}
        kept.update({k: now for k, it in self.entries.items() if isinstance(it, Assign)})
        return dict(sorted(kept.items()))


TURNS = PolicyKind(name="turns", config=Config, build=Turns, time_shares=True)
