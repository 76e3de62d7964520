"""Groups of a job's specification, as its file states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.job import (
    Build,
    DatasetSize,
    ElasticGang,
    FailureRules,
    JobSpec,
    ModelSize,
    OnFailure,
    ParameterServers,
    Training,
)
from eva_wire.jobfile.images import section_of
from eva_wire.jobfile.schema import ElasticSection, JobFile, TaskSection
from eva_wire.values.ids import MILLION


def sized(spec: JobSpec, job: JobFile) -> JobSpec:
    """A job with the bounds of its gang, if there is a choice, and the rates that are stated."""
    sizes = job.tasks
    if not isinstance(sizes, ElasticSection):
        return spec
    gang = ElasticGang(
        least=sizes.least if sizes.least < sizes.most else None,
        scaling=_rates(sizes.throughput),
        scaling_apart=_rates(sizes.throughput_apart),
    )
    return replace(spec, elastic=gang)


def _rates(stated: Mapping[int, float]) -> tuple[tuple[int, int], ...]:
    """Iterations per second, in millionths, by the number of members."""
    return tuple(
        (members, max(1, round(rate * MILLION))) for members, rate in sorted(stated.items())
    )


def failing_of(job: JobFile) -> FailureRules:
    """Failures of a job's tasks, and what follows them."""
    return FailureRules(
        retries=job.retries,
        retry_on=tuple(job.retry_on),
        fail_on=tuple(job.fail_on),
        on_failure=_on_failure_of(job),
        max_duration_ms=job.max_duration,
    )


def _on_failure_of(job: JobFile) -> OnFailure:
    """Reaction of a job to a task that failed for good: for an array, the one in its file."""
    if job.kind != "array":
        return OnFailure.STOP
    return OnFailure.CAUTIOUS if job.on_failure is None else OnFailure(job.on_failure)


def training_of(job: JobFile, members: int) -> Training:
    """Size and communication of a job's training, as far as its file states them.

    Args:
        job: The job file.
        members: Number of its tasks: one task alone has no batch to divide.
    """
    return Training(
        batch_size=job.batch_size or 1,
        model=ModelSize(job.model_size or ModelSize.SMALL),
        dataset=DatasetSize(job.dataset_size or DatasetSize.S),
        split_batch=job.split_batch and members > 1,
        ps=_parameter_servers(job),
    )


def _parameter_servers(job: JobFile) -> ParameterServers | None:
    said = job.ps
    if said is None:
        return None
    return ParameterServers(1_000 * said.minibatch, 1_000 * said.update, said.gradient << 20)


def worth_of(job: JobFile) -> Worth | None:
    """The worth that the file states, `None` without one."""
    said = job.value
    if said is None:
        return None
    if said.halves is not None:
        return Worth(said.worth, Decay.HALVING, span_ms=said.halves)
    return Worth(said.worth, loses_per_hour=said.loses or 0)


def image_of(job: JobFile, task: TaskSection | None) -> str:
    """The image that a task or else its job names; empty for none."""
    if task and (task.image or task.build):
        return task.image or ""
    return job.image or ""


def build_of(job: JobFile, task: TaskSection | None, context: str) -> Build | None:
    """How a task's image is built; `None` if it is not built.

    Args:
        job: The file.
        task: The task, `None` for the one that a count repeats.
        context: Digest of the uploaded build context.
    """
    section = section_of(job, task)
    return Build(context, section.dockerfile) if section else None
