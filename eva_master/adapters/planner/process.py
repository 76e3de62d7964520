"""Runs the policy in a process of its own, so that a long solve blocks no other thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import structlog

from eva_master.adapters.planner.child import (
    Answer,
    Failed,
    PlanRequest,
    PolicyRecipe,
    greedily_planned,
    planned,
    policy_ready,
)
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanReceiver
from eva_master.adapters.planner.pool import Child, Planned, outcome_of
from eva_master.adapters.planner.snapshot_diff import Sender
from eva_master.model.actions import RequestPlan
from eva_master.model.events import PlanFailed, PlanReady
from eva_master.model.planning.plan import Json
from eva_master.ports import Inbox

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RoundTimeout:
    """How long a round may take by the clock; its work is bounded by counts, this is a safeguard.

    Attributes:
        slow_s: Seconds after which the operator is told.
        longest_s: Seconds after which the planner's process is ended.
        greedy_s: Seconds after which that of the greedy pass is, with the start of the process.
    """

    slow_s: float = 10.0
    longest_s: float = 60.0
    greedy_s: float = 120.0


WATCH = RoundTimeout()


@dataclass(slots=True)
class _RunningRound:
    """A round that is under way."""

    request: RequestPlan
    since: float
    child: Child
    ended: bool = False
    timers: list[threading.Timer] = field(default_factory=list)


class ProcessPlanner:
    """Implements `eva_master.ports.Planner` with a child process.

    The child starts at once, so that the first round does not wait for its imports, and again at
    the next request after its death. The child never outlives the master. If a round takes far too
    long, the child is ended, and another one plans by the greedy pass alone, where `greedy` allows
    that.

    Args:
        inbox: Gets `PlanReady` or `PlanFailed`.
        policy_name: As in the configuration.
        policy_options: The policy's own configuration.
        build: Import path ``module:function`` of a function (name, options) -> `Policy`, called
            once in the child.
        greedy: Whether the greedy pass may stand in for the policy.
        watch: How long a round may take.

    Attributes:
        source: How a child builds the policy.
    """

    def __init__(
        self,
        inbox: Inbox,
        policy_name: str,
        policy_options: Mapping[str, Json],
        build: str,
        *,
        greedy: bool = False,
        watch: RoundTimeout = WATCH,
    ) -> None:
        self._inbox = inbox
        self.source = PolicyRecipe(build, policy_name, json.dumps(policy_options, sort_keys=True))
        self._greedy = greedy
        self._watch = watch
        self._lock = threading.Lock()
        self._closed = False
        self._rounds: dict[int, _RunningRound] = {}
        self._child = Child()
        self._child.submit(policy_ready, self.source)

    def request(self, request: RequestPlan) -> None:
        """Have a plan made; `PlanReady` or `PlanFailed` is posted. Never blocks."""
        with self._lock:
            try:
                planning = self._ask(request)
            except BrokenProcessPool:
                self._begin_anew()
                planning = self._ask(request)
            round_ = self._watched(request)
        plans = round_.child.plans
        planning.add_done_callback(lambda future: self._done(round_, outcome_of(future, plans)))

    def slow_for_s(self) -> float | None:
        """For how many seconds a round has been under way that takes long; `None` if none does."""
        with self._lock:
            times = [time.monotonic() - round_.since for round_ in self._rounds.values()]
        longest = max(times, default=0.0)
        return longest if longest > self._watch.slow_s else None

    def close(self) -> None:
        """End the child at once; requests in progress fail."""
        with self._lock:
            self._closed = True
            for round_ in self._rounds.values():
                self._stop_timers(round_)
            self._child.close()

    def _ask(self, request: RequestPlan) -> Future[FastPickle[Answer] | Failed]:
        child = self._child
        changes = child.snapshots.diff(request.snapshot)
        question = PlanRequest(changes, request.memory, base=child.plans.number)
        return child.submit(planned, self.source, FastPickle(question))

    def _begin_anew(self) -> None:
        self._child.close()
        self._child = Child()

    def _watched(self, request: RequestPlan) -> _RunningRound:
        """A round that begins, which is watched from now on."""
        round_ = self._rounds[request.round] = _RunningRound(request, time.monotonic(), self._child)
        watched: tuple[tuple[float, Callable[[_RunningRound], None]], ...] = (
            (self._watch.slow_s, self._warn),
            (self._watch.longest_s, self._end),
        )
        for seconds, act in watched:
            timer = threading.Timer(seconds, act, (round_,))
            timer.daemon = True
            round_.timers.append(timer)
            timer.start()
        return round_

    @staticmethod
    def _stop_timers(round_: _RunningRound) -> None:
        for timer in round_.timers:
            timer.cancel()

    def _warn(self, round_: _RunningRound) -> None:
        request = round_.request
        log.warning(
            "a round takes long",
            round=request.round,
            partition=request.partition,
            seconds=self._watch.slow_s,
            tasks=len(request.snapshot.runs),
            ended_after_s=self._watch.longest_s,
        )

    def _end(self, round_: _RunningRound) -> None:
        """End the child of a round that takes far too long."""
        with self._lock:
            if self._closed or self._rounds.get(round_.request.round) is not round_:
                return
            round_.ended = True
            if self._child is round_.child:
                self._child = Child()
                self._child.submit(policy_ready, self.source)
        round_.child.kill()

    def _done(self, round_: _RunningRound, outcome: Planned | Failed) -> None:
        request = round_.request
        self._stop_timers(round_)
        with self._lock:
            if isinstance(outcome, Failed):
                round_.child.snapshots.forget()  # it may not have arrived
            ended = round_.ended and isinstance(outcome, Failed) and not self._closed
            if not (ended and self._greedy):
                del self._rounds[request.round]
        if ended:
            log.error("the planner was ended", round=request.round, greedy=self._greedy)
            if self._greedy:
                self._plan_greedily(request)
                return
            outcome = Failed(f"the policy found no plan within {self._watch.longest_s:g} s", "")
        self._post(request, outcome)

    def _plan_greedily(self, request: RequestPlan) -> None:
        """Have the greedy pass plan in place of the policy, whose memory stays as it is."""
        child = Child()
        question = FastPickle(
            PlanRequest(Sender().diff(request.snapshot), request.memory, apart=True)
        )
        planning = child.submit(greedily_planned, question)
        timer = threading.Timer(self._watch.greedy_s, child.kill)
        timer.daemon = True
        timer.start()

        def done(future: Future[FastPickle[Answer] | Failed]) -> None:
            outcome = outcome_of(future, PlanReceiver())
            timer.cancel()
            child.close()
            with self._lock:
                self._rounds.pop(request.round, None)
            self._post(request, outcome)

        planning.add_done_callback(done)

    def _post(self, request: RequestPlan, outcome: Planned | Failed) -> None:
        if isinstance(outcome, Planned):
            self._inbox.post(PlanReady(request.round, outcome.plan, outcome.memory))
        else:
            log.error("plan failed", round=request.round, trace=outcome.trace or outcome.reason)
            self._inbox.post(PlanFailed(request.round, outcome.reason))
