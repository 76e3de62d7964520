"""Removals of files among submissions, ends, failures and restarts: none takes what a job needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from eva_master.model.actions import Action, FindExpired, RemoveResults, Reply
from eva_master.model.events import Event, JobSubmitted, ResultsExpired, ResultsRemoved, Tick
from eva_master.model.job import CheckpointOrigin, JobSpec, Retry
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB
from tests.drawing import drawn
from tests.fakes.jobs import job
from tests.unit.features.test_results import HOUR, MINUTE, Master, reader

KEPT_MS = 2 * HOUR
VERBS = (
    *("submit", "submit", "outputs", "outputs", "checkpoints", "again", "arrive", "arrive"),
    *("end", "end", "remove", "remove", "carry out", "carry out", "answer", "answer", "answer"),
    *("fail", "lose", "restart", "wait", "wait"),
)
AT_ONCE = 20
"""Of numbers up to 30: a submission with a smaller one arrives at once."""
T = TypeVar("T")
Step = tuple[str, int]
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 30)), min_size=10, max_size=60)


class World:
    """A master, a store whose answers come late or never, and users who submit meanwhile.

    Attributes:
        stored: Jobs whose files are there.
        coming: Submissions that were checked and have not arrived, with the jobs that they read.
        orders: Removals that the store has been asked for and has not carried out.
        answers: Answers of the store on their way.
        promised: Jobs of which a user was told that the files are removed.
    """

    def __init__(self) -> None:
        self.master = Master(results_kept_ms=KEPT_MS)
        self.stored: set[JobId] = set()
        self.coming: list[tuple[JobSpec, tuple[JobId, ...]]] = []
        self.orders: list[JobId] = []
        self.answers: list[Event] = []
        self.promised: set[JobId] = set()
        self.reads: dict[JobId, tuple[JobId, ...]] = {}
        self._ended_ms: dict[JobId, int] = {}
        self._names = 0

    def take(self, verb: str, number: int) -> None:
        """Do one step; `number` chooses among what there is."""
        jobs, active = list(self.reads), self._active()
        match verb:
            case "submit":
                self._check(self._named(), (), number)
            case "outputs" | "checkpoints" | "again" if jobs:
                self._read(verb, _nth(jobs, number), number)
            case "arrive" if self.coming:
                self._arrive(*_popped(self.coming, number))
            case "end" if active:
                self._end(_nth(active, number))
            case "remove" if jobs:
                self._remove(_nth(jobs, number))
            case "restart":
                self.coming, self.orders, self.answers = [], [], []
                self._note(self.master.restart())
            case "wait":
                self._hear(Tick(), after_ms=(number % 10 + 1) * 20 * MINUTE)
            case _:
                self._store(verb, number)

    def _store(self, verb: str, number: int) -> None:
        """The store carries out an order or fails, or an answer of it arrives or is lost."""
        if verb in ("carry out", "fail") and self.orders:
            name = _popped(self.orders, number)
            self.stored -= {name} if verb == "carry out" else set()
            self.answers.append(ResultsRemoved(name, "it is away" if verb == "fail" else ""))
        elif verb in ("answer", "lose") and self.answers:
            answer = _popped(self.answers, number)
            if verb == "answer":
                self._hear(answer)

    def look(self) -> None:
        """Check that what active jobs have stored and read is there."""
        for name in self._active():
            assert name in self.stored, f"files of {name}, which has not ended, are gone"
            for read in self.reads[name]:
                assert read in self.stored, f"{read} is gone, which {name} reads"

    def settle(self) -> None:
        """End all jobs, and have the store do all that it is asked for."""
        for name in self._active():
            self._end(name)
        for _ in range(20):
            self._hear(Tick(), after_ms=MINUTE)
            while self.orders:
                self.take("carry out", 0)
            while self.answers:
                self.take("answer", 0)

    def _named(self) -> JobSpec:
        self._names += 1
        return job(f"j{self._names}", 1)

    def _read(self, how: str, source: JobId, number: int) -> None:
        spec = self._named()
        if how == "outputs":
            self._check(reader(spec.name, source), (source,), number)
        elif source not in self._active():
            origins = (CheckpointOrigin(source, (0,)),) if how == "checkpoints" else ()
            self._check(replace(spec, retry=Retry(source, None, origins)), (source,), number)

    def _check(self, spec: JobSpec, read: tuple[JobId, ...], number: int) -> None:
        """A job that reads files which are gone gets no further: the store says so."""
        if self.stored >= {*read} and number < AT_ONCE:
            self._arrive(spec, read)
        elif self.stored >= {*read}:
            self.coming.append((spec, read))

    def _arrive(self, spec: JobSpec, read: tuple[JobId, ...]) -> None:
        actions = self._hear(JobSubmitted(spec.name, spec))
        (reply,) = (action for action in actions if isinstance(action, Reply))
        if reply.error is None:
            assert reply.job is not None
            # A job that is done again from the start needs no files of the one before it.
            retried = spec.retry is not None and not spec.retry.origins
            self.reads[reply.job] = () if retried else read
            assert self.stored >= {*read}, f"{read} was gone when {reply.job} was accepted"
            self.stored.add(reply.job)

    def _end(self, name: JobId) -> None:
        self.master.end(name)
        self._ended_ms[name] = int(self.master.now)
        self._hear(Tick())

    def _remove(self, name: JobId) -> None:
        actions = self.master.remove(name)
        (reply,) = (action for action in actions if isinstance(action, Reply))
        if reply.error is None:
            self.promised.add(name)
        self._note(actions)

    def _active(self) -> list[JobId]:
        jobs = self.master.machine.state.jobs
        return [name for name in self.reads if jobs[name].state not in TERMINAL_JOB]

    def _hear(self, event: Event, *, after_ms: int = 1) -> Sequence[Action]:
        actions = self.master.handle(event, after_ms=after_ms)
        self._note(actions)
        return actions

    def _note(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, RemoveResults):
                self.orders.append(action.job)
            elif isinstance(action, FindExpired):
                over = [
                    name
                    for name, at in self._ended_ms.items()
                    if action.after_ms < at <= action.until_ms
                ]
                self.answers.append(ResultsExpired(tuple(over), Millis(action.until_ms)))


def _nth(choices: list[JobId], number: int) -> JobId:
    return choices[number % len(choices)]


def _popped(items: list[T], number: int) -> T:
    return items.pop(number % len(items))


@example([("submit", 0), ("end", 0), ("again", AT_ONCE), ("remove", 0), ("carry out", 0),
          ("answer", 1), ("arrive", 0)])  # fmt: skip
@example([("submit", 0), ("end", 0), ("wait", 9), ("outputs", 0), ("answer", 0), ("answer", 0),
          ("answer", 0), ("carry out", 0), ("end", 0)])  # fmt: skip
@example([("submit", 0), ("end", 0), ("remove", 0), ("fail", 0), ("answer", 1)])
@drawn(200)
@given(steps)
def test_no_removal_takes_files_that_a_job_needs(story: list[Step]) -> None:
    world = World()
    for verb, number in story:
        world.take(verb, number)
        world.look()
    world.settle()
    assert not world.promised & world.stored, "a user was told that these are removed"
