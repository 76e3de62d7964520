"""A child process that plans, and how it is ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from eva_master.adapters.planner.child import Answer, Failed, described, live_with_parent
from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanReceiver
from eva_master.adapters.planner.snapshot_diff import Sender
from eva_master.model.planning.plan import Plan, PolicyMemory

P = ParamSpec("P")
T = TypeVar("T")


class Child:
    """A pool of one process, and a pipe whose closing tells that process to end.

    The kernel closes the pipe whenever the master dies. PR_SET_PDEATHSIG would end the child
    already when the *thread* that started it ends.

    Attributes:
        snapshots: The last snapshot that it was sent.
        plans: The last plan that came back.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.snapshots = Sender()
        self.plans = PlanReceiver()
        self._watched, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=context,
            initializer=live_with_parent,
            initargs=(self._watched,),
        )
        self._pid = self._pool.submit(os.getpid)

    def submit(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called there."""
        return self._pool.submit(fn, *args, **kwargs)

    def close(self) -> None:
        """End the process at its next step; what it was asked fails."""
        self._lifeline.close()
        self._watched.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def kill(self) -> None:
        """End the process at once, be it in the middle of a computation."""
        if self._pid.done() and self._pid.exception() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid.result(), signal.SIGKILL)
        self.close()


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what the policy remembers for the next one."""

    plan: Plan
    memory: PolicyMemory | None


def outcome_of(
    future: Future[FastPickle[Answer] | Failed], plans: PlanReceiver
) -> Planned | Failed:
    """Answer of a child, or the reason why there is none.

    Args:
        future: The answer.
        plans: The last plan that came back from this child; a new one for a request `apart`.
    """
    try:
        result = future.result()
        if isinstance(result, Failed):
            return result
        return Planned(plans.plan(result.content.plan), result.content.memory)
    except CancelledError:
        return Failed("the planner was closed", "")
    except BrokenProcessPool:
        return Failed("the planner's process died", "")
    except Exception as error:  # a snapshot or a plan that cannot be pickled
        return Failed(described(error), traceback.format_exc())
