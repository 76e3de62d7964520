"""One fork's messages with the master, between its program and the object store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import structlog

from eva_wire._proto import iterator_pb2
from eva_worker.errors import StoreUnavailable, WorkerError
from eva_worker.files.objects import Objects, persistently
from eva_worker.forks.files import KINDS, MOST_EPOCH, MergeFiles
from eva_worker.orders import MergeNews, MergeRound, Order, PartGiven, PartsMerged, TaskKey

_FOLDER = "merge"
_TRIES = 5
_WAITS = MergeRound(0)
"""The answer to a program before the master's first message: wait."""


class ForkMerges:
    """One fork: fetches merges and parts before its program is told, stores what it makes.

    The master's newest message counts. Its steps are done one after the other, in the background;
    each may be repeated.

    Args:
        key: The attempt.
        fork: Its number.
        files: Its directories, and those in the store.
        say: Tells the master.
        tell: Writes a line into the task's log.
    """

    def __init__(
        self,
        key: TaskKey,
        fork: int,
        files: MergeFiles,
        *,
        say: Callable[[MergeNews], None],
        tell: Callable[[str], None],
    ) -> None:
        self._key = key
        self._fork = fork
        self._files = files
        self._say = say
        self._tell = tell
        self._round: MergeRound | None = None
        self._answer = _WAITS
        self._given: PartGiven | None = None
        self._merged: PartsMerged | None = None
        self._held = (0, "")
        """The merge that lies there for the program: its epoch and its name."""
        self._programs = (0, 0)
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._refused: set[tuple[str, int]] = set()
        self._log = structlog.get_logger().bind(run=key.run, attempt=key.attempt)

    def start(self) -> None:
        """Begin to carry out what the master says."""
        self._work = asyncio.create_task(self._keep_up(), name=f"merges of {self._key}")

    async def close(self) -> None:
        """Store the part that the program gave last, if the master wants it; then stop."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work
            self._work = None
        if self._round is None or self._round.finished or self._round.alone:
            return
        with contextlib.suppress(WorkerError, OSError):
            await self._give(self._round)

    def receive(self, order: MergeRound) -> None:
        """Take in what the master says; what it says again shows that it has not heard."""
        if not 0 < order.epoch <= MOST_EPOCH:
            return
        if self._round is not None and order.epoch < self._round.epoch:
            return
        self._round = order
        for said in (self._given, self._merged):
            if said is not None and said.epoch == order.epoch:
                self._say(said)
        self._news.set()

    def heard(self, given: int, merged: int) -> None:
        """Take in what the program says: the newest part that it gave, and merge that it has."""
        if (given, merged) != self._programs:
            self._programs = given, merged
            self._news.set()

    @property
    def answer(self) -> MergeRound:
        """The answer for the program."""
        return self._answer

    def hear(self, request: iterator_pb2.ReportRequest) -> None:
        """Take in a report of the program."""
        self.heard(request.given_epoch, request.merged_epoch)

    def said(self) -> iterator_pb2.ReportResponse:
        """The next step, for the program."""
        answer = self._answer
        return iterator_pb2.ReportResponse(
            merge=iterator_pb2.MergeRound(
                epoch=answer.epoch,
                base_steps=answer.base_steps,
                quota=answer.quota,
                average=answer.average,
                give=answer.give,
                finished=answer.finished,
                forks=answer.forks,
                best=answer.best,
            )
        )

    async def _keep_up(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            order = self._round
            if order is None:
                continue
            try:
                await persistently(
                    lambda order=order: self._act(order),  # type: ignore[misc]
                    tries=_TRIES,
                    subject=f"merge of {self._key}",
                )
            except (WorkerError, OSError) as error:
                self._log.warning("merge failed", epoch=order.epoch, error=str(error))
                if isinstance(error, StoreUnavailable):
                    self._news.set()
            except Exception:
                # Whatever a task has left there must not end its merges without a word.
                self._log.exception("merge failed", epoch=order.epoch)

    async def _act(self, order: MergeRound) -> None:
        """Do what the master's word calls for, as far as the program has come."""
        before = order.epoch - 1
        if self._strayed(before, order.merge):
            return
        if before and not await self._holds(before, order.merge):
            await self._files.fetch_merge(before, order.merge)
            self._held = before, order.merge
        if order.average and not await self._there("parts", order.epoch):
            await self._files.fetch_parts(order.epoch, order.parts)
        if order is not self._round:
            return
        self._answer = order
        if not (order.finished or order.alone):
            await self._give(order)
        if order.average:
            await self._publish(order)

    def _strayed(self, epoch: int, name: str) -> bool:
        """Whether the program goes on from a merge of its own while another fork's counts.

        The master has this attempt stopped; until then the program is told nothing more.
        """
        own = self._merged
        if own is None or own.epoch != epoch or not name or own.digest == name:
            return False
        if ("other merge", epoch) not in self._refused:
            self._refused.add(("other merge", epoch))
            self._tell(f"eva: another fork's merge of epoch {epoch} counts, so this attempt ends")
        return True

    async def _holds(self, epoch: int, name: str) -> bool:
        """Whether the merge that counts lies there; one without a name is whichever does."""
        held = not name or self._held == (epoch, name)
        return held and await self._there("merged", epoch)

    async def _give(self, order: MergeRound) -> None:
        """Store the part of this epoch once the program has given it."""
        epoch = order.epoch
        done = self._given is not None and self._given.epoch == epoch
        if done or ("part", epoch) in self._refused or not await self._there("given", epoch):
            return
        try:
            steps, digest = await self._files.store_part(epoch, self._fork)
        except StoreUnavailable:
            raise
        except (WorkerError, OSError) as error:
            self._refuse("part", epoch, error)
            return
        self._given = PartGiven(self._key, epoch, steps, digest)
        self._say(self._given)

    async def _publish(self, order: MergeRound) -> None:
        """Store the merge of this epoch once the program, which leads, has made it."""
        epoch = order.epoch
        done = self._merged is not None and self._merged.epoch == epoch
        if done or ("merge", epoch) in self._refused or not await self._there("merged", epoch):
            return
        try:
            merge = await self._files.store_merge(epoch)
        except StoreUnavailable:
            raise
        except (WorkerError, OSError) as error:
            self._refuse("merge", epoch, error)
            return
        self._held = epoch, merge.digest
        self._merged = PartsMerged(
            self._key, epoch, merge.kept, merge.check_merged, merge.check_best, merge.digest
        )
        self._say(self._merged)

    def _refuse(self, what: str, epoch: int, error: Exception) -> None:
        self._refused = {refusal for refusal in self._refused if refusal[1] == epoch} | {
            (what, epoch)
        }
        self._tell(f"eva: the {what} of epoch {epoch} cannot be stored: {error}")

    async def _there(self, kind: str, epoch: int) -> bool:
        return await asyncio.to_thread(self._files.has, kind, epoch)


def merges_of(
    order: Order,
    objects: Objects,
    home: Path,
    *,
    say: Callable[[MergeNews], None],
    tell: Callable[[str], None],
) -> ForkMerges | None:
    """The merges of an attempt; `None` if it is no fork.

    Args:
        order: The order for the attempt.
        objects: The store.
        home: The attempt's directory.
        say: See `ForkMerges`.
        tell: See `ForkMerges`.
    """
    if order.fork is None:
        return None
    files = MergeFiles(objects, order.job, home / _FOLDER)
    return ForkMerges(order.key, order.fork.number, files, say=say, tell=tell)


def directories(order: Order, home: Path) -> list[Path]:
    """Directories that the program of an attempt expects, besides those of every program."""
    return [home / _FOLDER / kind for kind in KINDS] if order.fork else []


def environment(order: Order, home: Path) -> dict[str, str]:
    """Environment variables of an attempt, besides those of every program."""
    if order.fork is None:
        return {}
    return {**order.fork.environment, "EVA_MERGE_DIR": str(home / _FOLDER)}
