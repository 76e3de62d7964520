"""The job file: YAML that a user writes, its schema, and what is wrong with it on any cluster."""

from eva_wire.jobfile.after import Predecessors, in_order
from eva_wire.jobfile.images import BuildContext
from eva_wire.jobfile.reading import (
    build_context_of,
    caller_variables_of,
    check_job,
    commands_of,
    job_schema,
    predecessors_of,
    workdir_of,
)
from eva_wire.jobfile.table import MOST_TABLE_BYTES, Table, read_table

__all__ = [
    "MOST_TABLE_BYTES",
    "BuildContext",
    "Predecessors",
    "Table",
    "build_context_of",
    "caller_variables_of",
    "check_job",
    "commands_of",
    "in_order",
    "job_schema",
    "predecessors_of",
    "read_table",
    "workdir_of",
]
