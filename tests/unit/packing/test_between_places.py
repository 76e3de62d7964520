"""A gang with a member that no plan can place now is placed by no policy, not even in part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.app.policy_registry import policies
from eva_master.control.planning.validate_plan import reconcile
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import carried_out
from eva_wire.values.bounds import JobKind
from tests.fakes.snapshots import Cluster, offer, task

SMALL, LARGE = offer("c.s", (0, 4, 8), 1.0), offer("c.l", (0, 16, 32), 3.0)
NEED = task(any=(0, 2, 4))


def cluster(kind: JobKind, pinned: int) -> Snapshot:
    """A job of three that wait or have lost their places, of which one is pinned, and another."""
    jobs = Cluster(SMALL, LARGE).job("j", NEED, NEED, NEED, kind=kind).job("a", NEED)
    seen = jobs.snapshot()
    runs = (replace(run, pinned=run.id == f"j/{pinned}") for run in seen.runs)
    return replace(seen, runs=tuple(runs))


@pytest.mark.parametrize("policy", sorted(policies()))
@pytest.mark.parametrize("pinned", [0, 2])
@pytest.mark.parametrize("kind", JobKind)
def test_whole_or_not_at_all(policy: str, pinned: int, kind: JobKind) -> None:
    seen = cluster(kind, pinned)
    config = policies()[policy]
    plan, _ = config.build(config.config()).plan(seen, None)
    placed = {run.id for run in carried_out(seen, plan).runs if run.instance is not None}
    ours = {run.id for run in seen.runs if run.job == "j" and not run.pinned}
    assert placed == ({"a/0"} if kind is JobKind.GANG else {"a/0", *ours})
    assert not reconcile(seen, plan).dropped, "what is dropped has the next round do it again"
