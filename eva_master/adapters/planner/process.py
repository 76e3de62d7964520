"""Runs the policy in a process of its own, so that a long solve blocks no other thread."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

import structlog

from eva_master.adapters.planner.child import (
    Failed,
    Planned,
    PolicySource,
    Question,
    described,
    live_with_parent,
    planned,
    policy_ready,
)
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.snapshot_diff import Sender
from eva_master.model.actions import RequestPlan
from eva_master.model.errors import InvalidPlan
from eva_master.model.events import PlanFailed, PlanReady
from eva_master.model.planning.plan import Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Inbox

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


class ProcessPlanner:
    """Implements `eva_master.ports.Planner` with a child process.

    The child starts at once, so that the first round does not wait for its imports, and again at
    the next request after it died. It never outlives the master.

    Args:
        inbox: Gets `PlanReady` or `PlanFailed`.
        policy_name: As in the configuration.
        policy_options: The policy's own configuration.
        build: Import path ``module:function`` of a function (name, options) -> `Policy`, called
            once in the child.
    """

    def __init__(
        self, inbox: Inbox, policy_name: str, policy_options: Mapping[str, Json], build: str
    ) -> None:
        self._inbox = inbox
        self._source = PolicySource(build, policy_name, json.dumps(policy_options, sort_keys=True))
        self._lock = threading.Lock()
        self._child = _Child()
        self._child.submit(policy_ready, self._source)
        # One preview at a time, so that the next round waits for at most one of them.
        self._previews = asyncio.Semaphore(1)

    def request(self, request: RequestPlan) -> None:
        """Have a plan made; `PlanReady` or `PlanFailed` is posted. Never blocks."""

        def done(future: Future[Planned | Failed]) -> None:
            outcome = future.result()
            if isinstance(outcome, Planned):
                self._inbox.post(PlanReady(request.round, outcome.plan, outcome.memory))
            else:
                log.error("plan failed", round=request.round, trace=outcome.trace)
                self._inbox.post(PlanFailed(request.round, outcome.reason))

        self._submit(request.snapshot, request.memory).add_done_callback(done)

    async def preview(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Plan:
        """Make a plan that is not carried out.

        Raises:
            InvalidPlan: The policy failed.
        """
        await self._previews.acquire()
        planning = asyncio.wrap_future(self._submit(snapshot, memory, apart=True))
        # The child goes on though the caller goes away: until it has finished, no other begins.
        planning.add_done_callback(lambda _: self._previews.release())
        outcome = await asyncio.shield(planning)
        if isinstance(outcome, Failed):
            raise InvalidPlan(outcome.reason)
        return outcome.plan

    def close(self) -> None:
        """End the child at once; requests in progress fail."""
        with self._lock:
            self._child.close()

    def _submit(
        self, snapshot: Snapshot, memory: PolicyMemory | None, *, apart: bool = False
    ) -> Future[Planned | Failed]:
        """Start planning. The future's result reports every failure; it never raises."""
        answer: Future[Planned | Failed] = Future()

        def done(future: Future[FastPickle[Planned] | Failed]) -> None:
            outcome = _outcome(future)
            if isinstance(outcome, Failed):
                with self._lock:
                    self._child.snapshots.forget()  # it may not have arrived
            if answer.set_running_or_notify_cancel():
                answer.set_result(outcome)

        with self._lock:
            try:
                planning = self._ask(snapshot, memory, apart=apart)
            except BrokenProcessPool:
                self._child.close()
                self._child = _Child()
                planning = self._ask(snapshot, memory, apart=apart)
        planning.add_done_callback(done)
        return answer

    def _ask(
        self, snapshot: Snapshot, memory: PolicyMemory | None, *, apart: bool
    ) -> Future[FastPickle[Planned] | Failed]:
        # A preview's views are its own: a round after it must not be sent the whole cluster.
        sender = Sender() if apart else self._child.snapshots
        question = FastPickle(Question(sender.diff(snapshot), memory, apart))
        return self._child.submit(planned, self._source, question)


class _Child:
    """A pool of one process, and a pipe whose closing tells that process to end.

    The kernel closes the pipe whenever the master dies. PR_SET_PDEATHSIG would end the child
    already when the *thread* that started it ends.

    Attributes:
        snapshots: The last snapshot that it was sent.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.snapshots = Sender()
        self._watched, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=context,
            initializer=live_with_parent,
            initargs=(self._watched,),
        )

    def submit(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)

    def close(self) -> None:
        self._lifeline.close()
        self._watched.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[FastPickle[Planned] | Failed]) -> Planned | Failed:
    try:
        result = future.result()
    except CancelledError:
        return Failed("the planner was closed", "")
    except BrokenProcessPool:
        return Failed("the planner's process died", "")
    except Exception as error:  # a snapshot or a plan that cannot be pickled
        return Failed(described(error), traceback.format_exc())
    return result.content if isinstance(result, FastPickle) else result
