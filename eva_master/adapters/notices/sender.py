"""Sends notices, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.notices.choosing import JobFacts, notices
from eva_master.adapters.notices.outbox import NoticeOutbox, WaitingNotice
from eva_master.adapters.notices.posting import Answer, Poster, Resolve, addresses_of
from eva_master.adapters.notices.receivers import Receiver, ReceiverStatus, Trial
from eva_master.adapters.notices.signing import headers
from eva_master.model.changes import Changes
from eva_master.model.feed import FeedEvent
from eva_master.model.notices import Notice
from eva_master.model.records import Job
from eva_master.ports import Clock
from eva_master.ports.reading import Archive, FeedPage, ReadModel, TaskPage
from eva_wire.values.errors import EvaError, NotFound, NoticeNotSent
from eva_wire.values.ids import JobId, Millis

KEPT_MS = 86_400_000
"""Notices that wait for longer are dropped, and events that are older make none."""
_LONGEST_PAUSE_MS = 600_000
_MOST_DOUBLINGS = 20
_QUIET_MS = 600_000
"""From one notice about a topic of the cluster to the next; what happens meanwhile is counted."""
_PAGE = 500
_PAGES_AT_ONCE = 20
_BATCH, _BATCH_S = 20, 10.0
"""Notices that one receiver is sent in a row, and for how long, until that is stored."""
_LONGEST_WAIT_S = 60.0
_TROUBLE_S = 5.0
_FIRST_MODEL_S = 5.0
_STOP_S = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the outbox is looked at, and how soon a notice is tried again.

    Attributes:
        collecting_s: Events of so many seconds are read together.
        storing_s: Seconds from one look at the outbox to the next at the least.
        first_pause_ms: About how long a receiver is left alone that took none; the pause doubles
            with each further try.
    """

    collecting_s: float = 1.0
    storing_s: float = 0.2
    first_pause_ms: int = 2_000

    def pause_ms(self, failures: int) -> int:
        """How long to wait after so many failures before, with a jitter that spreads the tries."""
        longest = min(self.first_pause_ms << min(failures, _MOST_DOUBLINGS), _LONGEST_PAUSE_MS)
        return random.randint(longest // 2, longest)  # noqa: S311 - no secret


USUAL_PACE = Pace()


@dataclass(slots=True)
class _Line:
    """A receiver with how it fares.

    Attributes:
        failures: Failures in a row.
        not_before_ms: When it is tried again.
        failing_ms: When the first of the failures was.
        reason: Reason of the last one.
        task: Sends it notices now.
    """

    receiver: Receiver
    poster: Poster
    failures: int = 0
    not_before_ms: Millis = Millis(0)
    failing_ms: Millis | None = None
    reason: str = ""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a notice that was taken; without `answer` and `error` it was not tried."""

    line: _Line
    waiting: WaitingNotice
    answer: Answer | None = None
    error: NoticeNotSent | None = None


class NoticeSender:
    """Reads the feed of events, keeps the outbox, and sends what is in it.

    Nothing of it happens in the control loop's thread, and no receiver waits for another one. A
    notice is stored before it is sent, so that it is sent at least once; its id tells a receiver
    that it had it already.

    Args:
        receivers: The receivers.
        outbox: The outbox, for receivers of these names.
        gateway: Tells that there are events, and has the newest model.
        archive: Has the events.
        clock: The loop's time.
        cluster: Name of the cluster.
        resolve: Looks names up.
        wall: Seconds since the epoch.
        pace: How often it looks, and tries again.
    """

    def __init__(
        self,
        receivers: Sequence[Receiver],
        outbox: NoticeOutbox,
        *,
        gateway: LoopGateway,
        archive: Archive,
        clock: Clock,
        cluster: str,
        resolve: Resolve = addresses_of,
        wall: Callable[[], float] = time.time,
        pace: Pace = USUAL_PACE,
    ) -> None:
        self._lines = {
            receiver.name: _Line(receiver, Poster(receiver.target, receiver.trust, resolve))
            for receiver in receivers
        }
        self._wanted = {receiver.name: receiver.wanted for receiver in receivers}
        self._outbox, self._gateway, self._archive = outbox, gateway, archive
        self._clock, self._cluster, self._wall = clock, cluster, wall
        self._pace = pace
        self._outcomes: deque[_Outcome] = deque()
        self._quiet: dict[tuple[str, str], Millis] = {}
        self._dropped = outbox.dropped.total()
        self._statuses = self._status()
        self._database = ThreadPoolExecutor(1, thread_name_prefix="notices-db")
        self._loop = asyncio.new_event_loop()
        self._woken, self._stopped = asyncio.Event(), asyncio.Event()
        self._news = False
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)

    @property
    def statuses(self) -> tuple[ReceiverStatus, ...]:
        """How each receiver fares; any thread may ask."""
        return self._statuses

    def start(self) -> None:
        """Begin to send, on a thread."""
        self._gateway.observe(self._observe)
        self._thread.start()

    def stop(self) -> None:
        """End; what was not sent stays in the outbox."""

        def end() -> None:
            self._stopped.set()
            self._woken.set()

        if self._thread.is_alive():
            self._call(end)
            self._thread.join(_STOP_S)

    async def try_out(self, name: str = "") -> list[Trial]:
        """Send a notice as a trial, beside the outbox; for any event loop.

        Args:
            name: Name of the receiver; empty for all.

        Raises:
            NotFound: There is no such receiver.
        """
        if name and name not in self._lines:
            names = ", ".join(self._lines) or "none: see `notify` in the settings of the master"
            raise NotFound(f"there is no receiver {name[:80]!r}", hint=f"receivers: {names}")
        lines = [self._lines[name]] if name else list(self._lines.values())
        tried = asyncio.gather(*(self._on_own_loop(line) for line in lines))
        return await tried

    async def _on_own_loop(self, line: _Line) -> Trial:
        future = asyncio.run_coroutine_threadsafe(self._try(line), self._loop)
        return await asyncio.wrap_future(future)

    async def _try(self, line: _Line) -> Trial:
        receiver, began = line.receiver, time.monotonic()
        at_ms = Millis(int(self._wall() * 1000))
        text = "a trial: this cluster can send notices here"
        notice = Notice(secrets.token_hex(16), receiver.name, at_ms, "", "trial", text)
        answer, error = None, None
        try:
            answer = await self._post(line, notice)
        except NoticeNotSent as failure:
            error = failure
        took_ms = round((time.monotonic() - began) * 1000)
        reason = _why(answer, error)
        return Trial(
            receiver.name,
            receiver.target.shown,
            accepted=not reason,
            status=0 if answer is None else answer.status,
            took_ms=took_ms,
            reason=reason,
            hint="" if error is None else error.hint,
        )

    # -- on the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._work())
        finally:
            self._database.shutdown(wait=True)
            self._loop.close()

    async def _work(self) -> None:
        while not self._stopped.is_set():
            if (pause_s := await self._look()) > self._pace.storing_s:
                self._woken.set()
            await _or_time(self._stopped, pause_s)
            await _or_time(self._woken, self._wait_s())
            self._woken.clear()
            if self._news:
                self._news = False
                await _or_time(self._stopped, self._pace.collecting_s)
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(EvaError):
            await self._in_database(self._store_outcomes)

    async def _look(self) -> float:
        """Take in what happened, and send what is due; returns how long to pause, in seconds."""
        try:
            await self._in_database(self._take_in)
        except TimeoutError:
            return _TROUBLE_S  # The control loop has not begun yet.
        except EvaError as error:
            log.warning("notices wait for the journal", reason=error.message)
            return _TROUBLE_S
        except Exception:
            log.exception("notices are not made for now")
            return _LONGEST_WAIT_S
        now = self._clock.now()
        for line in self._lines.values():
            # The last ones may have failed, which is not applied yet.
            if line.task is None and line.not_before_ms <= now and not self._outcomes:
                taken = self._outbox.take(line.receiver.name, now, 1 if line.failures else _BATCH)
                if taken:
                    line.task = self._loop.create_task(self._send(line, taken))
        self._statuses = self._status()
        return self._pace.storing_s

    def _wait_s(self) -> float:
        """How long nothing is due that is not being sent, in seconds."""
        due_ms = [
            max(due, line.not_before_ms)
            for name, line in self._lines.items()
            if line.task is None and (due := self._outbox.due_ms(name)) is not None
        ]
        left_s = (min(due_ms) - self._clock.now()) / 1000 if due_ms else _LONGEST_WAIT_S
        return min(max(left_s, 0.0), _LONGEST_WAIT_S)

    async def _send(self, line: _Line, taken: Sequence[WaitingNotice]) -> None:
        """Send some notices to a receiver, one after the other."""
        end, tries_on, rest = self._loop.time() + _BATCH_S, True, deque(taken)
        try:
            while rest and tries_on and self._loop.time() < end:
                waiting = rest[0]
                answer, error = None, None
                try:
                    answer = await self._post(line, waiting.notice)
                except NoticeNotSent as failure:
                    error = failure
                rest.popleft()
                self._outcomes.append(_Outcome(line, waiting, answer, error))
                tries_on = answer is not None and (answer.accepted or answer.about_notice)
        except Exception:
            log.exception("a notice is not sent for now", receiver=line.receiver.name)
            line.not_before_ms = Millis(self._clock.now() + _LONGEST_PAUSE_MS)
        finally:
            self._outcomes.extend([_Outcome(line, waiting) for waiting in rest])
            line.task = None
            self._woken.set()

    async def _post(self, line: _Line, notice: Notice) -> Answer:
        receiver = line.receiver
        body = receiver.form.body(notice, self._cluster)
        made = headers(
            notice.id,
            body.content_type,
            body.content,
            secret=receiver.key(),
            now_s=int(self._wall()),
        )
        return await line.poster.post(made, body.content)

    def _status(self) -> tuple[ReceiverStatus, ...]:
        return tuple(
            ReceiverStatus(
                name,
                line.receiver.target.shown,
                len(self._outbox.of(name)),
                self._outbox.sent[name],
                self._outbox.dropped[name],
                line.failing_ms,
                line.reason,
            )
            for name, line in self._lines.items()
        )

    def _observe(self, changes: Changes) -> None:
        """Note that there are events; called in the control loop's thread."""
        if changes.feed and not self._news:
            self._news = True
            self._call(self._woken.set)

    def _call(self, fn: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed by now.
            self._loop.call_soon_threadsafe(fn)

    async def _in_database(self, fn: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._database, fn)

    # -- on the thread of the database; the loop waits for it ------------------------------------

    def _take_in(self) -> None:
        """Apply what became of notices, and make those of new events."""
        self._store_outcomes()
        if not self._lines:
            return
        now = self._clock.now()
        for waiting in self._outbox.expired(Millis(now - KEPT_MS)):
            self._outbox.drop(waiting)
        if self._outbox.read is None:
            self._outbox.read = self._outbox.newest_event()
            self._outbox.flush()
        for _ in range(_PAGES_AT_ONCE):
            events = self._archive.events(FeedPage(after=self._outbox.read, most=_PAGE))
            if not events:
                break
            try:
                self._make(events, now)
            except (EvaError, TimeoutError):
                raise
            except Exception:
                log.exception("no notices are made of some events", until=events[-1].number)
            self._outbox.read = events[-1].number
            self._outbox.flush()
            if len(events) < _PAGE:
                break
        else:
            self._news = True
            self._call(self._woken.set)
        self._tell_of_drops()

    def _make(self, events: Sequence[FeedEvent], now: Millis) -> None:
        model = self._gateway.latest(_FIRST_MODEL_S)
        around = JobFacts(
            self._cluster,
            job=lambda name: model.jobs.get(JobId(name)),
            tasks=lambda job: _tasks(model, job, now),
            wall_ms=model.wall.of,
            repeated=self._outbox.told_before,
        )
        recent = [event for event in events if event.at_ms >= now - KEPT_MS]
        made = notices(recent, self._wanted, around)
        due: dict[str, Millis] = {}
        for notice in made:
            if notice.counts_along:
                key = notice.receiver, notice.topic
                due[notice.id] = max(now, self._quiet.get(key, now))
                self._quiet[key] = Millis(due[notice.id] + _QUIET_MS)
        self._outbox.add(made, now, due)

    def _store_outcomes(self) -> None:
        """Apply what became of notices that were taken."""
        while self._outcomes:
            self._apply(self._outcomes.popleft())
        self._outbox.flush()

    def _apply(self, outcome: _Outcome) -> None:
        line, waiting = outcome.line, outcome.waiting
        if outcome.answer is None and outcome.error is None:
            self._outbox.give_back(waiting)
            return
        now, name = self._clock.now(), line.receiver.name
        reason = _why(outcome.answer, outcome.error)
        if not reason:
            self._outbox.done(waiting)
            if line.failing_ms is not None:
                log.info("a receiver takes notices again", receiver=name)
            line.failures, line.not_before_ms = 0, Millis(0)
            line.failing_ms, line.reason = None, ""
            return
        self._outbox.postpone(waiting, Millis(now + self._pace.pause_ms(waiting.tries)))
        if outcome.answer is not None and outcome.answer.about_notice:
            log.warning("a receiver refuses a notice", receiver=name, reason=reason)
            return
        if line.failing_ms is None:
            line.failing_ms = now
            url = line.receiver.target.shown
            log.warning("a receiver takes no notices", receiver=name, url=url, reason=reason)
        line.reason = reason
        asked_ms = 0 if outcome.answer is None else outcome.answer.pause_s * 1000
        line.not_before_ms = Millis(now + max(asked_ms, self._pace.pause_ms(line.failures)))
        line.failures += 1

    def _tell_of_drops(self) -> None:
        dropped = self._outbox.dropped.total()
        if dropped > self._dropped:
            log.warning(
                "notices were dropped: too many wait, or they waited for a day",
                notices=dropped - self._dropped,
                waiting=len(self._outbox),
            )
        self._dropped = dropped


def _why(answer: Answer | None, error: NoticeNotSent | None) -> str:
    """Why a notice was not taken; empty if it was."""
    if error is not None:
        return error.message
    assert answer is not None
    if answer.accepted:
        return ""
    if 300 <= answer.status < 400:
        return f"it answers {answer.status}, and redirects are not followed"
    return f"it answers {answer.status}"


def _tasks(model: ReadModel, job: Job, now: Millis) -> Mapping[str, int]:
    if job.spec.size <= 1 or job.id not in model.jobs:
        return {}
    states = model.record(job.id, now, TaskPage(first=0, most=1)).states
    return {state.value: count for state, count in states.items() if count}


async def _or_time(event: asyncio.Event, wait_s: float) -> None:
    """Wait until an event is set, or for a time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await event.wait()
