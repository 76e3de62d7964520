"""Recipes of traces on fixed fleets, and what all recipes of traces have in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from eva_lab.traces.fleets.gpu_jobs import GpuJob, read_gpu_jobs
from eva_lab.traces.fleets.tenant_worlds import Options, read_world, trace_of
from eva_master.model.catalog import Catalog
from eva_master.model.trace import GPU_SLOT, Trace, TraceJob, TraceTask
from eva_wire.text.quantities import Duration
from eva_wire.values.ids import MILLION

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
_Factor = Annotated[float, Field(ge=0, le=1_000, allow_inf_nan=False)]


class BaseRecipe(BaseModel):
    """Fields of all recipes of traces."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_factor: _Factor = Field(
        default=1.0, description="times what it takes to stop, fetch, store and start a task"
    )


class GpusRecipe(BaseRecipe):
    """Training jobs with a rate on each GPU type, all there from the beginning.

    A GPU type is a family. A job is a gang with a task for each GPU.
    """

    kind: Literal["gpus"]
    file: Path = Field(
        description="a CSV file with the columns job, workload, gpus, iterations, and one for each "
        "GPU type with iterations per second and GPU; compressed with gzip or not"
    )
    jobs: Count | None = Field(default=None, description="only so many of its jobs")
    move: Annotated[Duration, Field(ge=0)] = Field(
        default=10_000, description="from each start of a job to its first progress"
    )
    rates: Literal["stated", "learned"] = Field(
        default="stated",
        description="learned: jobs state how many iterations they have, but not how fast they are; "
        "that is measured while they run",
    )
    counts: Literal["work", "iterations"] = Field(
        default="work", description="what programs count: ms of work, or thousandths of iterations"
    )
    split_batch: bool = Field(
        default=False, description="whether gangs divide each batch by how fast their tasks are"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Read the trace; a file does not depend on a seed."""
        gpu_jobs = read_gpu_jobs(self.file)[: self.jobs]
        name = self.file.name.partition(".")[0]
        # Traces are sorted by arrival, then by id, and all arrive at once.
        jobs = tuple(sorted((_training(job, self) for job in gpu_jobs), key=lambda job: job.id))
        return slowed(Trace(name, jobs), self.delay_factor)


def _training(job: GpuJob, recipe: GpusRecipe) -> TraceJob:
    """A gang whose duration is that on its fastest type."""
    fastest = max(rate for _, rate in job.rates)
    steps = max(1, round(job.iterations / job.gpus))
    task = TraceTask(
        demand=None,
        demand_by_family=tuple((family, GPU_SLOT) for family, _ in sorted(job.rates)),
        speed_by_family=tuple(
            (family, max(1, round(rate / fastest * MILLION))) for family, rate in sorted(job.rates)
        ),
    )
    return TraceJob(
        id=job.name,
        workload=job.workload,
        arrival_ms=0,
        duration_ms=max(1, round(1_000 * steps / fastest)),
        tasks=(task,) * job.gpus,
        init_ms=recipe.move,
        steps_per_s=max(1, round(fastest * MILLION)),
        total_steps=steps,
        split_batch=recipe.split_batch,
        states_rates=recipe.rates == "stated",
        counts_iterations=recipe.counts == "iterations",
    )


class WorldRecipe(BaseRecipe):
    """A world of tenants: servers and quotas, and elastic gangs with what they are worth."""

    kind: Literal["world"]
    file: Path = Field(description="a world as JSON")
    jobs: Count | None = Field(default=None, description="only so many of its jobs")
    values: Literal["linear", "convex"] = Field(
        default="linear", description="how what a job is worth falls while it is not done"
    )
    spread: Literal["slower", "free"] = Field(
        default="slower",
        description="whether members on several servers are slower, by the world's bandwidth",
    )
    move: Annotated[Duration, Field(ge=0)] = Field(
        default=0, description="from each start of a job to its first progress"
    )

    def trace(self, seed: int, catalog: Catalog) -> Trace:  # noqa: ARG002
        """Read the trace; a file does not depend on a seed."""
        options = Options(self.jobs, self.values == "convex", self.spread == "slower", self.move)
        name = self.file.name.partition(".")[0]
        return slowed(trace_of(read_world(self.file), name, options), self.delay_factor)


def slowed(trace: Trace, factor: float) -> Trace:
    """The trace with moves that take `factor` times as long; builds of images do not."""
    if factor == 1:
        return trace

    def times(delay_ms: int) -> int:
        return round(delay_ms * factor)

    jobs = tuple(
        replace(
            job,
            init_ms=times(job.init_ms),
            tasks=tuple(
                replace(
                    task,
                    fetch_ms=times(task.fetch_ms),
                    kill_ms=times(task.kill_ms),
                    upload_ms=times(task.upload_ms),
                )
                for task in job.tasks
            ),
        )
        for job in trace.jobs
    )
    return replace(trace, jobs=jobs)
