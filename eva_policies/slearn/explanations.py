"""Explanations for users of the queues, and of their jobs' places in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import expm1

from eva_master.model.planning.standing import Line
from eva_policies.slearn.config import Config
from eva_policies.slearn.dags import is_small
from eva_policies.slearn.queues import Queued
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

SPARE = "room that no queue wants, for other tasks of jobs whose pilots have not finished"
_PER_CENT = 100
_WIDEST = 9.0
"""Above this a spread is no longer a number that tells anybody anything."""


def explained(
    config: Config, stated: tuple[Line, ...], standing: Sequence[Queued]
) -> tuple[Line, ...]:
    """The lines with explanations for users; unchanged if reasons are not wanted.

    Args:
        config: Settings of the policy.
        stated: The lines, as `eva_policies.slearn.queues.lines` states them.
        standing: The jobs in them.
    """
    if not config.explained:
        return stated
    by_name = {entry.job.id: entry for entry in standing}
    lines_explained = []
    for line in stated:
        entries = [by_name[job] for job in line.jobs]
        spare = bool(line.rank % 2)
        reason = SPARE if spare else queue(config, entries[0].queue)
        notes = () if spare else tuple((entry.job.id, note(config, entry)) for entry in entries)
        lines_explained.append(replace(line, reason=reason, notes=notes))
    return tuple(lines_explained)


def queue(config: Config, number: int) -> str:
    """Which queue this is, and for which jobs."""
    name = f"queue {number + 1} of {config.queues}"
    if config.estimator == "fifo":
        return f"{name}, by arrival"
    what = "work done" if config.by_attained else "work"
    first = config.first_queue_s * 1_000
    from_ms = first * config.growth ** (number - 1) if number else 0
    if number == config.queues - 1:
        return f"{name}, for jobs with {_hours(from_ms)} of {what} or more"
    to = f"less than {_hours(first * config.growth**number)} of {what}"
    if number:
        to = f"{_hours(from_ms)} to {to}"
    return f"{name}, for jobs with {to}"


def behind_others(config: Config, queued: Queued) -> str:
    """Why a job waits while others get room; it is the same as long as the queue is."""
    reason = f"{queue(config, queued.queue)}: others come first"
    return f"{reason}; {note(config, queued)}" if queued.pilots else reason


def note(config: Config, queued: Queued) -> str:
    """Why a job stands in its queue."""
    job, work = queued.job, queued.work
    if config.estimator == "fifo":
        return "every job stands in it"
    if config.by_attained:
        whose = "the tasks of its DAG" if config.whole_dags and job.progress.dag else "its tasks"
        return f"{whose} have had {_hours(work.had_ms)}"
    if queued.pilots:
        those = f"{len(queued.pilots)} of its {job.array.size} tasks run first"
        return f"{those}: how long they take tells how much work it has"
    if is_small(config, job):
        return f"it has fewer than {config.thin} tasks, so that none of them runs first"
    if work.left_ms is None or job.progress.estimate is None:
        return "nothing is known of how long its tasks take"
    estimate = job.progress.estimate
    each = f"a task takes {_hours(estimate.mean_ms)}{_give_or_take(estimate.spread_ppm)}"
    if estimate.vague:
        each = "earlier jobs differ too much to say how long a task takes"
    summary = f"{_hours(work.left_ms)} of work are left by estimate"
    if config.whole_dags and job.progress.dag is not None:
        summary = f"{summary} of its DAG, with {job.progress.dag.waiting} more stages to come"
    return f"{summary}; {each}"


def _give_or_take(spread_ppm: int) -> str:
    share = expm1(min(spread_ppm / MILLION, _WIDEST))
    return f", give or take {_PER_CENT * share:.0f} %" if share else ""


def _hours(ms: int) -> str:
    """A time as hours, or as seconds if it is less than six minutes."""
    hours = ms / MILLIS_PER_HOUR
    return f"{hours:,.1f} h" if hours >= 0.1 else f"{ms / 1_000:,.0f} s"
