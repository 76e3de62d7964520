"""The job file: YAML that a user writes, its schema, and what is wrong with it on any cluster."""

from eva_wire.jobfile.after import Predecessors, in_order
from eva_wire.jobfile.images import BuildContext
from eva_wire.jobfile.reading import (
    build_context_of,
    check_job,
    commands_of,
    job_schema,
    predecessors_of,
    workdir_of,
)

__all__ = [
    "BuildContext",
    "Predecessors",
    "build_context_of",
    "check_job",
    "commands_of",
    "in_order",
    "job_schema",
    "predecessors_of",
    "workdir_of",
]
