"""How a cluster on this machine ends: its tasks are stored first, and whoever waits is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.app.cloud_provider import ManagedCloud
from eva_master.model.events import ClosingDown
from eva_master.model.records import TaskRun
from eva_master.ports import Inbox
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import RunId
from eva_wire.values.states import HOLDING, RunState

Tell = Callable[[str], None]
"""Called with a sentence for whoever waits."""

_UPLOADS_MS = 30_000
"""Time that workers get beyond the tasks' grace periods, to store files."""
_LOOK_S = 0.2
_MODEL_S = 5.0
_TOLD_SINGLY = 20


class Shutdown:
    """Ends a cluster with its instances.

    Args:
        gateway: Gives the state of the tasks.
        inbox: The control loop's.
        cloud: Cloud whose instances go.
        tell: Told what happens.
        grace_ms: Time that tasks have to stop, if their own grace period is longer.
    """

    def __init__(
        self,
        gateway: LoopGateway,
        inbox: Inbox,
        cloud: ManagedCloud,
        tell: Tell,
        *,
        grace_ms: int,
    ) -> None:
        self._grace_ms = grace_ms
        self._gateway = gateway
        self._inbox = inbox
        self._cloud = cloud
        self._tell = tell

    async def run(self, hurry: asyncio.Event) -> None:
        """Have all tasks stopped and stored, and all instances go; returns when they are gone.

        Args:
            hurry: Once it is set, nothing is waited for any more.
        """
        model = await self._model()
        running = _running(model) if model else {}
        grace_ms = [
            model.jobs[run.job].spec.restarts.grace_period_ms for run in running.values() if model
        ]
        within_ms = _UPLOADS_MS + min(self._grace_ms, max(grace_ms, default=0))
        if running:
            self._tell(
                f"Stopping {_count(running)}: they get SIGTERM, and their checkpoints and logs are"
                f" stored. At most {within_ms // 1000} s; Ctrl-C again stops at once."
            )
        self._inbox.post(ClosingDown())
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_ms / 1000
        ending = asyncio.create_task(asyncio.to_thread(self._cloud.terminate_all, within_ms))
        hurrying = asyncio.create_task(self._hurry(hurry))
        run_ids: set[RunId] = set()
        while not ending.done():
            await asyncio.wait({ending}, timeout=_LOOK_S)
            if running:
                self._follow(running, await self._gateway.model(), run_ids)
        await ending
        # No cloud waits for those on machines that nobody switches off.
        while model and (stopping := self._on_nodes(running, seen := await self._gateway.model())):
            self._follow(running, seen, run_ids)
            if hurry.is_set() or loop.time() >= until_s:
                self._tell(
                    f"{_count(stopping)} on owned nodes did not stop in time: the workers there"
                    " stop what still runs when their leases end."
                )
                break
            await asyncio.wait({hurrying}, timeout=_LOOK_S)
        hurrying.cancel()
        # The last reports arrived before their instances went.
        if model:
            now = await self._gateway.model()
            self._follow(running, now, run_ids)
            self._conclude(running, now)

    @staticmethod
    def _on_nodes(running: Iterable[RunId], model: ReadModel) -> list[TaskRun]:
        """Task runs that still occupy owned nodes."""
        runs = [run for name in running if (run := model.runs.get(name)) is not None]
        return [
            run
            for run in runs
            if run.state in HOLDING
            and run.instance is not None
            and model.instances[run.instance].owned
        ]

    async def _model(self) -> ReadModel | None:
        """The state of the tasks; `None` if the control loop has not begun to publish it."""
        try:
            async with asyncio.timeout(_MODEL_S):
                return await self._gateway.model()
        except TimeoutError:
            return None

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        self._tell("Stopping at once. What is not stored yet is lost.")
        self._cloud.hurry()

    def _follow(self, running: Mapping[RunId, TaskRun], model: ReadModel, told: set[RunId]) -> None:
        """Tell of each task that has stopped meanwhile."""
        for name in running.keys() - told:
            run = model.runs.get(name)
            if run is not None and run.state not in HOLDING:
                told.add(name)
                if len(told) <= _TOLD_SINGLY:
                    self._tell(f"  {name} {_outcome(run)}")

    def _conclude(self, running: Mapping[RunId, TaskRun], model: ReadModel) -> None:
        if waiting := len(model.active):
            jobs = "1 job goes" if waiting == 1 else f"{waiting} jobs go"
            self._tell(f"{jobs} on when the cluster is started again.")
        lost = [
            run
            for name in running
            if (run := model.runs.get(name)) is not None
            and (run.state in HOLDING or (run.state is RunState.WAITING and not run.generation))
        ]
        if lost:
            self._tell(f"{_count(lost)} stored no checkpoint and will start over.")


def _running(model: ReadModel) -> dict[RunId, TaskRun]:
    """The task runs that occupy an instance."""
    return {run.id: run for name in model.live for run in model.occupants(name)}


def _outcome(run: TaskRun) -> str:
    if run.state is RunState.SUCCEEDED:
        return "has succeeded"
    if run.generation:
        return f"has stopped; its checkpoint {run.generation} is stored"
    return "has stopped without a checkpoint"


def _count(runs: Iterable[object]) -> str:
    number = sum(1 for _ in runs)
    return "1 task" if number == 1 else f"{number} tasks"
