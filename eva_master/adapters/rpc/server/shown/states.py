"""States of jobs as users see them."""

from __future__ import annotations

from collections.abc import Mapping

from eva_wire.values.states import TERMINAL_JOB, JobState

SUSPENDED = "suspended"
"""The state that users see of a pending job that is suspended."""
LASTING_STATES = (
    *(state.value for state in JobState if state not in TERMINAL_JOB),
    SUSPENDED,
)
"""States that users see of jobs that have not ended."""


def jobs_by_state(jobs: Mapping[JobState, int], suspended: int) -> dict[str, int]:
    """How many jobs are in each state that users see; states without jobs are missing.

    Args:
        jobs: By the state of their records.
        suspended: How many of the pending ones are suspended.
    """
    counts = {state.value: count for state, count in jobs.items()}
    if suspended:
        counts[JobState.PENDING.value] = counts.get(JobState.PENDING.value, 0) - suspended
        counts[SUSPENDED] = suspended
    return {state: count for state, count in counts.items() if count}
