"""Gangs in job files: `tasks: {least, most}`, and `zones`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_wire.jobfile.schema import ElasticSection, JobFile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if "zones" in job.model_fields_set and (job.kind == "array" or job.forks > 1):
        message = "only the tasks of a gang belong together, so each of these may be in any zone"
        yield document.problem(("zones",), message, "remove it, or write `kind: gang`")
    sizes = job.tasks
    if not isinstance(sizes, ElasticSection):
        return
    if job.kind == "array":
        yield document.problem(
            ("tasks",),
            "the tasks of an array do not wait for each other, so no number of them has to run",
            "write `kind: gang`, or a number of tasks and `concurrency`",
        )
    if sizes.least > sizes.most:
        yield document.problem(
            ("tasks", "least"),
            f"at least {sizes.least} tasks cannot be at most {sizes.most}",
            "exchange `least` and `most`",
        )
    for key, stated in (
        ("throughput", sizes.throughput),
        ("throughput_apart", sizes.throughput_apart),
    ):
        for members in stated:
            if not sizes.least <= members <= sizes.most and sizes.least <= sizes.most:
                yield document.problem(
                    ("tasks", key, str(members)),
                    f"the gang never has {members} members",
                    f"state it for {sizes.least} to {sizes.most}",
                )


def most_of(job: JobFile) -> int:
    """How many tasks the job has, be they rest or run; of a job whose tasks are not listed."""
    assert not isinstance(job.tasks, list)
    return job.tasks.most if isinstance(job.tasks, ElasticSection) else job.tasks
