"""The forks of a job, as its file states them."""

from __future__ import annotations

from eva_master.model.forks.merging import MergeRule
from eva_master.model.job import ForkRules
from eva_wire.jobfile.schema import JobFile
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION


def kind_of(job: JobFile) -> JobKind:
    """A forked job is an array of one task: its forks are runs of that."""
    return JobKind.ARRAY if job.forks > 1 else JobKind(job.kind)


def rules_of(job: JobFile) -> ForkRules:
    """How many forks a job may have, and how they are merged."""
    return ForkRules(job.forks, _merge_rule(job))


def _merge_rule(job: JobFile) -> MergeRule:
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
