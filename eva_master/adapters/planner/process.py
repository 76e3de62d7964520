"""Runs the policy in a process of its own, so that a long solve blocks no other thread."""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

import structlog

from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.snapshot_diff import Receiver, Sender, SnapshotDiff
from eva_master.model.actions import RequestPlan
from eva_master.model.errors import InvalidPlan
from eva_master.model.events import PlanFailed, PlanReady
from eva_master.model.planning.plan import Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Inbox, Policy

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _PolicySource:
    """How the child builds its policy. The options are JSON, to be hashable."""

    build: str
    name: str
    options: str


@dataclass(frozen=True, slots=True)
class _Question:
    """What to plan for.

    Attributes:
        apart: The snapshot is complete, and later ones are no differences from it.
    """

    snapshot: SnapshotDiff
    memory: PolicyMemory | None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    memory: PolicyMemory | None


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why there is no plan, as text, since not every exception can be pickled."""

    reason: str
    trace: str


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
        self._source = _PolicySource(build, policy_name, json.dumps(policy_options, sort_keys=True))
        self._lock = threading.Lock()
        self._child = _Child()
        self._child.submit(_policy_ready, self._source)
        # One preview at a time, so that the next round waits for at most one of them.
        self._previews = asyncio.Semaphore(1)

    def request(self, request: RequestPlan) -> None:
        """Have a plan made; `PlanReady` or `PlanFailed` is posted. Never blocks."""

        def done(future: Future[_Planned | _Failed]) -> None:
            outcome = future.result()
            if isinstance(outcome, _Planned):
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
        if isinstance(outcome, _Failed):
            raise InvalidPlan(outcome.reason)
        return outcome.plan

    def close(self) -> None:
        """End the child at once; requests in progress fail."""
        with self._lock:
            self._child.close()

    def _submit(
        self, snapshot: Snapshot, memory: PolicyMemory | None, *, apart: bool = False
    ) -> Future[_Planned | _Failed]:
        """Start planning. The future's result reports every failure; it never raises."""
        answer: Future[_Planned | _Failed] = Future()

        def done(future: Future[FastPickle[_Planned] | _Failed]) -> None:
            outcome = _outcome(future)
            if isinstance(outcome, _Failed):
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
    ) -> Future[FastPickle[_Planned] | _Failed]:
        # A preview's views are its own: a round after it must not be sent the whole cluster.
        sender = Sender() if apart else self._child.snapshots
        question = FastPickle(_Question(sender.diff(snapshot), memory, apart))
        return self._child.submit(_plan, self._source, question)


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
            initializer=_live_with_parent,
            initargs=(self._watched,),
        )

    def submit(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)

    def close(self) -> None:
        self._lifeline.close()
        self._watched.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[FastPickle[_Planned] | _Failed]) -> _Planned | _Failed:
    try:
        result = future.result()
    except CancelledError:
        return _Failed("the planner was closed", "")
    except BrokenProcessPool:
        return _Failed("the planner's process died", "")
    except Exception as error:  # a snapshot or a plan that cannot be pickled
        return _Failed(_describe(error), traceback.format_exc())
    return result.content if isinstance(result, FastPickle) else result


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# -- in the child --------------------------------------------------------------------------------


def _live_with_parent(lifeline: Connection) -> None:
    """Ignore interrupts, which the master handles, and end when the master ends.

    It lowers its priority, so that a long solve does not slow the master down on a small machine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    spare_lasting_values()

    def wait() -> None:
        lifeline.poll(None)
        os._exit(0)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


@cache
def _policy(source: _PolicySource) -> Policy:
    module, _, function = source.build.partition(":")
    policy: Policy = getattr(importlib.import_module(module), function)(
        source.name, json.loads(source.options)
    )
    return policy


@cache
def _snapshots() -> Receiver:
    return Receiver()


def _policy_ready(source: _PolicySource) -> None:
    """Import and build the policy in advance. If that fails, the first plan says why."""
    _policy(source)


def _plan(source: _PolicySource, question: FastPickle[_Question]) -> FastPickle[_Planned] | _Failed:
    asked = question.content
    try:
        seen = (Receiver() if asked.apart else _snapshots()).snapshot(asked.snapshot)
        return FastPickle(_Planned(*_policy(source).plan(seen, asked.memory)))
    except Exception as error:
        return _Failed(_describe(error), traceback.format_exc())
