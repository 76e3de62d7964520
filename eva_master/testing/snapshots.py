"""Small clusters for policies to look at, and what becomes of them when a plan is carried out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from eva_master.learning.colocation import key, observe
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.job_view import ArrayView, Delays, JobView
from eva_master.model.planning.plan import Assign, Plan, Suspend
from eva_master.model.planning.snapshot import (
    InstanceView,
    RemainingWork,
    RunView,
    Snapshot,
    ThroughputTable,
)
from eva_master.model.resources import Resources
from eva_master.testing.filling import Filling
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import (
    MILLION,
    Family,
    InstanceId,
    JobId,
    Millis,
    Price,
    RunId,
    Workload,
    run_id,
)

Amounts = tuple[int, float, float] | tuple[int, float, float, float]
"""GPUs, vCPUs, GiB of memory, and of disk where there are four."""

START = Millis(1_700_000_000_000)


def amount(sizes: Amounts) -> Resources:
    """Resources of so many GPUs, vCPUs and GiB."""
    gpus, cpus, *gib = sizes
    return Resources(int(gpus), round(cpus * 1000), *(round(each * 1024) for each in gib))


def offer(
    name: str,
    sizes: Amounts,
    usd: float,
    *,
    family: str = "any",
    limit: int | None = None,
    until: int | None = None,
    setup_s: int = 0,
    acquisition_s: int = 0,
) -> Offering:
    """An instance type on sale.

    Args:
        name: Of the type and the offering.
        sizes: Capacity of an instance.
        usd: Dollars per hour.
        family: Of the type; tasks state their demand by family.
        limit: At most so many may be bought, `None` for any number.
        until: None can be had before, in milliseconds since the epoch.
        setup_s: From up to ready.
        acquisition_s: From launch to up.
    """
    return Offering(
        InstanceType(name, Family(family), amount(sizes), acquisition_s * 1000, setup_s * 1000),
        Price(round(usd * MILLION)),
        limit=limit,
        unavailable_until=None if until is None else Millis(until),
    )


def task(workload: str = "w", **demand: Amounts) -> TaskSpec:
    """A task by its demand per family; family ``any`` is that of `offer`."""
    needs = sorted((Family(family), amount(sizes)) for family, sizes in demand.items())
    return TaskSpec(Workload(workload), Program("true"), tuple(needs))


def table(entries: Mapping[tuple[str, tuple[str, ...]], float]) -> ThroughputTable:
    """A co-location table; values are fractions of the standalone throughput."""
    learned = ThroughputTable()
    for (workload, others), value in entries.items():
        entry = key(Workload(workload), [Workload(other) for other in others])
        learned = observe(learned, entry, round(value * MILLION))
    return learned


class Cluster:
    """A snapshot in the making.

    Attributes:
        catalog: Offerings on sale.
        jobs: Added by `job`.
        runs: Their task runs.
        bought: Live instances with their offerings, and whether they are ready.
        throughput: Learned co-location, see `table`.
        now_ms: The time of the snapshot.
    """

    def __init__(self, *catalog: Offering) -> None:
        self.catalog: Catalog = catalog
        self.jobs: list[JobView] = []
        self.runs: list[RunView] = []
        self.bought: dict[InstanceId, tuple[Offering, bool]] = {}
        self.throughput = ThroughputTable()
        self.now_ms = START

    def instance(self, name: str, type_name: str, *, ready: bool = True) -> Cluster:
        """Add a live instance of a type of the catalog."""
        offering = next(o for o in self.catalog if o.type.name == type_name)
        self.bought[InstanceId(name)] = offering, ready
        return self

    def job(
        self,
        name: str,
        *tasks: TaskSpec,
        on: Sequence[str | None] = (),
        running: bool = True,
        pinned: bool = False,
        kind: JobKind = JobKind.GANG,
        priority: int = 0,
        checkpoint_s: int = 10,
        launch_s: int = 50,
        left_s: int | None = None,
    ) -> Cluster:
        """Add a job.

        Args:
            name: Of the job; its task runs are ``NAME/0`` and so on.
            tasks: One task run each.
            on: The instances where they are, `None` for one that waits; all wait by default.
            running: Whether those with an instance run there already.
            pinned: Whether they must stay where they are.
            kind: How its tasks belong together.
            priority: The higher go first.
            checkpoint_s: Duration of a stop.
            launch_s: Duration of a start.
            left_s: How long each task will still run alone from now on, `None` for unknown.
        """
        id_ = JobId(name)
        runs = tuple(run_id(id_, index) for index in range(len(tasks)))
        places = on or (None,) * len(tasks)
        since = self.now_ms if running and any(on) else None
        work = None if left_s is None else RemainingWork(left_s * 1000, since)
        for run, spec, place in zip(runs, tasks, places, strict=True):
            instance = None if place is None else InstanceId(place)
            alive = running and place is not None
            self.runs.append(RunView(run, id_, spec, instance, pinned, alive, remaining=work))
        self.jobs.append(
            JobView(
                id_,
                JobSpec(name, "", (), kind=kind, priority=priority),
                runs,
                START,
                priority,
                delays=Delays(checkpoint_s * 1000, launch_s * 1000),
                array=ArrayView(len(tasks)),
            )
        )
        return self

    def snapshot(self, *, arrivals: int | None = None, completions: int = 0) -> Snapshot:
        """The cluster as a policy gets to see it.

        Args:
            arrivals: Jobs that ever arrived, `None` for those that are here.
            completions: Jobs that ever ended.
        """
        return Snapshot(
            self.now_ms,
            self.catalog,
            tuple(sorted(self.jobs, key=lambda job: job.id)),
            tuple(sorted(self.runs, key=lambda run: run.id)),
            _instances(self.bought, self.runs),
            len(self.jobs) if arrivals is None else arrivals,
            completions,
            self.throughput,
        )


def _instances(
    bought: Mapping[InstanceId, tuple[Offering, bool]],
    runs: Sequence[RunView],
    pools: Mapping[InstanceId, str] | None = None,
) -> tuple[InstanceView, ...]:
    residents: dict[InstanceId | None, list[RunId]] = {}
    for run in sorted(runs, key=lambda run: run.id):
        residents.setdefault(run.instance, []).append(run.id)
    return tuple(
        InstanceView(
            id_,
            offering,
            tuple(residents.get(id_, ())),
            ready,
            "" if pools is None else pools.get(id_, ""),
        )
        for id_, (offering, ready) in sorted(bought.items())
    )


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The cluster once the plan has been carried out and empty instances are gone.

    Members of pools stay, and the tasks that stand in lines have taken the room there.
    """
    bought = {i.id: (i.offering, i.ready) for i in snapshot.instances}
    fresh: dict[int, InstanceId] = {}
    for launch in plan.launches:
        fresh[launch.key] = InstanceId(f"new-{snapshot.now_ms}-{launch.key:04}")
        bought[fresh[launch.key]] = launch.offering, True
    target: dict[RunId, InstanceId | None] = {}
    for entry in plan.entries:
        match entry:
            case Assign(run=run, on=int() as number):
                target[run] = fresh[number]
            case Assign(run=run, on=host):
                target[run] = InstanceId(str(host))
            case Suspend(run=run):
                target[run] = None
    runs = tuple(
        replace(run, instance=target[run.id], running=target[run.id] is not None)
        if run.id in target
        else run
        for run in snapshot.runs
    )
    pools = {
        fresh[member] if isinstance(member, int) else member: pool.name
        for pool in plan.pools
        if not pool.shared
        for member in pool.members
    }
    back = {view.id: (view.offering, view.ready) for view in snapshot.draining if view.id in pools}
    bought |= back
    views = {view.id: view for view in _instances(bought, runs)}
    taken = Filling(snapshot.jobs, runs, views, plan, fresh).filled()
    runs = tuple(
        replace(run, instance=taken[run.id], running=True) if run.id in taken else run
        for run in runs
    )
    used = {run.instance for run in runs}
    kept = {id_: value for id_, value in bought.items() if id_ in used or id_ in pools}
    after = replace(snapshot, runs=runs, instances=_instances(kept, runs, pools))
    leaving = {view.id for view in snapshot.instances if view.pool} - pools.keys()
    return _drained(after, leaving) if leaving or snapshot.draining else after


def _drained(snapshot: Snapshot, left: Collection[InstanceId]) -> Snapshot:
    """The cluster once instances have left their pools: their tasks finish and are not seen."""
    instances = {view.id for view in snapshot.instances}
    going = tuple(view for view in snapshot.draining if view.id not in instances)
    going += tuple(view for view in snapshot.instances if view.id in left)
    hidden = {run.id for run in snapshot.runs if run.instance in left}
    jobs = (
        replace(job, runs=tuple(run for run in job.runs if run not in hidden))
        for job in snapshot.jobs
    )
    return replace(
        snapshot,
        jobs=tuple(job for job in jobs if job.runs),
        runs=tuple(run for run in snapshot.runs if run.id not in hidden),
        instances=tuple(view for view in snapshot.instances if view.id not in left),
        draining=going,
    )


def ended(snapshot: Snapshot, *jobs: str) -> Snapshot:
    """The cluster after jobs have ended."""
    pools = {view.id: view.pool for view in snapshot.instances}
    runs = tuple(run for run in snapshot.runs if run.job not in jobs)
    bought = {i.id: (i.offering, i.ready) for i in snapshot.instances}
    return replace(
        snapshot,
        jobs=tuple(job for job in snapshot.jobs if job.id not in jobs),
        runs=runs,
        instances=_instances(bought, runs, pools),
        completions=snapshot.completions + len(jobs),
    )
