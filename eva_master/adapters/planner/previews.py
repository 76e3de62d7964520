"""Makes plans that are not carried out, in a process of their own, so that no round waits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from eva_master.adapters.planner.child import Answer, Failed, PlanRequest, PolicyRecipe, planned
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanReceiver
from eva_master.adapters.planner.pool import Child, Planned, outcome_of
from eva_master.adapters.planner.snapshot_diff import Sender
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.errors import InvalidPlan

IDLE_S = 60.0
LONGEST_S = 60.0


class Previews:
    """One child process for the previews of all partitions, one preview at a time.

    The child starts with the first preview, and ends when there was none for a while, or when one
    takes too long.

    Args:
        idle_s: Seconds after which the child ends if there is nothing to do.
        longest_s: Seconds after which it ends in the middle of a preview.
    """

    def __init__(self, idle_s: float = IDLE_S, longest_s: float = LONGEST_S) -> None:
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._lock = threading.Lock()
        self._one_at_a_time = asyncio.Semaphore(1)
        self._child: Child | None = None
        self._timer: threading.Timer | None = None
        self._closed = False

    async def preview(
        self, source: PolicyRecipe, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> Plan:
        """Make a plan.

        Args:
            source: The policy that is asked.
            snapshot: Of its partition.
            memory: The policy's.

        Raises:
            InvalidPlan: The policy failed, or took too long.
        """
        await self._one_at_a_time.acquire()
        planning = asyncio.wrap_future(self._submit(source, snapshot, memory))
        # The child goes on though the caller goes away: until it has finished, no other begins.
        planning.add_done_callback(lambda _: self._one_at_a_time.release())
        outcome = await asyncio.shield(planning)
        if isinstance(outcome, Failed):
            raise InvalidPlan(outcome.reason)
        return outcome.plan

    @property
    def running(self) -> bool:
        """Whether there is a child."""
        return self._child is not None

    def close(self) -> None:
        """End the child at once; a preview in progress fails."""
        with self._lock:
            self._closed = True
            self._end()

    def _submit(
        self, source: PolicyRecipe, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> Future[Planned | Failed]:
        """Start planning. The future's result reports every failure; it never raises."""
        answer: Future[Planned | Failed] = Future()
        question = FastPickle(PlanRequest(Sender().diff(snapshot), memory, apart=True))
        with self._lock:
            if self._closed:
                answer.set_result(Failed("the planner was closed", ""))
                return answer
            self._stop_timer()
            child = self._child = self._child or Child()
            planning = child.submit(planned, source, question)
            self._start_timer(self._longest_s)

        def done(future: Future[FastPickle[Answer] | Failed]) -> None:
            outcome, took_too_long = outcome_of(future, PlanReceiver()), False
            with self._lock:
                took_too_long = self._child is not child and not self._closed
                self._stop_timer()
                if isinstance(outcome, Failed) and not future.cancelled() and future.exception():
                    self._end()  # it may have died
                elif self._child is not None:
                    self._start_timer(self._idle_s)
            if took_too_long:
                outcome = Failed(f"no plan was found within {self._longest_s:g} s", "")
            if answer.set_running_or_notify_cancel():
                answer.set_result(outcome)

        planning.add_done_callback(done)
        return answer

    def _start_timer(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._expired, (self._child,))
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self, child: Child) -> None:
        with self._lock:
            if self._child is child and self._timer is not None:
                self._end()

    def _end(self) -> None:
        self._stop_timer()
        child, self._child = self._child, None
        if child is not None:
            child.kill()
