"""The job file: YAML that a user writes, turned into a `JobSpec` with nothing left to interpret."""

from eva_master.adapters.jobfile.after import Predecessors, Several, in_order
from eva_master.adapters.jobfile.images import BuildContext
from eva_master.adapters.jobfile.parse import (
    build_context_of,
    check_job,
    commands_of,
    job_schema,
    parse_job,
    predecessors_of,
    workdir_of,
)

__all__ = [
    "BuildContext",
    "Predecessors",
    "Several",
    "build_context_of",
    "check_job",
    "commands_of",
    "in_order",
    "job_schema",
    "parse_job",
    "predecessors_of",
    "workdir_of",
]
