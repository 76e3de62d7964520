"""Recipes of traces, as experiments and command lines state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from eva_lab.traces.dags import recurring_dags
from eva_lab.traces.evajson import read_trace, steps_in
from eva_lab.traces.fleets.recipes import BaseRecipe, Count, GpusRecipe, WorldRecipe, slowed
from eva_lab.traces.hawk import bootstrapped, denser, read_hawk
from eva_lab.traces.lists.forms import form_of, read_list, unknown_form
from eva_lab.traces.lists.tables import columns_of
from eva_lab.traces.pods import COLUMNS as POD_COLUMNS
from eva_lab.traces.pods import read_pods
from eva_lab.traces.recurrent import FLAVOURS, recurring, repeated
from eva_lab.traces.rows import plain_suffix
from eva_lab.traces.shapes import (
    Draw,
    Shape,
    arrivals,
    assigned,
    family_speeds,
    gang_sizes,
    gavel_durations,
    generator,
    log_durations,
    production_pool,
    production_shapes,
    short_durations,
    uniform_durations,
    with_gpus,
)
from eva_lab.traces.tasks import Recurring, read_tasks
from eva_lab.traces.workloads import MeasuredWorkload, measured_workloads
from eva_master.model.catalog import Catalog
from eva_master.model.trace import SLOT, EarlierJob, Trace, TraceJob, TraceTask
from eva_wire.text.quantities import Duration
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import MILLION, Workload

_MINUTE = 60_000

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Past = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
_Gap = Annotated[Duration, Field(gt=0)]


class FileRecipe(BaseRecipe):
    """A trace in a file."""

    kind: Literal["file"]
    file: Path = Field(description="a trace as JSON")
    jobs: Count | None = Field(default=None, description="only so many of its jobs")

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Read the trace; a file does not depend on a seed."""
        whole = read_trace(self.file)
        return slowed(replace(whole, jobs=whole.jobs[: self.jobs]), self.delay_factor)


class ListRecipe(BaseRecipe):
    """A list of jobs of another system: SWF, Philly's, Helios', Alibaba's of 2020, or columns."""

    kind: Literal["list"]
    file: Path = Field(description="the list, compressed with gzip or not")
    jobs: Count | None = Field(default=None, description="only the first so many of its jobs")

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Read the list; a file does not depend on a seed."""
        form = form_of(self.file)
        if form is None:
            raise unknown_form(self.file)
        return slowed(read_list(self.file, form, catalog, self.jobs), self.delay_factor)


class _Drawn(BaseRecipe):
    gap: _Gap = Field(default=20 * _MINUTE, description="mean time between arrivals")
    multi_task: _Share = Field(
        default=0.0, description="share of jobs with 2 or 4 tasks, as many of each"
    )
    family_speeds: _Share = Field(
        default=0.0, description="share of demands that run faster on some families than on others"
    )

    def _trace(
        self,
        name: str,
        seed: int,
        shapes: Sequence[Shape],
        catalog: Catalog,
        known: Sequence[Shape] = (),
    ) -> Trace:
        """Add arrivals, workloads and numbers of tasks to shapes; those of earlier ones count."""
        demands = [shape.demand for shape in (*known, *shapes)]
        classes = assigned(seed, demands)
        speeds = family_speeds(seed, demands, self.family_speeds, catalog)
        sizes = gang_sizes(seed, len(shapes), self.multi_task)
        arrive = arrivals(seed, len(shapes), self.gap)
        jobs = []
        for number, (shape, size, at) in enumerate(zip(shapes, sizes, arrive, strict=True)):
            workload, measured = classes[shape.demand]
            fares = speeds[shape.demand]
            task = replace(
                measured.task(shape.demand),
                demand_by_family=fares.demands,
                speed_by_family=fares.speeds,
            )
            jobs.append(
                _job(
                    number,
                    workload,
                    measured,
                    arrival_ms=at,
                    duration_ms=shape.duration_ms,
                    tasks=(task,) * size,
                )
            )
        return slowed(Trace(name, tuple(jobs)), self.delay_factor)


class AlibabaRecipe(_Drawn):
    """Alibaba's pod list by the rule of the Eva paper, section 6.1.

    Every seed has its own arrivals, workloads and drawn durations.
    """

    kind: Literal["alibaba"]
    pods: Path = Field(description="the pod list of cluster-trace-gpu-v2023, a CSV file")
    jobs: Count | None = Field(default=None, description="only the first so many pods")
    durations: Literal["own", "gavel", "short"] = Field(
        default="own", description="the list's own, or drawn like Gavel's or like the list's"
    )
    multi_gpu: _Share | None = Field(
        default=None, description="share of jobs with 2, 4 or 8 GPUs (5:4:1); default: the list's"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:
        """Make the trace of a seed."""
        listed = read_pods(self.pods, catalog)
        pods = listed.shapes
        shapes: Sequence[Shape] = pods[: self.jobs]
        if self.durations != "own":
            shapes = _lasting(shapes, _DURATIONS[self.durations](seed, len(shapes)))
        if self.multi_gpu is not None:
            shapes = with_gpus(seed, shapes, self.multi_gpu, pods)
        made = self._trace(f"alibaba-{self.durations}-{seed}", seed, shapes, catalog)
        return replace(made, notes=listed.notes)


class ProductionRecipe(_Drawn):
    """Generated jobs as in a GPU cluster: most have one GPU, few are long."""

    kind: Literal["production"]
    jobs: Count = Field(default=200, description="how many")
    durations: Literal["gavel", "short"] = Field(
        default="gavel", description="like Gavel's (hours) or like Alibaba's (half below 0.2 h)"
    )
    multi_gpu: _Share | None = Field(
        default=None, description="share of jobs with 2, 4 or 8 GPUs (5:4:1); default: 0.5 %"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:
        """Make the trace of a seed."""
        shapes = production_shapes(seed, _DURATIONS[self.durations](seed, self.jobs))
        if self.multi_gpu is not None:
            shapes = with_gpus(seed, shapes, self.multi_gpu, production_pool())
        return self._trace(f"production-{self.durations}-{seed}", seed, shapes, catalog)


class RepeatedRecipe(_Drawn):
    """Generated jobs as in a GPU cluster, each a run of something that is run again and again.

    Runs of a group have name, user and demand in common, and take about as long. Earlier ones have
    taught how long.
    """

    kind: Literal["repeated"]
    jobs: Count = Field(default=200, description="how many")
    groups: Count = Field(default=40, description="of so many groups of runs that are alike")
    past: _Past = Field(default=400, description="how many have ended before")
    spread: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = Field(
        default=0.3, description="of the runs of a group, on the scale of natural logarithms"
    )
    durations: Literal["gavel", "short"] = Field(
        default="gavel", description="of the groups: like Gavel's or like Alibaba's"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:
        """Make the trace of a seed."""
        usual = production_shapes(seed, _DURATIONS[self.durations](seed, self.groups))
        runs = repeated(seed, usual, self.past + self.jobs, self.spread)
        earlier, rest = runs[: self.past], runs[self.past :]
        name = f"repeated-{self.durations}-{seed}"
        drawn = self._trace(name, seed, [shape for _, shape in rest], catalog, usual)
        classes = assigned(seed, [shape.demand for shape in usual])
        past = tuple(
            EarlierJob(
                owner=features.user,
                name=f"{features.base}-{number}",
                workload=classes[shape.demand][0],
                demand=shape.demand,
                mean_ms=shape.duration_ms,
            )
            for number, (features, shape) in enumerate(earlier, 1)
        )
        jobs = tuple(
            replace(job, id=f"{features.base}-{number}", owner=features.user)
            for number, ((features, _), job) in enumerate(
                zip(rest, drawn.jobs, strict=True), self.past + 1
            )
        )
        return Trace(name, jobs, past)


class WorkloadsRecipe(BaseRecipe):
    """Jobs of the ten measured workloads, with the demands that these have."""

    kind: Literal["workloads"]
    jobs: Count = Field(default=32, description="how many")
    shortest: _Gap = Field(default=30 * _MINUTE, description="durations lie between this")
    longest: _Gap = Field(default=180 * _MINUTE, description="and this")
    durations: Literal["uniform", "log"] = Field(
        default="uniform", description="all equally likely, or their logarithms"
    )
    gap: _Gap = Field(default=20 * _MINUTE, description="mean time between arrivals")
    tasks: Annotated[int, Field(ge=1, le=64, strict=True)] | None = Field(
        default=None, description="tasks of every job; default: what was measured"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Make the trace of a seed."""
        if self.shortest > self.longest:
            raise InvalidTrace("the shortest job is longer than the longest")
        draw = uniform_durations if self.durations == "uniform" else log_durations
        durations = draw(seed, self.jobs, self.shortest, self.longest)
        workloads = list(measured_workloads().values())
        picks = generator(seed, Draw.WORKLOADS).integers(len(workloads), size=self.jobs).tolist()
        jobs = []
        for number, (pick, at, duration_ms) in enumerate(
            zip(picks, arrivals(seed, self.jobs, self.gap), durations, strict=True)
        ):
            measured = workloads[pick]
            tasks = (measured.task(),) * (self.tasks or measured.tasks)
            workload = Workload(measured.base)
            jobs.append(
                _job(
                    number, workload, measured, arrival_ms=at, duration_ms=duration_ms, tasks=tasks
                )
            )
        return slowed(Trace(f"workloads-{seed}", tuple(jobs)), self.delay_factor)


class Resampling(BaseModel):
    """How a longer trace is made of stretches of others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: Count = Field(description="how many it has")
    block: Count = Field(default=100, description="jobs of a stretch, drawn with replacement")


class HawkRecipe(BaseRecipe):
    """Arrays with a duration of each task, in the form of Hawk's simulator.

    A seed matters to a bootstrap alone. A task takes the whole of a slot.
    """

    kind: Literal["hawk"]
    files: Annotated[tuple[Path, ...], Field(min_length=1, max_length=100)] = Field(
        description="files with a job a line, compressed with gzip or not"
    )
    jobs: Count | None = Field(default=None, description="only so many of its jobs")
    load: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = Field(
        default=1.0, description="times as many jobs in the same time"
    )
    bootstrap: Resampling | None = Field(
        default=None, description="a longer trace of stretches of these"
    )

    @model_validator(mode="after")
    def _whole(self) -> HawkRecipe:
        if len(self.files) > 1 and self.bootstrap is None:
            message = "several files make one trace by a bootstrap alone"
            raise PydanticCustomError("files", "{message}", {"message": message})
        return self

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Make the trace of a seed."""
        stretches = [read_hawk(file) for file in self.files]
        arrivals, name = stretches[0], self.files[0].name.partition(".")[0]
        if self.bootstrap is not None:
            random = generator(seed, Draw.BLOCKS)
            wanted = self.bootstrap
            arrivals = bootstrapped(stretches, wanted.jobs, wanted.block, random)
            name = f"{name}-bootstrap-{seed}"
        jobs = tuple(
            _array(str(number), Workload("hawk"), arrival)
            for number, arrival in enumerate(denser(arrivals[: self.jobs], self.load))
        )
        return slowed(Trace(name, jobs), self.delay_factor)


class TasksRecipe(BaseRecipe):
    """Arrays with a duration of each task, after past jobs that teach how long jobs take.

    A seed matters only where the file's name has a place for it. A task takes the whole of a slot.
    """

    kind: Literal["tasks"]
    file: Path = Field(
        description="past jobs and jobs, one a line, compressed with gzip or not; {seed} in its "
        "name stands for the seed"
    )
    jobs: Count | None = Field(default=None, description="only so many of its jobs")

    def of_seed(self, seed: int) -> TasksRecipe:
        """The recipe with the file of a seed."""
        name = self.file.name.replace("{seed}", str(seed))
        return self.model_copy(update={"file": self.file.with_name(name)})

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Read the trace of a seed's file."""
        file = self.of_seed(seed).file
        tasks, name = read_tasks(file), file.name.partition(".")[0]
        tasks = replace(tasks, jobs=tasks.jobs[: self.jobs])
        return slowed(_recurring(name, tasks), self.delay_factor)


class RecurrentRecipe(BaseRecipe):
    """Generated jobs that recur, in bursts, as arrays; earlier ones have taught how long they take.

    Like those on which SLearn was evaluated. A task takes the whole of a slot.
    """

    kind: Literal["recurrent"]
    flavour: Literal["2sigma", "google2011", "google2019"] = Field(
        default="2sigma", description="whose jobs they are like"
    )
    jobs: Count = Field(default=1_250, description="how many")
    past: _Past = Field(default=5_000, description="how many have ended before")
    slots: Count = Field(default=150, description="tasks that run at a time in the cluster")
    load: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = Field(
        default=1.04, description="work that arrives, as a share of what the slots can do meanwhile"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Make the trace of a seed."""
        flavour, rate = FLAVOURS[self.flavour], self.load * self.slots
        made = recurring(seed, flavour, past=self.past, jobs=self.jobs, work_rate=rate)
        name = f"recurrent-{self.flavour}-{seed}"
        return slowed(_recurring(name, made), self.delay_factor)


class DagsRecipe(BaseRecipe):
    """Generated DAGs that recur, of 2 to 5 stages, each an array; earlier ones have taught.

    Their stages are like the jobs of `recurrent`, and run one after the other.
    """

    kind: Literal["dags"]
    flavour: Literal["2sigma", "google2011", "google2019"] = Field(
        default="google2019", description="whose jobs the stages are like"
    )
    correlation: _Share = Field(
        default=0.5, description="share of a stage's spread that all stages of a DAG have in common"
    )
    dags: Count = Field(default=900, description="how many")
    past: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = Field(
        default=1_500, description="how many have ended before"
    )
    slots: Count = Field(default=150, description="tasks that run at a time in the cluster")
    load: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = Field(
        default=1.04, description="work that arrives, as a share of what the slots can do meanwhile"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Make the trace of a seed."""
        rate = self.load * self.slots
        past, jobs = recurring_dags(
            seed,
            FLAVOURS[self.flavour],
            self.correlation,
            past=self.past,
            dags=self.dags,
            work_rate=rate,
        )
        name = f"dags-{self.flavour}-{self.correlation:g}-{seed}"
        return slowed(Trace(name, jobs, past), self.delay_factor)


class _Arriving(Protocol):
    """A job of a line of a file."""

    @property
    def at_ms(self) -> int: ...
    @property
    def mean_ms(self) -> int: ...
    @property
    def durations_ms(self) -> tuple[int, ...]: ...


def _array(name: str, workload: Workload, arriving: _Arriving, owner: str = "") -> TraceJob:
    """An array whose tasks take a slot each; those that take equally long are one value."""
    made: dict[int, TraceTask] = {}
    for duration_ms in arriving.durations_ms:
        made.setdefault(duration_ms, TraceTask(SLOT, duration_ms=duration_ms))
    return TraceJob(
        id=name,
        workload=workload,
        arrival_ms=arriving.at_ms,
        duration_ms=arriving.mean_ms,
        tasks=tuple(made[duration_ms] for duration_ms in arriving.durations_ms),
        total_steps=steps_in(arriving.mean_ms, MILLION),
        owner=owner,
        kind=JobKind.ARRAY,
    )


def _recurring(name: str, found: Recurring) -> Trace:
    """The trace of jobs that recur; their names have numbers by which they differ."""
    earlier = tuple(
        EarlierJob(
            owner=line.features.user,
            name=f"{line.features.base}-{number}",
            workload=Workload(line.features.application),
            demand=SLOT,
            mean_ms=line.mean_ms,
        )
        for number, line in enumerate(found.ended, 1)
    )
    jobs = tuple(
        _array(
            f"{line.features.base}-{number}",
            Workload(line.features.application),
            line,
            line.features.user,
        )
        for number, line in enumerate(found.jobs, len(earlier) + 1)
    )
    return Trace(name, jobs, earlier)


Recipe = Annotated[
    FileRecipe
    | AlibabaRecipe
    | ProductionRecipe
    | RepeatedRecipe
    | WorkloadsRecipe
    | RecurrentRecipe
    | DagsRecipe
    | ListRecipe
    | HawkRecipe
    | TasksRecipe
    | GpusRecipe
    | WorldRecipe,
    Field(discriminator="kind"),
]
"""Any recipe. A reader of another format is another recipe."""


def source_of(path: Path) -> Mapping[str, object]:
    """The recipe that reads a file, by the end of its name and what is in it.

    Raises:
        InvalidTrace: The file has no form that can be read, or cannot be read at all.
    """
    if plain_suffix(path) == ".csv" and set(POD_COLUMNS) <= set(columns_of(path)):
        return {"kind": "alibaba", "pods": path}
    if form_of(path) is not None:
        return {"kind": "list", "file": path}
    match plain_suffix(path):
        case ".json" | ".jsonl":
            return {"kind": "file", "file": path}
        case ".tr":
            return {"kind": "hawk", "files": (path,)}
        case ".txt":
            return {"kind": "tasks", "file": path}
    raise unknown_form(path)


_DURATIONS = {"gavel": gavel_durations, "short": short_durations}

RECIPES: Mapping[
    str,
    type[
        AlibabaRecipe
        | ProductionRecipe
        | RepeatedRecipe
        | WorkloadsRecipe
        | RecurrentRecipe
        | DagsRecipe
    ],
] = {
    "alibaba": AlibabaRecipe,
    "production": ProductionRecipe,
    "repeated": RepeatedRecipe,
    "workloads": WorkloadsRecipe,
    "recurrent": RecurrentRecipe,
    "dags": DagsRecipe,
}
"""The recipes that generate traces, by kind."""

KINDS: Mapping[str, type[BaseModel]] = {
    "file": FileRecipe,
    "list": ListRecipe,
    "hawk": HawkRecipe,
    "tasks": TasksRecipe,
    "gpus": GpusRecipe,
    "world": WorldRecipe,
    **RECIPES,
}
"""All recipes of traces, by kind."""


def _lasting(shapes: Sequence[Shape], durations: Sequence[int]) -> list[Shape]:
    return [
        replace(shape, duration_ms=duration_ms)
        for shape, duration_ms in zip(shapes, durations, strict=True)
    ]


def _job(
    number: int,
    workload: Workload,
    measured: MeasuredWorkload,
    *,
    arrival_ms: int,
    duration_ms: int,
    tasks: tuple[TraceTask, ...],
) -> TraceJob:
    return TraceJob(
        id=str(number),
        workload=workload,
        arrival_ms=arrival_ms,
        duration_ms=duration_ms,
        tasks=tasks,
        init_ms=measured.init_ms,
        steps_per_s=measured.steps_per_s,
        total_steps=steps_in(duration_ms, measured.steps_per_s),
    )
