"""Resolves a job file against what a cluster offers: a `JobSpec`, or all problems."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from eva_master.adapters.resolving import deadlines, forks, groups, outputs, predecessors
from eva_master.adapters.resolving.inputs import InputRoots
from eva_master.adapters.resolving.partition import ANYWHERE, Placement
from eva_master.adapters.resolving.placement import unplaceable
from eva_master.model.catalog import Catalog, base_family, is_spot
from eva_master.model.job import (
    ArrayRules,
    JobOutputs,
    JobSpec,
    JobStage,
    Latency,
    Program,
    Restarts,
    Stragglers,
    TaskSpec,
    TaskTable,
)
from eva_master.model.resources import Resources
from eva_wire.jobfile import elastic
from eva_wire.jobfile.images import image_problems
from eva_wire.jobfile.outputs import urls
from eva_wire.jobfile.reading import (
    as_submitted,
    large_environments,
    read_document,
    sections_of,
)
from eva_wire.jobfile.scalars import grace_problems
from eva_wire.jobfile.schema import ByFamily, JobFile, ResourcesSection, TaskSection
from eva_wire.jobfile.table import Table
from eva_wire.text import yamlfile
from eva_wire.text.cancellation import NEVER_CANCELLED, Cancellation
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.bounds import DEFAULT_TENANT, MOST_GRACE_MS, MOST_TASKS
from eva_wire.values.errors import InvalidJob, LimitExceeded, Problem, Unplaceable
from eva_wire.values.ids import MILLION, Family, Workload
from eva_wire.values.notices import Topic

Value = TypeVar("Value", bound=Hashable)


def parse_job(
    text: str,
    *,
    file_name: str,
    owner: str,
    tenant: str = DEFAULT_TENANT,
    catalog: Catalog,
    workdir: str | None,
    build: str = "",
    envs: Mapping[str, str] | None = None,
    name: str | None = None,
    containers: bool = True,
    cancelled: Cancellation = NEVER_CANCELLED,
    inputs: InputRoots | None = None,
    find: predecessors.Find | None = None,
    spec_of: outputs.SpecOf = lambda _: None,
    placement: Placement = ANYWHERE,
    tasks_allowed: int = MOST_TASKS,
    grace_allowed_ms: int = MOST_GRACE_MS,
    table: SubmittedTable | None = None,
    caller: Mapping[str, str] | None = None,
) -> JobSpec:
    """Turn a job file into a job.

    Args:
        text: The file as the user wrote it.
        file_name: Its name, for messages.
        owner: Owner that submits the job.
        tenant: Tenant that the job is accounted to.
        catalog: Offerings on sale; demands are resolved over their families.
        workdir: Digest of the uploaded directory, `None` for none.
        build: Digest of the uploaded build context.
        envs: Variables that override the file's.
        name: Used instead of the file's name, which the default workload keeps.
        containers: Whether tasks run in containers: only then can they have images.
        cancelled: Says when nobody waits for the job any more.
        inputs: Where inputs may come from.
        find: Finds the jobs that it is to run after; without it they are left out.
        spec_of: Tells what these jobs are, so that their outputs can be inputs.
        placement: Where it may run.
        tasks_allowed: How many tasks a job may have here (``limits.tasks_per_job``).
        grace_allowed_ms: How long a grace period may be here (``limits.grace_period``).
        table: Table whose rows are the tasks.
        caller: Values of the file's variables that have none; `None` in a preview.

    Raises:
        Cancelled: The caller has gone away.
        InvalidJob: The file cannot be accepted, with every problem.
        LimitExceeded: The job has more tasks than are allowed.
        Unplaceable: No instance type can hold one of them.
    """
    document, job = read_document(text, file_name, cancelled, caller=caller, envs=envs)
    envs, rows = envs or {}, None if table is None else table.table
    job, problems = as_submitted(document, job, rows, envs, name)
    families = sorted({offering.type.family for offering in catalog})
    before, unknown = predecessors.found(document, job, find)
    read, unreadable = outputs.resolved(document, job.storage.inputs, before, spec_of)
    problems += [
        *(inputs or InputRoots()).problems(document, urls(job.storage.inputs)),
        *_family_problems(document, job, sorted({base_family(family) for family in families})),
        *_spot_problems(document, job, families),
        *image_problems(document, job, sections_of(job), containers=containers),
        *unknown,
        *unreadable,
        *placement.problems(document, job, owner),
        *grace_problems(document, job.grace_period, grace_allowed_ms),
    ]
    _require_size(document, job, file_name, problems, allowed=tasks_allowed, rows=rows, envs=envs)

    def resolved(job: JobFile) -> list[TaskSpec]:
        files, shared, specs = _Files(workdir, build, read), _Shared(), []
        for path, task in sections_of(job):
            cancelled.check()
            resolver = _TaskResolver(document, job, task, path, shared)
            specs.append(resolver.spec(job.name or name or "", families, files, envs))
            problems.extend(resolver.problems)
        return specs

    tasks = resolved(job)
    _refuse(problems, file_name)
    named = name or job.name or ""
    spec = replace(_spec(job, _runs(job, tasks), table), name=named, owner=owner, tenant=tenant)
    spec = predecessors.ordered(spec, job, before)
    spec, misfits = _placed(document, job, tasks, groups.sized(spec, job), (catalog, placement))
    _refuse(misfits, file_name, Unplaceable)
    if job.spot is None and placement.partitions.home(spec.partition).allows_spot(spec):
        allowed = job.model_copy(update={"spot": "allowed"})
        spec = replace(spec, tasks=_runs(allowed, resolved(allowed)))
    return spec


def _spec(job: JobFile, tasks: tuple[TaskSpec, ...], table: SubmittedTable | None) -> JobSpec:
    """The job's own part of the specification."""
    return JobSpec(
        name=job.name or "",
        owner="",
        tasks=tasks,
        kind=forks.kind_of(job),
        priority=job.priority,
        total_steps=job.total_steps,
        duration_ms=job.duration,
        unique=job.unique,
        spans_zones=job.zones == "any",
        latency=Latency(job.latency),
        spot_wait_ms=job.spot_wait,
        worth=groups.worth_of(job),
        deadline=deadlines.deadline_of(job),
        labels=tuple(sorted(job.labels.items())),
        secrets=tuple(sorted(job.secrets)),
        max_cost=job.max_cost,
        notify=tuple(sorted({Topic(topic) for topic in job.notify})),
        stage=JobStage(dag=job.dag or ""),
        restarts=Restarts(
            grace_period_ms=job.grace_period,
            checkpoint_ms=job.delays.checkpoint,
            launch_ms=job.delays.launch,
            checkpoint_interval_ms=job.checkpoint_interval or 0,
        ),
        failing=groups.failing_of(job),
        array=ArrayRules(
            job.concurrency,
            Stragglers(job.stragglers),
            job.pilots,
            None if table is None else table.of_spec,
        ),
        forking=forks.rules_of(job),
        training=groups.training_of(job, members=len(tasks)),
    )


def _refuse(
    problems: list[Problem],
    file_name: str,
    error: type[InvalidJob] | type[Unplaceable] = InvalidJob,
) -> None:
    if problems:
        raise yamlfile.invalid(error, file_name, problems)


def _placed(
    document: Document,
    job: JobFile,
    tasks: list[TaskSpec],
    spec: JobSpec,
    where: tuple[Catalog, Placement],
) -> tuple[JobSpec, list[Problem]]:
    """A job with its partition, and what keeps it from running there."""
    catalog, placement = where
    if misfits := _misfits(document, job, tasks, catalog):
        return spec, misfits
    spec = placement.placed(spec, job)
    misfits = _misfits(document, job, tasks, placement.catalog(spec, catalog))
    return spec, placement.named(spec, misfits)


def _misfits(
    document: Document, job: JobFile, tasks: list[TaskSpec], catalog: Catalog
) -> list[Problem]:
    return [
        document.problem((*path, *_demand_path(document, path)), message)
        for (path, _), task in zip(sections_of(job), tasks, strict=True)
        if (message := unplaceable(task, catalog))
    ]


def _family_problems(document: Document, job: JobFile, families: list[Family]) -> list[Problem]:
    places: list[tuple[Path, Mapping[str, Any]]] = [
        (("resources_by_family",), job.resources_by_family)
    ]
    if isinstance(job.throughput, dict):
        places.append((("throughput",), job.throughput))
    for path, task in sections_of(job):
        if task and task.resources_by_family:
            places.append(((*path, "resources_by_family"), task.resources_by_family))
    return [
        document.problem(
            (*path, family),
            f"there are no instances of family {family!r}",
            yamlfile.suggestion(family, list(families)) or f"known: {', '.join(families)}",
        )
        for path, stated in places
        for family in stated
        if family not in families
    ]


def _spot_problems(document: Document, job: JobFile, families: list[Family]) -> Iterator[Problem]:
    if job.spot == "only" and not any(map(is_spot, families)):
        hint = "remove it; or have the operator buy spot instances (ec2.spot, local.spot)"
        yield document.problem(("spot",), "there are no spot instances on sale", hint)


def _runs(job: JobFile, tasks: list[TaskSpec]) -> tuple[TaskSpec, ...]:
    return tuple(tasks) if isinstance(job.tasks, list) else tuple(tasks * elastic.most_of(job))


def _demand_path(document: Document, path: Path) -> Path:
    """The key below `path` that states the demand, empty if it is the job's."""
    keys = ("resources", "resources_by_family")
    return next(((key,) for key in keys if (*path, key) in document.marks), ())


class SubmittedTable(NamedTuple):
    """The table of an array, and the name of the blob that holds it, empty in a preview."""

    table: Table
    blob: str = ""

    @property
    def of_spec(self) -> TaskTable:
        """The table as the specification of a job has it."""
        return TaskTable(self.blob, self.table.names)


class _Files(NamedTuple):
    """Digests of what came beside the file, and the outputs of other jobs that are read."""

    workdir: str | None
    build: str
    outputs: tuple[JobOutputs, ...]


class _Shared:
    """Keeps one of each value, so that equal parts of tasks take memory once."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def one(self, value: Value) -> Value:
        """A value that equals this one, always the same."""
        shared: Value = self._values.setdefault(value, value)
        return shared


def _require_size(
    document: Document,
    job: JobFile,
    file_name: str,
    problems: Sequence[Problem],
    *,
    allowed: int,
    rows: Table | None,
    envs: Mapping[str, str],
) -> None:
    """Refuse a job that is too large, before its tasks are made; tells other problems too."""
    if (excess := _tasks_problem(document, job, allowed)) is not None:
        error = InvalidJob if problems else LimitExceeded
        raise yamlfile.invalid(error, file_name, [*problems, excess])
    if large := [*large_environments(document, job, rows, envs)]:
        raise yamlfile.invalid(InvalidJob, file_name, [*problems, *large])


def _tasks_problem(document: Document, job: JobFile, allowed: int) -> Problem | None:
    """A complaint if the operator allows fewer tasks."""
    tasks = len(job.tasks) if isinstance(job.tasks, list) else elastic.most_of(job)
    if tasks <= allowed:
        return None
    return document.problem(
        ("tasks",),
        f"the job has {tasks:,} tasks, and a job may have {allowed:,} (limits.tasks_per_job)",
        "split it into several jobs, or have an operator raise the limit",
    )


class _TaskResolver:
    """Makes one `TaskSpec` out of what the job and the task say."""

    def __init__(
        self,
        document: Document,
        job: JobFile,
        task: TaskSection | None,
        path: Path,
        shared: _Shared,
    ) -> None:
        self.problems: list[Problem] = []
        self._shared = shared
        self._document = document
        self._job = job
        self._task = task
        self._path = path

    def spec(
        self, name: str, families: list[Family], files: _Files, envs: Mapping[str, str]
    ) -> TaskSpec:
        job, task = self._job, self._task
        label = f"{name}/{task.name}" if task else name
        canonical = self._shared.one
        demand = canonical(self._demand(families))
        variables = {**job.envs, **(task.envs if task else {}), **envs}
        return TaskSpec(
            workload=Workload((task and task.workload) or job.workload or label),
            program=canonical(
                Program(
                    run=(task and task.run) or job.run or "",
                    env=canonical(tuple(map(canonical, sorted(variables.items())))),
                    workdir=files.workdir,
                    inputs=canonical(tuple(sorted(urls(job.storage.inputs).items()))),
                    image=groups.image_of(job, task),
                    build=groups.build_of(job, task, files.build),
                    outputs=canonical(files.outputs),
                )
            ),
            demand=demand,
            throughput=canonical(self._throughput([family for family, _ in demand])),
            name=task.name if task else "",
            reports_steps=job.reports_steps,
        )

    def _demand(self, families: list[Family]) -> tuple[tuple[Family, Resources], ...]:
        """The demand on every family that can host the task."""
        job, task = self._job, self._task
        default = (task and task.resources) or job.resources
        stated: ByFamily = dict(job.resources_by_family)
        if task and task.resources:
            # The task's own default replaces what the job said of all tasks, families included.
            stated = {family: None for family, need in stated.items() if need is None}
        if task:
            stated |= task.resources_by_family or {}
        if default is None and not any(stated.values()):
            self._complain(("resources",), "'resources' is missing", "say what each task takes")
            return ()
        demand = []
        refused = {"allowed": None, "only": False}.get(job.spot or "never", True)
        for family in families:
            own = stated.get(base_family(family), default)
            if own is not None and is_spot(family) is not refused:
                demand.append((family, self._resolved(base_family(family), own, default)))
        return tuple(demand)

    def _resolved(
        self, family: Family, own: ResourcesSection, default: ResourcesSection | None
    ) -> Resources:
        """One family's figures, those it does not state taken from the default."""
        figures = {
            key: getattr(section, key)
            for section in (default, own)
            if section is not None
            for key in section.model_fields_set
        }
        where: Path = ("resources",) if own is default else ("resources_by_family", family)
        for key, example in (("cpus", "cpus: 4"), ("memory", "memory: 16GiB")):
            if figures.get(key) is None:
                self._complain((*where, key), f"{key!r} is missing", f"write {example}")
        keys = "gpus", "cpus", "memory", "disk"
        return Resources(*(figures.get(key) or 0 for key in keys))

    def _throughput(self, families: list[Family]) -> tuple[tuple[Family, int], ...]:
        rates = self._job.throughput
        if rates is None:
            return ()
        machines = sorted({base_family(family) for family in families})
        if not isinstance(rates, dict):
            rates = dict.fromkeys(machines, rates)
        return tuple(
            (family, max(1, round(rates[family] * MILLION)))
            for family in machines
            if family in rates
        )

    def _complain(self, key: Path, message: str, hint: str) -> None:
        # Keys that the task lacks are missing at the job's top level.
        nearer = (*self._path, *key)
        path = nearer if nearer[:-1] in self._document.marks and len(key) > 1 else key
        problem = self._document.problem(path, message, hint)
        if problem not in self.problems:
            self.problems.append(problem)
