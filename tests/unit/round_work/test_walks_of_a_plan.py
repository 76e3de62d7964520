"""A check of a plan walks over the cluster only for parts that the plan has."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from eva_master.control.planning.validate_sizes import reconciled
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import Cluster, offer, task

WALKS = 2
"""Task runs and jobs are indexed."""


def cluster_of(tasks: int) -> Snapshot:
    cluster = Cluster(offer("large", (0, 60, 240), 6.0))
    for number in range(tasks):
        cluster.job(f"j{number:04}", task("w", any=(0, 1, 4)))
    return cluster.snapshot()


def lines_of_a_check(snapshot: Snapshot, plan: Plan) -> int:
    """How many lines of code a check of a plan runs; each turn of a loop is another one."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        reconciled(snapshot, plan)
    finally:
        sys.settrace(None)
    return lines


def test_a_plan_without_forks_and_sizes_is_checked_in_few_walks() -> None:
    small, large = (lines_of_a_check(cluster_of(tasks), Plan((), ())) for tasks in (100, 300))
    assert (large - small) / 200 <= WALKS
