"""The wrapper around a data loader."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from eva_iterator import _session
from eva_iterator._session import AgentSession
from eva_iterator._stop import Stopped

if TYPE_CHECKING:
    from eva_iterator._forked import Forked
    from eva_iterator._forks.fork import Fork
    from eva_iterator._progress import CountedLoop

T = TypeVar("T")

_log = logging.getLogger("eva_iterator")


class EvaIterator(Generic[T]):
    """Iterates over a data loader, or anything else, and lets Eva count the steps.

    A step is one pass through the body of the loop. Steps count once the body has finished, so a
    pass that ends with `break` does not count. Each `for` over the wrapper is a new pass over the
    wrapped iterable, whose length and attributes it has. Outside Eva the wrapper does nothing.

    When the scheduler stops the program (SIGTERM), the current step is finished, a checkpoint is
    published if there were steps since the last one, and the loop raises `Stopped`, a `SystemExit`,
    so that no code after it takes a half-trained model for a trained one. Every later loop raises
    it before its first step. The checkpoint is that of the loop itself. A loop without `checkpoint`
    publishes that of the last loop that ended with steps unsaved; within a step of another loop
    that has one, it goes on to its end, since that step is not finished before.

    If `total` is given, a checkpoint is also published after the last step of the whole program,
    since the program may be stopped while it evaluates or exports its results.
    """

    def __init__(
        self,
        iterable: Iterable[T],
        *,
        total: int | None = None,
        checkpoint: Callable[[Path], object] | None = None,
        checkpoint_every_s: float | None = None,
        forked: Forked | None = None,
        on_stop: Literal["raise", "end"] = "raise",
    ) -> None:
        """Wraps an iterable.

        Args:
            iterable: Iterable to wrap.
            total: Steps of the whole program, as for `set_total`, never guessed from the length of
                the iterable, which is only one epoch.
            checkpoint: Writes the state of the program into the given directory. The looping thread
                calls it between two steps.
            checkpoint_every_s: Seconds between checkpoints, on top of the one at a stop and the one
                after the last step.
            forked: How the program's state is averaged where its job has forks: between two steps
                the loop then also gives and loads weights, and waits for them. The loop ends when
                the forks have made all steps together. In other jobs the argument has no effect.
            on_stop: The loop's behaviour when the program is stopped, after the checkpoint: "raise"
                raises `Stopped`. With "end" the loop ends as if the data had ended, and so does
                every later loop that says so; the program must then ask `stopping()`.

        Raises:
            ValueError: A negative total, an interval that is not positive, an interval without
                `checkpoint`, or another value of `on_stop`.
        """
        if on_stop not in {"raise", "end"}:
            raise ValueError(f'on_stop must be "raise" or "end": {on_stop!r}')
        if total is not None and total < 0:
            raise ValueError(f"total must not be negative: {total}")
        if checkpoint_every_s is not None:
            if checkpoint is None:
                raise ValueError("checkpoint_every_s needs checkpoint")
            if not checkpoint_every_s > 0:
                raise ValueError(f"checkpoint_every_s must be positive: {checkpoint_every_s}")
        self._iterable = iterable
        self._checkpoint = checkpoint
        self._forked = forked
        self._raises = on_stop == "raise"
        self._every_s = math.inf if checkpoint_every_s is None else checkpoint_every_s
        if total is not None:
            _session.current().progress.total_steps = total

    def __iter__(self) -> Iterator[T]:
        session = _session.current()
        if not session.active:
            return iter(self._iterable)
        session.stop.install()
        if self._forked is not None and session.fork is not None:
            return self._forked_loop(session, session.fork, self._forked)
        return self._loop(session)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError as it should

    def __bool__(self) -> bool:
        # Without this, __len__ would decide, and fail for an iterable without a length.
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable" or name.startswith("__"):
            # Asked for while being copied or unpickled, or part of a protocol that is not passed.
            raise AttributeError(name)
        return getattr(self._iterable, name)

    def _loop(self, session: AgentSession) -> Iterator[T]:
        stop, progress = session.stop, session.progress
        loop = progress.open(self._every_s, saves=self._checkpoint is not None)
        if self._every_s < math.inf:
            session.wake()
        try:
            items = iter(() if self._must_end(session, loop) else self._iterable)
            exhausted = False
            while not exhausted:
                try:
                    for item in items:
                        if not loop.steps:
                            stop.guard()
                        yield item
                        loop.steps += 1
                        if stop.requested or loop.due:
                            break
                    else:
                        exhausted = True
                except Exception as error:  # raised by the loader, never by the body
                    self._failed(session, loop, error)
                    break
                if self._must_end(session, loop):
                    break
                if loop.due:
                    self._publish(session)
                    loop.due = False
            stopped = self._must_end(session, loop)
            # The program may also be stopped after the last step, which must not cost the steps
            # again.
            if session.active and (stopped or progress.complete()):
                self._save(session)
            if stopped and self._raises:
                raise Stopped
        finally:
            loop.closed = True
            if loop.saves and session.active and progress.unsaved():
                session.unsaved = functools.partial(self._publish, session)

    def _forked_loop(self, session: AgentSession, fork: Fork, forked: Forked) -> Iterator[T]:
        stop = session.stop
        loop = session.progress.open(self._every_s, saves=True)
        try:
            items: Iterator[T] | None = None
            while fork.ready(forked):
                if items is None:
                    # After the first wait, so that the loader's workers do not wait with it.
                    items = iter(self._iterable)
                try:
                    item = next(items)
                except StopIteration:
                    break
                except Exception as error:
                    self._failed(session, loop, error)
                    break
                if not loop.steps:
                    stop.guard()
                yield item
                loop.steps += 1
                fork.stepped()
                if loop.due:
                    if fork.unforked:
                        self._publish(session)
                    loop.due = False
            if session.active:
                alone = fork.unforked and not fork.dismissed
                if alone and session.progress.unsaved():
                    self._publish(session)
                fork.leave(forked)
            if self._raises and stop.requested:
                raise Stopped
            if self._raises and fork.dismissed:
                raise Stopped(0)
        finally:
            loop.closed = True

    def _must_end(self, session: AgentSession, loop: CountedLoop) -> bool:
        """Whether the loop is to end now: the program is to stop, and the step is finished."""
        if not session.stop.requested:
            return False
        unfinished = self._raises and not loop.saves and session.progress.within_step(loop)
        return not unfinished

    def _failed(self, session: AgentSession, loop: CountedLoop, error: Exception) -> None:
        """Takes in that the loader failed, which is expected once the program is to stop.

        The signal may have ended the loader's workers too.

        Raises:
            Exception: `error`, of a program that goes on.
            Stopped: The failure leaves a step of another loop unfinished.
        """
        if not session.stop.requested:
            raise error
        if self._must_end(session, loop):
            _log.info("data loader failed after the signal to stop: %s", error)
            return
        _log.warning(
            "data loader failed after the signal to stop, within a step of another loop, which is"
            " not saved: %s",
            error,
        )
        raise Stopped from error

    def _save(self, session: AgentSession) -> None:
        """Publishes steps that are in no checkpoint, those of loops before this one too."""
        if self._checkpoint is not None:
            if session.progress.unsaved():
                self._publish(session)
        elif self._raises and session.stop.requested and session.unsaved is not None:
            session.unsaved()

    def _publish(self, session: AgentSession) -> None:
        if self._checkpoint is not None:
            fork = session.fork if self._forked is not None else None
            session.publish(self._checkpoint if fork is None else fork.noting(self._checkpoint))
