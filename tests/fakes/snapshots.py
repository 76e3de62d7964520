"""The Eva paper's example, beside what is needed to make clusters for policies."""

from __future__ import annotations

from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.job import JobSpec
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports.previews import JobPreview
from eva_master.testing.snapshots import (
    START,
    Amounts,
    Cluster,
    amount,
    carried_out,
    ended,
    offer,
    table,
    task,
)
from eva_wire.values.ids import Millis

__all__ = [
    "START",
    "T1",
    "T2",
    "T3",
    "T4",
    "TABLE_3",
    "Amounts",
    "Cluster",
    "amount",
    "carried_out",
    "ended",
    "offer",
    "table",
    "task",
]


TABLE_3 = (
    offer("it1", (4, 16, 244), 12),
    offer("it2", (1, 4, 61), 3),
    offer("it3", (0, 8, 32), 0.8),
    offer("it4", (0, 4, 16), 0.4),
)
"""The instance types of the Eva paper's Table 3."""
T1 = task("t1", any=(2, 8, 24))
T2 = task("t2", any=(1, 4, 10))
T3 = task("t3", any=(0, 6, 20))
T4 = task("t4", any=(0, 4, 12))
"""Its four tasks."""


def previewed(state: State, spec: JobSpec, now: Millis, settings: Settings) -> JobPreview:
    """The preview of a job."""
    return Publisher(state, settings).publish(now).preview(spec, now)


def hypothetical(state: State, spec: JobSpec, now: Millis, settings: Settings) -> Snapshot:
    """Snapshot that the policy would be asked about."""
    question = previewed(state, spec, now, settings).question
    assert question is not None
    return question
