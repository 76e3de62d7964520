"""The end of `eva up` while tasks run on machines that nobody switches off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eva_master.app import shutdown
from eva_master.control.state.store import State
from eva_master.model.catalog import Purchase
from eva_master.model.events import ClosingDown
from eva_master.model.records import TaskRun
from eva_master.ports.reading import ReadModel
from eva_master.testing.job_views import with_values
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, SMALL, add_instance, add_job, spec

NODE = InstanceId("rack1")


class Cluster:
    """One task on an instance, which stops when a model is asked for the `stops_at`th time."""

    def __init__(self, purchase: Purchase, stops_at: int, *, grace_ms: int = 0) -> None:
        self.shutdown_grace_ms = 120_000
        self.within_ms: list[int] = []
        self.asked = 0
        self.posted: list[object] = []
        self.told: list[str] = []
        self.hurried = 0
        self.hurry = asyncio.Event()
        self.at: dict[int, Callable[[], object]] = {stops_at: self._stop}
        self._state = State(CATALOG)
        add_instance(self._state, NODE)
        node = self._state.instances[NODE]
        offering = replace(SMALL, purchase=purchase)
        self._state.put_instance(replace(node, offering=offering))
        job = add_job(self._state, with_values(spec("train"), {"grace_period_ms": grace_ms}))
        run = next(self._state.members(job)).to(RunState.STARTING, Millis(1))
        self._put(replace(run.to(RunState.RUNNING, Millis(2)), attempt=1, instance=NODE))

    def _put(self, run: TaskRun) -> None:
        self._state.put_run(run)
        self._run = run

    def _stop(self) -> None:
        waiting = self._run.to(RunState.STOPPING, Millis(3)).to(RunState.WAITING, Millis(4))
        self._put(replace(waiting, instance=None, generation=5))

    async def model(self) -> ReadModel:
        self.asked += 1
        self.at.get(self.asked, lambda: None)()
        return model_of(self._state)

    def _hurry(self) -> None:
        self.hurried += 1

    async def end(self) -> list[str]:
        cloud: Any = SimpleNamespace(terminate_all=self.within_ms.append, hurry=self._hurry)
        inbox: Any = SimpleNamespace(post=self.posted.append)
        gateway: Any = self
        ending = shutdown.Shutdown(
            gateway, inbox, cloud, self.told.append, grace_ms=self.shutdown_grace_ms
        )
        await ending.run(self.hurry)
        assert self.posted == [ClosingDown()]
        return self.told


async def test_tasks_on_owned_nodes_are_waited_for() -> None:
    told = await Cluster(Purchase.OWNED, stops_at=6).end()
    assert told[0].startswith("Stopping 1 task: ")
    assert told[1:] == [
        "  train-1/0 has stopped; its checkpoint 5 is stored",
        "1 job goes on when the cluster is started again.",
    ]


async def test_they_are_waited_for_no_longer_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_UPLOADS_MS", 0)
    told = await Cluster(Purchase.OWNED, stops_at=1_000).end()
    assert told[1].startswith("1 task on owned nodes did not stop in time: the workers there stop")
    assert "1 task stored no checkpoint and will start over." in told


async def test_a_second_interrupt_waits_for_no_node() -> None:
    cluster = Cluster(Purchase.OWNED, stops_at=1_000)
    cluster.at[6] = cluster.hurry.set
    told = await cluster.end()
    assert any("did not stop in time" in sentence for sentence in told)


async def test_what_the_cloud_has_taken_back_is_not_waited_for() -> None:
    told = await Cluster(Purchase.ON_DEMAND, stops_at=1_000).end()
    assert not any("owned nodes" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("grace_ms", "within_s"), [(0, 30), (60_000, 90), (120_000, 150), (86_400_000, 150)]
)
async def test_no_task_holds_up_the_end_for_longer_than_operators_allow(
    grace_ms: int, within_s: int
) -> None:
    cluster = Cluster(Purchase.ON_DEMAND, stops_at=1_000, grace_ms=grace_ms)
    told = await cluster.end()
    assert cluster.within_ms == [within_s * 1_000]
    assert f"At most {within_s} s" in told[0]
