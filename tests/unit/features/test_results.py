"""Files of ended jobs go on command or in time: written down first, repeated, never in use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, FindExpired, RemoveResults, Reply
from eva_master.model.events import (
    CancelRequested,
    Event,
    JobSubmitted,
    RemovalRequested,
    ResultsExpired,
    ResultsRemoved,
    Tick,
)
from eva_master.model.job import CheckpointOrigin, JobOutputs, JobSpec, Retry
from eva_wire.values.errors import InvalidJob, InvalidRequest, JobActive
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.jobs import CATALOG, job

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
FIRST, SECOND = JobId("train-1"), JobId("next-2")


class Master:
    """A control loop over a journal, which may be started again."""

    def __init__(self, **settings: object) -> None:
        self.journal = MemoryJournal()
        self.settings = Settings(**settings)
        self.now = Millis(DAY)
        self.machine = Machine(State(CATALOG), self.settings)
        self._commands = 0

    def restart(self) -> list[Action]:
        self.machine = Machine(State.restored(CATALOG, self.journal.load()), self.settings)
        return self._written(self.machine.recover(self.now))

    def handle(self, *events: Event, after_ms: int = 1) -> list[Action]:
        self.now = Millis(self.now + after_ms)
        return self._written(self.machine.handle(events, self.now))

    def _written(self, actions: list[Action]) -> list[Action]:
        self.journal.commit(self.machine.take_changes())
        return actions

    def submit(self, spec: JobSpec) -> Reply:
        self._commands += 1
        return reply(self.handle(JobSubmitted(f"c{self._commands}", spec)))

    def end(self, name: JobId) -> None:
        self.handle(CancelRequested(f"end-{name}", name))
        assert self.machine.state.jobs[name].state is JobState.CANCELLED

    def remove(self, name: JobId) -> list[Action]:
        return self.handle(RemovalRequested("r", name, "me"))

    @property
    def pending(self) -> dict[JobId, str]:
        """The removals that a master would find if it began now."""
        return dict(State.restored(CATALOG, self.journal.load()).removals.pending)


def reply(actions: list[Action]) -> Reply:
    (answer,) = (action for action in actions if isinstance(action, Reply))
    return answer


def ordered(actions: list[Action]) -> list[JobId]:
    return [action.job for action in actions if isinstance(action, RemoveResults)]


def asked(actions: list[Action]) -> list[FindExpired]:
    return [action for action in actions if isinstance(action, FindExpired)]


def reader(name: str = "next", source: JobId = FIRST) -> JobSpec:
    """A job that reads the outputs of another one."""
    spec = job(name, 1)
    task = spec.tasks[0]
    program = replace(task.program, outputs=(JobOutputs("in", source),))
    return replace(spec, tasks=(replace(task, program=program),))


def test_a_removal_is_written_down_before_it_is_ordered_and_until_it_is_done() -> None:
    master = Master()
    master.submit(job("train", 1))
    master.end(FIRST)
    actions = master.remove(FIRST)
    assert reply(actions).error is None
    assert ordered(actions) == [FIRST]
    assert master.pending == {FIRST: "me"}
    master.handle(ResultsRemoved(FIRST))
    assert master.pending == {}
    assert ordered(master.handle(Tick(), after_ms=HOUR)) == []


def test_a_removal_goes_on_after_a_restart_and_after_a_failure() -> None:
    master = Master()
    master.submit(job("train", 1))
    master.end(FIRST)
    master.remove(FIRST)
    assert ordered(master.restart()) == [FIRST]
    assert ordered(master.handle(ResultsRemoved(FIRST, "the store is away"))) == []
    assert master.pending == {FIRST: "me"}
    assert ordered(master.handle(Tick(), after_ms=MINUTE)) == [FIRST]
    master.handle(ResultsRemoved(FIRST))
    assert ordered(master.restart()) == []


def test_a_repeated_command_orders_nothing_twice() -> None:
    master = Master()
    master.submit(job("train", 1))
    master.end(FIRST)
    assert ordered(master.remove(FIRST)) == [FIRST]
    again = master.remove(FIRST)
    assert (reply(again).error, ordered(again)) == (None, [])
    master.handle(ResultsRemoved(FIRST))
    # The files that an agent has stored since go, too.
    assert ordered(master.remove(FIRST)) == [FIRST]


def test_files_of_a_job_that_has_not_ended_stay() -> None:
    master = Master()
    master.submit(job("train", 1))
    refused = reply(master.remove(FIRST)).error
    assert isinstance(refused, JobActive)
    assert "eva cancel train-1" in refused.hint
    assert master.pending == {}


@pytest.mark.parametrize("how", ["outputs", "checkpoints"])
def test_files_that_an_active_job_reads_stay(how: str) -> None:
    master = Master()
    master.submit(job("train", 1))
    master.end(FIRST)
    origin = CheckpointOrigin(FIRST, (0,))
    retry = replace(job("next", 1), retry=Retry(FIRST, None, (origin,)))
    assert master.submit(reader() if how == "outputs" else retry).error is None
    for _ in range(2):
        refused = reply(master.remove(FIRST)).error
        assert isinstance(refused, InvalidRequest)
        assert "read by next-2" in refused.message
        master.restart()
    master.end(SECOND)
    assert ordered(master.remove(FIRST)) == [FIRST]


def test_a_job_that_would_read_files_that_go_or_have_gone_is_refused() -> None:
    master = Master()
    master.submit(job("train", 1))
    master.end(FIRST)
    master.remove(FIRST)
    for _ in range(2):
        refused = master.submit(reader()).error
        assert isinstance(refused, InvalidJob)
        assert "what train-1 had stored has been removed" in refused.message
        master.handle(ResultsRemoved(FIRST))


def test_files_expire_in_the_order_of_ends_a_hundred_at_a_time() -> None:
    master = Master(results_kept_ms=2 * HOUR)
    (question,) = asked(master.restart())
    assert (question.after_ms, question.until_ms) == (0, master.now - 2 * HOUR)
    jobs = tuple(JobId(f"a-{number}") for number in range(1, 101))
    actions = master.handle(ResultsExpired(jobs, Millis(500)))
    assert ordered(actions) == list(jobs)
    assert asked(actions) == []
    assert master.pending == dict.fromkeys(jobs, "")
    (question,) = asked(master.handle(ResultsRemoved(jobs[0])))
    assert question.after_ms == 500
    # A restart forgets neither what is pending nor how far the master has looked.
    actions = master.restart()
    assert ordered(actions) == list(jobs[1:])
    assert [question.after_ms for question in asked(actions)] == [500]
    master.handle(ResultsExpired((), Millis(700)), *map(ResultsRemoved, jobs[1:]))
    assert asked(master.handle(Tick(), after_ms=HOUR - 2)) == []
    (question,) = asked(master.handle(Tick(), after_ms=1))
    assert (question.after_ms, question.until_ms) == (700, master.now - 2 * HOUR)


def test_files_that_are_read_expire_once_their_reader_has_ended() -> None:
    master = Master(results_kept_ms=2 * HOUR)
    master.submit(job("train", 1))
    master.end(FIRST)
    master.submit(reader())
    assert ordered(master.handle(ResultsExpired((FIRST,), Millis(500)))) == []
    assert master.pending == {FIRST: ""}
    assert ordered(master.handle(Tick(), after_ms=HOUR)) == []
    actions = master.handle(CancelRequested("e", SECOND))
    assert ordered(actions + master.handle(Tick())) == [FIRST]


def test_nothing_expires_where_results_are_kept_for_ever() -> None:
    master = Master(results_kept_ms=None)
    assert asked(master.handle(Tick(), after_ms=400 * DAY)) == []
    assert asked(master.restart()) == []


def test_a_journal_of_an_earlier_release_has_no_removals() -> None:
    master = Master()
    master.submit(job("train", 1))
    assert master.machine.state.removals.pending == {}
