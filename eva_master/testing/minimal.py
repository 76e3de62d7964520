"""Makes a cluster that a policy fails on as small as it goes, and writes it as Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from eva_master.model.catalog import Catalog
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import Snapshot, ThroughputTable
from eva_master.model.resources import Resources
from eva_master.testing.snapshots import START, Cluster
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId

_TRIES = 3_000
"""So many smaller clusters are tried."""


def minimal(snapshot: Snapshot, fails: Callable[[Snapshot], bool], tries: int = _TRIES) -> Snapshot:
    """A small cluster that fails as well.

    Args:
        snapshot: One that fails, made by `snapshots.Cluster`.
        fails: Whether a cluster does.
        tries: How many clusters may be tried.
    """
    sketch, tries_left = _Sketch.of(snapshot), tries
    while tries_left > 0:
        for candidate in islice(sketch.smaller(), tries_left):
            tries_left -= 1
            if fails(candidate.snapshot()):
                sketch = candidate
                break
        else:
            break
    return sketch.snapshot()


def source(snapshot: Snapshot) -> str:
    """Python that makes a snapshot like this one, by the names of `eva_master.testing.snapshots`.

    Args:
        snapshot: Made by `snapshots.Cluster`.
    """
    return _Sketch.of(snapshot).source()


@dataclass(frozen=True, slots=True)
class _Job:
    """The arguments of `Cluster.job`."""

    name: str
    tasks: tuple[TaskSpec, ...]
    on: tuple[InstanceId | None, ...]
    running: bool
    pinned: bool
    kind: JobKind
    priority: int
    left_s: int | None

    @classmethod
    def of(cls, snapshot: Snapshot, job: JobView) -> _Job:
        runs = [run for run in snapshot.runs if run.job == job.id]
        work = runs[0].remaining
        return cls(
            job.id,
            tuple(run.task for run in runs),
            tuple(run.instance for run in runs),
            any(run.running for run in runs),
            runs[0].pinned,
            job.spec.kind,
            job.priority,
            None if work is None else work.at_since_ms // 1000,
        )

    def smaller(self) -> Iterator[_Job]:
        if len(self.tasks) > 1:
            for out in range(len(self.tasks)):
                kept = [n for n in range(len(self.tasks)) if n != out]
                yield replace(
                    self,
                    tasks=tuple(self.tasks[n] for n in kept),
                    on=tuple(self.on[n] for n in kept),
                )
        for number, place in enumerate(self.on):
            if place is not None:
                yield replace(self, on=(*self.on[:number], None, *self.on[number + 1 :]))
        plain = (
            replace(self, running=False),
            replace(self, pinned=False),
            replace(self, priority=0),
            replace(self, left_s=None),
            replace(self, kind=JobKind.ARRAY),
        )
        yield from (other for other in plain if other != self)

    def without(self, gone: InstanceId) -> _Job:
        return replace(
            self, on=tuple(None if instance == gone else instance for instance in self.on)
        )

    def source(self) -> str:
        first, number = _task(self.tasks[0]), len(self.tasks)
        same = all(spec == self.tasks[0] for spec in self.tasks)
        tasks = ", ".join(map(_task, self.tasks))
        if same and number > 1:
            tasks = f"*[{first}] * {number}"
        said = {
            "on": list(self.on) if any(self.on) else [],
            "running": self.running if any(self.on) else True,
            "pinned": self.pinned,
            "priority": self.priority,
            "left_s": self.left_s,
        }
        usual = {"on": [], "running": True, "pinned": False, "priority": 0, "left_s": None}
        rest = [f"{name}={value!r}" for name, value in said.items() if value != usual[name]]
        if self.kind is JobKind.ARRAY:
            rest.append("kind=JobKind.ARRAY")
        return f"cluster.job({', '.join([repr(self.name), tasks, *rest])})"


@dataclass(frozen=True, slots=True)
class _Sketch:
    """Parts of a `Cluster`."""

    catalog: Catalog
    bought: tuple[tuple[InstanceId, str, bool], ...]
    jobs: tuple[_Job, ...]
    table: ThroughputTable

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Sketch:
        return cls(
            snapshot.catalog,
            tuple(
                (instance.id, instance.offering.type.name, instance.ready)
                for instance in snapshot.instances
            ),
            tuple(_Job.of(snapshot, job) for job in snapshot.jobs),
            snapshot.throughput,
        )

    def snapshot(self) -> Snapshot:
        cluster = Cluster(*self.catalog)
        for instance, type_name, ready in self.bought:
            cluster.instance(instance, type_name, ready=ready)
        for job in self.jobs:
            cluster.job(
                job.name,
                *job.tasks,
                on=job.on,
                running=job.running,
                pinned=job.pinned,
                kind=job.kind,
                priority=job.priority,
                left_s=job.left_s,
            )
        cluster.throughput = self.table
        return cluster.snapshot()

    def smaller(self) -> Iterator[_Sketch]:
        """Clusters with one thing less, what takes most away first."""
        for number in range(len(self.jobs)):
            yield replace(self, jobs=(*self.jobs[:number], *self.jobs[number + 1 :]))
        for number, (gone, _, _) in enumerate(self.bought):
            kept = (*self.bought[:number], *self.bought[number + 1 :])
            jobs = tuple(job.without(gone) for job in self.jobs)
            yield replace(self, bought=kept, jobs=jobs)
        needed = {type_name for _, type_name, _ in self.bought}
        for number, offering in enumerate(self.catalog):
            rest = self.catalog[:number], self.catalog[number + 1 :]
            if offering.type.name not in needed:
                yield replace(self, catalog=(*rest[0], *rest[1]))
            for plain in (replace(offering, limit=None), replace(offering, unavailable_until=None)):
                if plain != offering:
                    yield replace(self, catalog=(*rest[0], plain, *rest[1]))
        observed = self.table.observed
        for number in range(len(observed)):
            less = ThroughputTable((*observed[:number], *observed[number + 1 :]))
            yield replace(self, table=less)
        for number, job in enumerate(self.jobs):
            for other in job.smaller():
                yield replace(self, jobs=(*self.jobs[:number], other, *self.jobs[number + 1 :]))
        for number, (name, type_name, ready) in enumerate(self.bought):
            if not ready:
                ready_instance = name, type_name, True
                yield replace(
                    self, bought=(*self.bought[:number], ready_instance, *self.bought[number + 1 :])
                )

    def source(self) -> str:
        lines = ["cluster = Cluster("]
        for offering in self.catalog:
            sort, rest = offering.type, ""
            if offering.limit is not None:
                rest += f", limit={offering.limit}"
            if offering.unavailable_until is not None:
                rest += f", until=START + {offering.unavailable_until - START}"
            sizes, usd = _sizes(sort.capacity), offering.price / 1_000_000
            lines.append(f"    offer({sort.name!r}, {sizes}, {usd}, family={sort.family!r}{rest}),")
        lines.append(")")
        lines += [
            f"cluster.instance({name!r}, {type_name!r}{'' if ready else ', ready=False'})"
            for name, type_name, ready in self.bought
        ]
        lines += [job.source() for job in self.jobs]
        if self.table.observed:
            entries = ", ".join(
                f"({workload!r}, {others!r}): {ppm / 1_000_000}"
                for (workload, others), ppm in self.table.observed
            )
            lines.append(f"cluster.throughput = table({{{entries}}})")
        return "\n".join(lines)


def _task(spec: TaskSpec) -> str:
    needs = "".join(f", {family}={_sizes(need)}" for family, need in spec.demand)
    return f"task({spec.workload!r}{needs})"


def _sizes(size: Resources) -> str:
    return f"({size.gpus}, {size.milli_cpus / 1000:g}, {size.memory_mib / 1024:g})"
