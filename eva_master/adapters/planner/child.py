"""The planner's process, with few imports, to start quickly."""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection

from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanDiff, PlanSender
from eva_master.adapters.planner.snapshot_diff import SnapshotDiff, SnapshotReceiver
from eva_master.model.planning.plan import PolicyMemory
from eva_master.packing.claims.asking import ask
from eva_master.packing.reconfiguration.greedy_pass import GreedyPass
from eva_master.ports import Policy

_NICENESS = 5


@dataclass(frozen=True, slots=True)
class PolicyRecipe:
    """How the child builds its policy. The options are JSON, to be hashable."""

    build: str
    name: str
    options: str


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan.

    Attributes:
        base: Number of the last plan that the asker has, 0 for none.
        apart: The snapshot is complete, and later ones are no differences from it.
    """

    snapshot: SnapshotDiff
    memory: PolicyMemory | None
    base: int = 0
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan as it is sent back, and what the policy remembers for the next one."""

    plan: PlanDiff
    memory: PolicyMemory | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no plan, as text, since not every exception can be pickled."""

    reason: str
    trace: str


def described(error: Exception) -> str:
    """Describe an error in a line."""
    return f"{type(error).__name__}: {error}"


def live_with_parent(lifeline: Connection) -> None:
    """Ignore interrupts, which the master handles, and end when the master ends.

    Lower its priority, so that a long solve does not slow the master down on a small machine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    spare_lasting_values()

    def wait() -> None:
        lifeline.poll(None)
        os._exit(0)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


@cache
def _policy(source: PolicyRecipe) -> Policy:
    module, _, function = source.build.partition(":")
    policy: Policy = getattr(importlib.import_module(module), function)(
        source.name, json.loads(source.options)
    )
    return policy


@cache
def _ends() -> tuple[SnapshotReceiver, PlanSender]:
    """Ends of what is sent as differences, there and back."""
    return SnapshotReceiver(), PlanSender()


def policy_ready(source: PolicyRecipe) -> None:
    """Import and build the policy in advance. If that fails, the first plan says why."""
    _policy(source)


def planned(source: PolicyRecipe, question: FastPickle[PlanRequest]) -> FastPickle[Answer] | Failed:
    """Make a plan; whatever the policy raises is told in the answer."""
    return _planned(partial(_policy, source), question.content)


def greedily_planned(question: FastPickle[PlanRequest]) -> FastPickle[Answer] | Failed:
    """Make a plan without the policy, whose memory stays as it is."""
    return _planned(GreedyPass, question.content)


def _planned(policy: Callable[[], Policy], asked: PlanRequest) -> FastPickle[Answer] | Failed:
    try:
        receiver, sender = (SnapshotReceiver(), PlanSender()) if asked.apart else _ends()
        plan, memory = ask(policy(), receiver.snapshot(asked.snapshot), asked.memory)
        return FastPickle(Answer(sender.diff(plan, asked.base), memory))
    except Exception as error:
        return Failed(described(error), traceback.format_exc())
