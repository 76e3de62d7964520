"""Trainings in job files: `forks`, `merge`, sizes of models, `split_batch` and `ps`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.adapters.jobfile.schema import JobFile
from eva_master.adapters.text.yamlfile import Document
from eva_master.model.errors import Problem
from eva_master.model.forks.merging import MergeRule
from eva_master.model.ids import MILLION
from eva_master.model.job import DatasetSize, JobKind, ModelSize, ParameterServers, Training


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if job.merge is not None and job.forks == 1:
        message = "only forks are merged, and the job has none"
        yield document.problem(("merge",), message, "write `forks: 2` or more, or remove it")
    if job.forks == 1:
        return
    if job.kind == "array":
        message = "the tasks of an array train nothing together, so it has no forks"
        yield document.problem(("forks",), message, "write `kind: gang`, or remove it")
    elif job.tasks != 1:
        message = "a gang of several tasks cannot be forked yet"
        yield document.problem(("forks",), message, "write `tasks: 1`, or remove it")
    if job.total_steps is None:
        message = "the steps of forks are added up until the job has done all, and none are stated"
        yield document.problem(("forks",), message, "write `total_steps` too, or remove it")
    if not job.reports_steps:
        message = "the steps of forks are counted, and the program reports none"
        yield document.problem(("forks",), message, "remove it, or `reports_steps: false`")


def kind_of(job: JobFile) -> JobKind:
    """A forked job is an array of one task: its forks are runs of that."""
    return JobKind.ARRAY if job.forks > 1 else JobKind(job.kind)


def rule_of(job: JobFile) -> MergeRule:
    """How the forks of a job are merged."""
    if job.merge is None:
        return MergeRule()
    check = job.merge.check or ""
    larger = check.startswith("accuracy") or check.endswith("acc")
    return MergeRule(
        every_ms=job.merge.every,
        check=check,
        tolerance_ppm=round(job.merge.tolerance * MILLION),
        larger=larger if job.merge.better is None else job.merge.better == "larger",
    )


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
