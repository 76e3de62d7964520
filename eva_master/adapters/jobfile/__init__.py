"""The job file: YAML that a user writes, turned into a `JobSpec` with nothing left to interpret."""

from eva_master.adapters.jobfile.parse import check_job, job_schema, parse_job, workdir_of

__all__ = ["check_job", "job_schema", "parse_job", "workdir_of"]
