"""A policy whose tasks stand in lines: for tests of what the control loop makes of such plans."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from eva_master.model.catalog import Offering
from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PlanEntry, PolicyMemory
from eva_master.model.planning.reasons import Hosting, Occupant, Reasons
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.ports import PolicyKind
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, InstanceId, JobId, RunId


@dataclass(frozen=True, slots=True)
class Config:
    """The options.

    Attributes:
        size: So many instances stand in the pool while there are tasks for it.
        keeps: Whether they stand there without any task, too.
    """

    size: int = 2
    keeps: bool = False


class PoolPolicy:
    """Independent tasks stand in one line for a pool of one type; gangs get instances each."""

    name = "pools"

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        draft = Draft(snapshot)
        wanted = self._config.size if draft.queue or draft.busy or self._config.keeps else 0
        offering = draft.offering()
        members: list[InstanceId | int] = [view.id for view in draft.pool][:wanted]
        while len(members) < wanted and (key := draft.launch(offering)) is not None:
            members.append(key)
        if not members and not draft.queue:
            return draft.plan(), memory
        lines = (Line(("small",), tuple(job.id for job in draft.queue)),) if draft.queue else ()
        pool = Pool("small", tuple(members), f"{wanted} are kept for small tasks")
        return draft.plan((pool,) if members else (), lines if members else ()), memory


class Draft:
    """A plan in the making: gangs and what fits in no member are placed or held at once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._launches: list[NewInstance] = []
        self._entries: list[PlanEntry] = []
        self._runs = {run.id: run for run in snapshot.runs}
        self._left = {it.id: it.limit for it in snapshot.catalog}
        for view in (*snapshot.instances,):
            if (limit := self._left.get(view.offering.id)) is not None:
                self._left[view.offering.id] = limit - 1
        self.pool: list[InstanceView] = [it for it in snapshot.instances if it.pool == "small"]
        # A gang that waits for a member's place would wait for ever if its others kept the pool.
        gangs = {job.id for job in snapshot.jobs if job.spec.kind is JobKind.GANG}
        there = (self._runs[name] for view in self.pool for name in view.residents)
        self.busy = any(run.running or run.job not in gangs for run in there)
        small = self._small()
        self.queue: list[JobView] = []
        for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, job.submitted_ms, job.id)):
            runs = [self._runs[name] for name in job.runs]
            single = job.stands_in_line
            if single and small is not None and all(_fits(run, small) for run in runs):
                self.queue.append(job)
            else:
                self._place(job, runs)

    def _small(self) -> Offering | None:
        if self.pool:
            return self.pool[0].offering
        return next((it for it in self.snapshot.catalog if self._buyable(it)), None)

    def _buyable(self, offering: Offering) -> bool:
        left = self._left.get(offering.id)
        return offering.available(self.snapshot.now_ms) and (left is None or left > 0)

    def offering(self) -> Offering | None:
        """The type of the pool."""
        return self._small()

    def launch(self, offering: Offering | None) -> int | None:
        """The key of a new instance; `None` if it cannot be had."""
        if offering is None:
            return None
        sold = next((it for it in self.snapshot.catalog if it.id == offering.id), None)
        if sold is None or not self._buyable(sold):
            return None
        if (left := self._left[sold.id]) is not None:
            self._left[sold.id] = left - 1
        self._launches.append(NewInstance(len(self._launches), sold))
        return self._launches[-1].key

    def _place(self, job: JobView, runs: list[RunView]) -> None:
        units = [runs] if job.spec.kind is JobKind.GANG else [[run] for run in runs]
        for unit in units:
            if any(run.pinned for run in unit):
                continue
            waiting = [run for run in unit if run.instance is None]
            before, left = list(self._launches), dict(self._left)
            entries: list[PlanEntry] = []
            for run in waiting:
                hosts = [it for it in self.snapshot.catalog if _fits(run, it) and self._buyable(it)]
                key = self.launch(hosts[0]) if hosts else None
                if key is None:
                    self._launches, self._left = before, left
                    entries = [Hold(one.id, "there is none for it") for one in waiting]
                    break
                entries.append(Assign(run.id, key))
            self._entries += entries

    def plan(self, pools: tuple[Pool, ...] = (), lines: tuple[Line, ...] = ()) -> Plan:
        """The resulting plan."""
        queued = {job for line in lines for job in line.jobs}
        held = [
            Hold(run.id, "no instance can be had")
            for run in self.snapshot.runs
            if run.job in {job.id for job in self.queue} - queued
            and run.instance is None
            and not run.pinned
        ]
        entries = (*self._entries, *held)
        return Plan(
            tuple(self._launches), entries, reasons=self._reasons(), pools=pools, lines=lines
        )

    def _reasons(self) -> Reasons:
        """That every place is worth nothing; nothing is ever moved."""
        offerings: dict[InstanceId | int, Offering] = {
            view.id: view.offering for view in self.snapshot.instances
        }
        places: dict[InstanceId | int, list[RunId]] = {}
        for run in self.snapshot.runs:
            if run.instance in offerings:
                places.setdefault(run.instance, []).append(run.id)
        offerings |= {launch.key: launch.offering for launch in self._launches}
        for entry in self._entries:
            if isinstance(entry, Assign):
                places.setdefault(entry.on, []).append(entry.run)
        return Reasons(
            tuple(
                Hosting(
                    on,
                    offerings[on].type.name,
                    offerings[on].price,
                    0,
                    tuple(Occupant(run, 0, MILLION, 0) for run in runs),
                )
                for on, runs in places.items()
            )
        )


def _fits(run: RunView, offering: Offering) -> bool:
    need = run.task.demand_on(offering.type.family)
    return need is not None and need.fits(offering.type.capacity)


KIND = PolicyKind(
    name="pools", config=Config, build=PoolPolicy, presets={"one": {"size": 1}}, reads=reads_none
)
"""The policy, as the conformance suite wants it."""


class CapriciousLines:
    """States pools and lines at random, and now and then places tasks itself.

    A pure function of the snapshot and the seed; sensible once `until_ms` has passed.
    """

    name = "capricious"

    def __init__(self, seed: int, until_ms: int, other: Any) -> None:
        self._seed = seed
        self._until_ms = until_ms
        self._other = other

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        rng = random.Random(f"lines/{self._seed}/{snapshot.now_ms}")
        calm = snapshot.now_ms >= self._until_ms
        if calm:
            return PoolPolicy(Config()).plan(snapshot, memory)
        plan = Plan() if rng.random() < 0.6 else self._other.plan(snapshot, memory)[0]
        pools, launches = self._pools(snapshot, plan, rng)
        lines = tuple(self._line(snapshot, pools, rng) for _ in range(rng.randrange(4)))
        entries = plan.entries if rng.random() < 0.7 else ()
        used = {entry.on for entry in entries if isinstance(entry, Assign)}
        used |= {key for pool in pools for key in pool.members}
        kept = tuple(one for one in (*plan.launches, *launches) if one.key in used)
        return Plan(kept, entries, pools=pools, lines=lines), memory

    def _pools(
        self, snapshot: Snapshot, plan: Plan, rng: random.Random
    ) -> tuple[tuple[Pool, ...], list[NewInstance]]:
        names = ["small", "large"]
        members: dict[str, list[InstanceId | int]] = {name: [] for name in names}
        for view in (*snapshot.instances, *snapshot.draining):
            chance = 0.9 if view.pool else 0.4
            if rng.random() < chance:
                stays = view.pool in names and rng.random() < 0.9
                members[view.pool if stays else rng.choice(names)].append(view.id)
        launches = []
        for _ in range(rng.randrange(3) if len(snapshot.instances) < 8 else 0):
            key = 1000 + len(launches)
            launches.append(NewInstance(key, rng.choice(snapshot.catalog)))
            members[rng.choice(names)].append(key)
        pools = tuple(
            Pool(name, tuple(there), "a whim", tuple(it for it in there if rng.random() < 0.1))
            for name, there in members.items()
            if there
        )
        return pools, launches

    def _line(self, snapshot: Snapshot, pools: tuple[Pool, ...], rng: random.Random) -> Line:
        jobs = [job.id for job in snapshot.jobs if rng.random() < 0.8]
        rng.shuffle(jobs)
        names = [pool.name for pool in pools] or ["none"]
        rng.shuffle(names)
        members = [it for pool in pools for it in pool.members]
        capped: list[JobId] = [job for job in jobs if rng.random() < 0.3]
        tasks = {job.id: job.array.size for job in snapshot.jobs}
        pilots: list[JobId] = [job for job in jobs if rng.random() < 0.2]
        return Line(
            tuple(names[: rng.randrange(1, 3)]),
            tuple(jobs),
            rank=rng.randrange(2),
            weight_ppm=rng.choice([1, MILLION, 3 * MILLION]),
            at_most=tuple((job, rng.randrange(3)) for job in capped),
            chosen=tuple(
                (job, tuple(rng.sample(range(tasks[job]), rng.randrange(tasks[job] + 1))))
                for job in pilots
            ),
            only=tuple(it for it in members if rng.random() < 0.5) if rng.random() < 0.3 else (),
        )
