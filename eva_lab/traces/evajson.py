"""Reads and writes traces as JSON: an object of jobs, in seconds, vCPUs and GiB.

A file that ends in ``.jsonl`` has one job on each line instead, with its number as ``job``. Tasks
that are alike may stand there once: an entry of ``tasks`` has a ``count``, or the ``durations`` of
as many tasks of an array. A job that ended before the trace begins is marked ``past``. A stage of a
DAG has its label as ``dag``; ``after`` names jobs that have to succeed before it, and of past ones
``dag_number`` tells those of one DAG.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from eva_lab.traces.lists.forms import form_of
from eva_lab.traces.lists.logs import is_philly
from eva_lab.traces.rows import parse_json, plain_suffix, read_json, read_text, refusal, row_problem
from eva_master.model.accounting.tenants import is_tenant
from eva_master.model.resources import Resources
from eva_master.model.trace import EarlierJob, SpotUse, Trace, TraceJob, TraceTask, misplaced
from eva_wire.values.bounds import DEFAULT_TENANT, MOST_TASKS, JobKind, most_tasks
from eva_wire.values.errors import InvalidTrace, Problem
from eva_wire.values.ids import MILLION, Family, Workload
from eva_wire.values.users import is_owner

_ANY = "any"

LINES = ".jsonl"
"""Suffix of files with one job per line."""
SUFFIXES = (".json", LINES)
"""Suffixes of files that a trace is written to."""
_CONVERTIBLE = (".csv", ".swf", ".tr", ".txt")
"""Suffixes of files that are read by conversion alone."""

_LONGEST_S = 1e9
_Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S, allow_inf_nan=False, strict=True)]
_Speed = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
_Demand = tuple[
    Annotated[int, Field(ge=0, le=1_000, strict=True)],
    Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)],
    Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)],
]


def _since_the_beginning(value: object) -> object:
    if isinstance(value, int | float) and value > _LONGEST_S:
        message = (
            "counts seconds from the beginning of the trace, not since 1970: subtract the first"
        )
        raise PydanticCustomError("arrival", "{message}", {"message": message})
    return value


def _as_text(value: object) -> object:
    """A job's number may stand as text, which is what keys of JSON are, or as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Arrival = Annotated[_Seconds, BeforeValidator(_since_the_beginning)]
_Number = Annotated[str, BeforeValidator(_as_text)]


def _check_owner(text: str) -> str:
    if not is_owner(text):
        raise PydanticCustomError("owner", "cannot be an owner: use letters, digits and ._@-")
    return text


def _check_tenant(text: str) -> str:
    if not is_tenant(text):
        raise PydanticCustomError("tenant", "cannot name a tenant: use letters, digits and ._-")
    return text


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Many = Annotated[int, Field(ge=1, le=MOST_TASKS, strict=True)]


class _Task(_Row):
    """A task, or several that are alike.

    Other programs read `name` and `shm_size`; only Eva reads `speed`, `count` and `durations`.
    """

    demand: Annotated[dict[str, _Demand | None], Field(min_length=1)]
    image_id: int | str = ""
    fetch_delay: _Seconds = 0
    build_image_delay: _Seconds = 0
    kill_delay: _Seconds = 0
    upload_delay: _Seconds = 0
    speed: dict[str, _Speed] = Field(default_factory=dict)
    count: _Many | None = None
    durations: Annotated[list[_Seconds], Field(min_length=1, max_length=MOST_TASKS)] | None = None
    name: str = ""
    shm_size: float = 0

    @property
    def number(self) -> int:
        """How many tasks it stands for."""
        return len(self.durations) if self.durations is not None else self.count or 1


class _Job(_Row):
    """One job. Other programs read `support_throughput_aware`."""

    name: Annotated[str, Field(min_length=1)]
    arrival_time: _Arrival
    duration: _Seconds
    tasks: Annotated[dict[str, _Task], Field(min_length=1)]
    init_delay: _Seconds = 0
    full_throughput: Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)] = 1.0
    total_iters: Annotated[int, Field(ge=0, strict=True)] | None = None
    support_throughput_aware: bool = True
    owner: Annotated[str, AfterValidator(_check_owner)] = ""
    tenant: Annotated[str, AfterValidator(_check_tenant)] = DEFAULT_TENANT
    priority: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    kind: Literal["gang", "array"] = "gang"
    concurrency: _Many | None = None
    past: bool = False
    spot: SpotUse | None = None
    deadline: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    checkpoint_interval: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0
    dag: Annotated[str, Field(max_length=200)] = ""
    dag_number: Annotated[int, Field(ge=0, strict=True)] = 0
    after: tuple[_Number, ...] = ()


_JOBS: TypeAdapter[dict[str, _Job]] = TypeAdapter(dict[str, _Job])


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names job and field of each problem.
    """
    suffix = plain_suffix(path)
    if suffix in _CONVERTIBLE or (suffix not in SUFFIXES and form_of(path) is not None):
        raise _to_be_converted(path)
    rows = _lines(path) if suffix == LINES else read_json(path)
    if is_philly(rows):
        raise _to_be_converted(path)
    parsed = _parsed(rows, path)
    jobs = in_order(_job(number, row) for number, row in parsed.items() if not row.past)
    if problems := [Problem(message, f"job {name}: after") for name, message in misplaced(jobs)]:
        raise refusal(path, problems)
    past = tuple(_earlier(name, row) for name, row in parsed.items() if row.past)
    return Trace(path.stem, jobs, past)


def _to_be_converted(path: Path) -> InvalidTrace:
    target = f"{path.name.partition('.')[0]}-trace.json"
    return InvalidTrace(
        f"{path} is a list of jobs in another form, not a trace of Eva",
        hint=f"convert it first: eva trace convert {path} {target}",
    )


def _parsed(rows: object, path: Path) -> dict[str, _Job]:
    """The jobs in a trace's rows; refused if one of them is wrong."""
    if not isinstance(rows, dict) or not rows:
        raise refusal(path, [Problem("a trace is an object of jobs, with at least one")])
    try:
        jobs = _JOBS.validate_python(rows)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise refusal(path, (row_problem(detail, "job") for detail in details)) from error
    if all(job.past for job in jobs.values()):
        raise refusal(path, [Problem("all of its jobs are past, and there is none to run")])
    if problems := [*_homeless(jobs), *_contradictions(jobs)]:
        raise refusal(path, problems)
    return jobs


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace, such that `read_trace` reads the same jobs.

    A file of that name is replaced once the whole trace is written.

    Raises:
        InvalidTrace: The file's suffix is neither ``.json`` nor ``.jsonl``, or `read_trace` would
            refuse the file.
        OSError: The file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise InvalidTrace(
            f"{path} cannot be written: a trace is a .json file, or .jsonl with one job per line",
            hint=f"name it {path.with_suffix('.json')}",
        )
    rows = {job.name: _earlier_row(job) for job in trace.past}
    rows |= {job.id: _row(job) for job in trace.jobs}
    if len(rows) < len(trace.jobs) + len(trace.past):
        raise refusal(path, [Problem("two jobs have one name")])
    _parsed(rows, path)
    target = path.resolve()
    draft = target.with_name(f".{target.name}.part")
    try:
        draft.write_text(_text(rows, path.suffix), encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _text(rows: dict[str, Any], suffix: str) -> str:
    if suffix == LINES:
        lines = ({"job": name, **row} for name, row in rows.items())
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _lines(path: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        row = parse_json(line, path, first_line=number)
        job = _as_text(row.pop("job", None)) if isinstance(row, dict) else None
        if not isinstance(job, str) or job in rows:
            message = "stands twice" if job in rows else "must be text or a number, in an object"
            raise refusal(path, [Problem(message, "job", number, 1)])
        rows[job] = row
    return rows


def in_order(jobs: Iterator[TraceJob]) -> tuple[TraceJob, ...]:
    """Jobs as `Trace.jobs` has them; of ids that are numbers, 2 is before 10."""
    return tuple(sorted(jobs, key=lambda job: (job.arrival_ms, len(job.id), job.id)))


def _homeless(jobs: dict[str, _Job]) -> Iterator[Problem]:
    for number, job in jobs.items():
        for task, row in job.tasks.items():
            if not any(row.demand.values()):
                key = f"job {number}: tasks.{task}.demand"
                yield Problem("there is no family that could host it", key)


def _contradictions(jobs: dict[str, _Job]) -> Iterator[Problem]:
    """Contradictions between fields that are valid one by one."""
    for number, job in jobs.items():
        if job.kind == "gang" and job.concurrency is not None:
            message = "all tasks of a gang run or none does, so their number cannot be limited"
            yield Problem(message, f"job {number}: concurrency", hint='write "kind": "array"')
        for name, task in job.tasks.items():
            key = f"job {number}: tasks.{name}"
            if job.kind == "gang" and task.durations is not None:
                message = "the tasks of a gang take equally long"
                yield Problem(message, f"{key}.durations", hint='write "kind": "array"')
            if task.count is not None and task.durations is not None:
                message = "there are as many tasks as durations"
                yield Problem(message, f"{key}.count", hint="remove it")
        total = sum(task.number for task in job.tasks.values())
        most = most_tasks(JobKind(job.kind))
        if total > most:
            message = f"are {total:,}, and {job.kind}s have at most {most:,}"
            yield Problem(message, f"job {number}: tasks")


def _earlier(name: str, row: _Job) -> EarlierJob:
    """A job that has ended; the demand of its tasks is that of its first."""
    first, *_ = row.tasks.values()
    (need, *_) = (demand for demand in (first.demand.get(_ANY), *first.demand.values()) if demand)
    duration_ms = max(1, _millis(row.duration))
    return EarlierJob(
        owner=row.owner,
        name=name,
        workload=Workload(row.name),
        demand=_resources(need),
        mean_ms=duration_ms,
        dag=row.dag,
        dag_number=row.dag_number,
    )


def _job(number: str, row: _Job) -> TraceJob:
    steps_per_s = round(row.full_throughput * MILLION)
    duration_ms = _millis(row.duration)
    stated = row.total_iters
    return TraceJob(
        id=number,
        workload=Workload(row.name),
        arrival_ms=_millis(row.arrival_time),
        duration_ms=duration_ms,
        init_ms=_millis(row.init_delay),
        steps_per_s=steps_per_s,
        total_steps=steps_in(duration_ms, steps_per_s) if stated is None else stated,
        tasks=tuple(trace_task for task in row.tasks.values() for trace_task in _tasks(task)),
        owner=row.owner,
        tenant=row.tenant,
        priority=row.priority,
        kind=JobKind(row.kind),
        concurrency=row.concurrency,
        dag=row.dag,
        after=row.after,
        spot=row.spot,
        within_ms=None if row.deadline is None else max(1, _millis(row.deadline)),
        checkpoint_interval_ms=_millis(row.checkpoint_interval),
    )


def steps_in(duration_ms: int, steps_per_s: int) -> int:
    """Whole iterations in a time, at millionths of an iteration per second."""
    return duration_ms * steps_per_s // (1_000 * MILLION)


def _tasks(row: _Task) -> Iterable[TraceTask]:
    """The tasks that an entry stands for; those that are equal are one value."""
    task = _task(row)
    if row.durations is None:
        return (task,) * row.number
    made: dict[float, TraceTask] = {}
    for seconds in row.durations:
        if seconds not in made:
            made[seconds] = replace(task, duration_ms=_millis(seconds))
    return map(made.__getitem__, row.durations)


def _task(row: _Task) -> TraceTask:
    demands = {family: need and _resources(need) for family, need in row.demand.items()}
    return TraceTask(
        demand=demands.pop(_ANY, None),
        demand_by_family=tuple((Family(family), demands[family]) for family in sorted(demands)),
        image=str(row.image_id),
        fetch_ms=_millis(row.fetch_delay),
        build_ms=_millis(row.build_image_delay),
        kill_ms=_millis(row.kill_delay),
        upload_ms=_millis(row.upload_delay),
        speed_by_family=tuple(
            (Family(family), round(row.speed[family] * MILLION)) for family in sorted(row.speed)
        ),
    )


def _resources(need: _Demand) -> Resources:
    gpus, cpus, gib = need
    return Resources(gpus, round(cpus * 1_000), round(gib * 1_024))


def _millis(seconds: float) -> int:
    return round(seconds * 1_000)


def _earlier_row(job: EarlierJob) -> dict[str, Any]:
    return {
        "past": True,
        "name": job.workload,
        **({"owner": job.owner} if job.owner else {}),
        "arrival_time": 0,
        "duration": _seconds(job.mean_ms),
        "tasks": {"0": {"demand": {_ANY: _vector(job.demand)}}},
        **({"dag": job.dag, "dag_number": job.dag_number} if job.dag else {}),
    }


def _row(job: TraceJob) -> dict[str, Any]:
    named: dict[str, Any] = {"owner": job.owner} if job.owner else {}
    if job.priority:
        named["priority"] = job.priority
    if job.tenant != DEFAULT_TENANT:
        named["tenant"] = job.tenant
    if job.is_array:
        named["kind"] = job.kind.value
    if job.concurrency is not None:
        named["concurrency"] = job.concurrency
    if job.spot is not None:
        named["spot"] = job.spot.value
    if job.within_ms is not None:
        named["deadline"] = _seconds(job.within_ms)
    if job.checkpoint_interval_ms:
        named["checkpoint_interval"] = _seconds(job.checkpoint_interval_ms)
    return {
        "name": job.workload,
        **named,
        "arrival_time": _seconds(job.arrival_ms),
        "duration": _seconds(job.duration_ms),
        "init_delay": _seconds(job.init_ms),
        "full_throughput": job.steps_per_s / MILLION,
        "total_iters": job.total_steps,
        "tasks": dict(_task_rows(job)),
        **({"dag": job.dag} if job.dag else {}),
        **({"after": list(job.after)} if job.after else {}),
    }


def _task_rows(job: TraceJob) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry of a job's tasks under the index of its first; of an array, alike ones once."""
    if not job.is_array:
        yield from ((str(index), _task_row(task)) for index, task in enumerate(job.tasks))
        return
    first, last, alike = 0, None, None
    for index, task in enumerate((*job.tasks, None)):
        if task is last and task is not None:
            continue
        key = task and (replace(task, duration_ms=None), task.duration_ms is None)
        last = task
        if key != alike:
            if alike is not None:
                yield str(first), _alike_row(job.tasks[first:index])
            first, alike = index, key


def _alike_row(tasks: Sequence[TraceTask]) -> dict[str, Any]:
    """One entry for tasks that differ in their durations at most."""
    row = _task_row(tasks[0])
    durations = [_seconds(task.duration_ms) for task in tasks if task.duration_ms is not None]
    if durations:
        row["durations"] = durations
    elif len(tasks) > 1:
        row["count"] = len(tasks)
    return row


def _task_row(task: TraceTask) -> dict[str, Any]:
    demands: dict[str, Any] = {} if task.demand is None else {_ANY: _vector(task.demand)}
    demands |= {family: need and _vector(need) for family, need in task.demand_by_family}
    row = {
        "demand": demands,
        "image_id": task.image,
        "fetch_delay": _seconds(task.fetch_ms),
        "build_image_delay": _seconds(task.build_ms),
        "kill_delay": _seconds(task.kill_ms),
        "upload_delay": _seconds(task.upload_ms),
    }
    if task.speed_by_family:
        row["speed"] = {family: speed / MILLION for family, speed in task.speed_by_family}
    return row


def _vector(need: Resources) -> list[float]:
    return [need.gpus, _whole(need.milli_cpus, 1_000), _whole(need.memory_mib, 1_024)]


def _seconds(millis: int) -> float:
    return _whole(millis, 1_000)


def _whole(amount: int, unit: int) -> float:
    """An amount in a larger unit; without a fraction where there is none."""
    return amount // unit if amount % unit == 0 else amount / unit
