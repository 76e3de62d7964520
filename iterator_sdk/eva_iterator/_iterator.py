"""The wrapper around a data loader."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eva_iterator import _session
from eva_iterator._session import Session

if TYPE_CHECKING:
    from eva_iterator._forked import Forked
    from eva_iterator._forks.fork import Fork

T = TypeVar("T")

_log = logging.getLogger("eva_iterator")


class EvaIterator(Generic[T]):
    """Iterates over a data loader, or anything else, and lets Eva count the steps.

    A step is one pass through the body of the loop. It counts once the body has finished, so a pass
    that ends with `break` does not count. Each `for` over the wrapper is a new pass over the
    wrapped iterable, whose length and attributes it has. Outside Eva the wrapper does nothing.

    When the scheduler stops the program (SIGTERM), the current step is finished, a checkpoint is
    published if `checkpoint` is given and there were steps since the last one, and the loop ends as
    if the data had ended. Every later loop ends before its first step.

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
    ) -> None:
        """Wraps an iterable.

        Args:
            iterable: What to iterate over.
            total: Steps of the whole program, as for `set_total`. It is never guessed from the
                length of the iterable, which is only one epoch.
            checkpoint: Writes the state of the program into the given directory. It is called in
                the looping thread, between two steps.
            checkpoint_every_s: Seconds between checkpoints, on top of the one at a stop and the one
                after the last step.
            forked: How the program's state is averaged where its job has forks: between two steps
                the loop then also gives and loads weights, and waits for them. It ends when the
                forks have made all steps together. In other jobs it has no effect.

        Raises:
            ValueError: A negative total, an interval that is not positive, or an interval
                without `checkpoint`.
        """
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

    def _loop(self, session: Session) -> Iterator[T]:
        stop = session.stop
        loop = session.progress.open(self._every_s)
        if self._every_s < math.inf:
            session.wake()
        try:
            items = iter(() if stop.requested else self._iterable)
            exhausted = False
            while not exhausted:
                try:
                    for item in items:
                        yield item
                        loop.steps += 1
                        if stop.requested or loop.due:
                            break
                    else:
                        exhausted = True
                except Exception as error:  # raised by the loader, never by the body
                    if not stop.requested:
                        raise
                    # The signal may also have ended the loader's workers.
                    _log.info("data loader failed after the signal to stop: %s", error)
                if stop.requested:
                    break
                if loop.due:
                    self._publish(session)
                    loop.due = False
            # The program may also be stopped after the last step, which must not cost the steps
            # again.
            last = stop.requested or session.progress.complete()
            if last and session.active and session.progress.unsaved():
                self._publish(session)
        finally:
            loop.closed = True

    def _forked_loop(self, session: Session, fork: Fork, forked: Forked) -> Iterator[T]:
        stop = session.stop
        loop = session.progress.open(self._every_s)
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
                    if not stop.requested:
                        raise
                    _log.info("data loader failed after the signal to stop: %s", error)
                    break
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
        finally:
            loop.closed = True

    def _publish(self, session: Session) -> None:
        if self._checkpoint is not None:
            fork = session.fork if self._forked is not None else None
            session.publish(self._checkpoint if fork is None else fork.noting(self._checkpoint))
