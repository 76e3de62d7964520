"""Drains that a client repeats since it has not heard of the first one's answer."""

from __future__ import annotations

import pytest

from eva_master.model.actions import Reply
from eva_master.model.events import DrainRequested, InstanceGone, Phase
from eva_wire.values.errors import EvaError, NotFound
from eva_wire.values.ids import InstanceId, Millis, RunId
from tests.fakes.hand_driven import JOB, SLOW, Cluster

I1 = InstanceId("i00001")


def drained(cluster: Cluster, *, at: int) -> EvaError | None:
    """The error that an operator is told who drains the instance."""
    actions = cluster.handle(DrainRequested("drain", I1, False, "op"), at=at)
    (reply,) = (action for action in actions if isinstance(action, Reply))
    return reply.error


@pytest.mark.parametrize("ordered", [True, False])
def test_an_instance_that_has_gone_by_a_drain_may_be_named_in_a_repeated_one(ordered: bool) -> None:
    cluster = Cluster()
    cluster.start(JOB, on=SLOW)
    if ordered:
        assert drained(cluster, at=1_000) is None
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=2_000, exit_code=0)
    cluster.handle(InstanceGone(I1, Millis(0), Millis(3_000), "terminated"), at=3_000)
    error = drained(cluster, at=4_000)
    assert error is None if ordered else isinstance(error, NotFound)
