"""Knowledge that a master has from the jobs that ended before a trace begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from eva_lab.simulator.scenario.submission import OWNER
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.dags import OF_DAGS, EndedStage, base_of
from eva_master.learning.run_times.past_values import kept_for
from eva_master.learning.run_times.posterior import NONE_FINISHED
from eva_master.learning.runtimes import Traits
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import EarlierJob
from eva_wire.values.ids import JobId, Millis


def taught(
    learned: Knowledge, earlier: Iterable[EarlierJob], start: Millis, mode: Estimates
) -> Knowledge:
    """Learn how long jobs take from those that have ended, in their order.

    Args:
        learned: Knowledge so far.
        earlier: The jobs.
        start: When the trace begins on the virtual clock. All of them count as ended then; nothing
            is learned of the hour of their submission, which nobody knows.
        mode: Source of estimates.
    """
    times, dags = learned.run_times, learned.dags
    for _, jobs in groupby(earlier, key=lambda it: (it.owner, it.dag, it.dag_number)):
        stages: dict[JobId, EndedStage] = {}
        for job in jobs:
            traits = Traits(job.workload, job.name, None, job.demand)
            finished = NONE_FINISHED.plus(job.mean_ms)
            times = times.observe(job.owner or OWNER, traits, finished, start, kept_for(mode))
            if job.dag:
                log = log_ppm(finished.total_ms)
                stages[JobId(job.name)] = EndedStage(job.dag, base_of(job.name), log, job.mean_ms)
        if stages:
            dags = dags.over(job.owner or OWNER, stages, learns=mode in OF_DAGS)
    if times is learned.run_times:
        return learned
    return replace(learned, run_times=times, dags=dags)
