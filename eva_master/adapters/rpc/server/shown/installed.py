"""The parts of features in answers and metrics, in the order of what they say.

Of several reasons why all tasks of a job wait, users read the first.
"""

from __future__ import annotations

from eva_master.adapters.rpc.server.shown import (
    deadlines,
    forks,
    lending,
    run_times,
    secrets,
    shared_limits,
    tenants,
    zones,
)

_PARTS = (
    secrets.PART,
    tenants.PART,
    deadlines.PART,
    forks.PART,
    lending.PART,
    run_times.PART,
    shared_limits.PART,
    zones.PART,
)
JOB = tuple(part.job for part in _PARTS if part.job is not None)
WAITS = tuple(part.waits for part in _PARTS if part.waits is not None)
WHY = tuple(part.why for part in _PARTS if part.why is not None)
EXPLANATION = tuple(part.explanation for part in _PARTS if part.explanation is not None)
PLAN = tuple(part.plan for part in _PARTS if part.plan is not None)
CLUSTER = tuple(part.cluster for part in _PARTS if part.cluster is not None)
DOUBTS = tuple(part.doubts for part in _PARTS if part.doubts is not None)
NOTES = tuple(part.notes for part in _PARTS if part.notes is not None)
METRICS = tuple(part.metrics for part in _PARTS if part.metrics is not None)
