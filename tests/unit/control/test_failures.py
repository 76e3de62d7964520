"""Which failures count, and which end a job at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, ListCheckpoints, RequestPlan
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import (
    CheckpointsListed,
    Event,
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    RunReport,
    Tick,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import FailureRules, JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import LIVE, InstanceState, RunState

C = Family("c")
SIZE = Resources(0, 1000, 1024)
OFFERING = Offering(InstanceType("c.4", C, Resources(0, 4000, 4096)), Price(1_000_000))
BOX = InstanceId("i00001")
WORDS = "its log ends: ModuleNotFoundError: No module named 'nope'"
NO_ROOM = "the disk of its instance is full"
SECOND_MS = 1_000


class Stage:
    """One instance, on which all tasks of one job are placed; time is told."""

    def __init__(
        self,
        *,
        tasks: int = 1,
        gang: bool = False,
        retries: int = 3,
        settings: Settings = Settings(round_gap_ms=0),  # noqa: B008
        **codes: tuple[int, ...],
    ) -> None:
        self.now = 0
        self.machine = Machine(State((OFFERING,)), settings)
        self._answer(self.machine.recover(Millis(0)))
        task = TaskSpec(Workload("w"), Program("true"), ((C, SIZE),))
        kind = JobKind.GANG if gang else JobKind.ARRAY
        spec = JobSpec(
            *("job", "me", (task,) * tasks), kind=kind, failing=FailureRules(retries, **codes)
        )
        self._answer(self.machine.handle([JobSubmitted("command", spec)], Millis(0)))
        up = [InstanceUp(BOX, Millis(0)), WorkerRegistered(BOX, 1, OFFERING.type.capacity, ())]
        self._answer(self.machine.handle(up, Millis(0)))
        self.step()

    def _answer(self, actions: list[Action]) -> None:
        """Answer what is asked: no checkpoint is stored, all that wait go to the instance."""
        while events := [it for action in actions for it in self._answers(action)]:
            actions = self.machine.handle(events, Millis(self.now))

    def _answers(self, action: Action) -> Iterator[Event]:
        if isinstance(action, ListCheckpoints):
            none = tuple((run, ()) for run in action.runs)
            yield CheckpointsListed(action.number, action.job, none)
        elif isinstance(action, RequestPlan):
            here = self.machine.state.instances.get(BOX)
            there = here is None or here.state in LIVE
            where = BOX if here is not None else 0
            waiting = [it.id for it in action.snapshot.runs if it.instance is None]
            launches = () if here is not None else (NewInstance(0, OFFERING),)
            entries = tuple(Assign(it, where) for it in waiting) if there else ()
            yield PlanReady(action.round, Plan(launches if entries else (), entries), None)

    @property
    def job(self) -> Job:
        return self.machine.state.jobs[JobId("job-1")]

    def run(self, index: int = 0) -> TaskRun:
        return self.machine.state.runs[RunId(f"job-1/{index}")]

    def step(self, ms: int = 0) -> None:
        """Let time pass, with all that is due in it."""
        until = self.now + ms
        while (due := self.machine.next_alarm()) is not None and due <= until:
            self.now = max(self.now, due)
            self._answer(self.machine.handle([Tick()], Millis(self.now)))
        self.now = until
        self._answer(self.machine.handle([Tick()], Millis(self.now)))

    def begin(self, index: int = 0) -> None:
        """Wait out the pause, and have the next attempt run."""
        for _ in range(1000):
            if self.run(index).state is RunState.STARTING:
                break
            self.step(SECOND_MS)
        assert self.run(index).state is RunState.STARTING, self.job
        self.say(RunReport(self.run(index).id, self.run(index).attempt, Phase.RUNNING))

    def say(self, report: RunReport) -> None:
        self._answer(self.machine.handle([WorkerReported(BOX, 1, (report,))], Millis(self.now)))

    def end(self, index: int = 0, *, code: int = 1, after_ms: int = SECOND_MS, **more: Any) -> None:
        """Have the running attempt exit."""
        self.step(after_ms)
        run = self.run(index)
        report = RunReport(run.id, run.attempt, Phase.EXITED, exit_code=code, message=WORDS)
        self.say(replace(report, **more))


def test_a_program_that_fails_twice_alike_within_seconds_is_not_tried_again() -> None:
    stage = Stage()
    stage.begin()
    stage.end()
    assert (stage.job.state, stage.job.failures) == ("running", 1)
    stage.begin()
    stage.end()
    assert (stage.job.state, stage.job.failures, stage.job.exit_code) == ("failed", 2, 1)
    assert WORDS in stage.job.reason
    said = "; failed twice alike within 30 s, so not retried. To be retried, exit with 75"
    assert stage.job.reason == f"task job-1/0 exited with code 1: {WORDS}{said}"


@pytest.mark.parametrize(
    "second",
    [
        {"code": 2},
        {"message": "its log ends: something else"},
        {"after_ms": 60 * SECOND_MS},
        {"generation": 1},
        {"code": -9},
        {"code": 137},
    ],
)
def test_a_program_that_fails_otherwise_is_tried_again(second: dict[str, Any]) -> None:
    stage = Stage()
    stage.begin()
    stage.end()
    stage.begin()
    stage.end(**second)
    assert (stage.job.state, stage.job.failures) == ("running", 2)


@pytest.mark.parametrize("code", [75, -9, 137, 143, -15, 130, 129])
def test_a_signal_or_a_wish_to_be_tried_again_may_come_as_often_as_there_are_retries(
    code: int,
) -> None:
    stage = Stage()
    for failures in (1, 2, 3):
        stage.begin()
        stage.end(code=code)
        assert (stage.job.state, stage.job.failures) == ("running", failures)
    stage.begin()
    stage.end(code=code)
    assert stage.job.state == "failed"
    assert stage.job.reason.endswith("no retries left")


LONG = "its log ends: ...{}" + "x y " * 80 + "no such file: data.csv"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "pid 17 at 0x7f00a1: no such file: data.csv",
            "pid 4711 at 0x7fff: no such file: data.csv",
        ),
        ('File "a.py", line 7 | Bus error', 'File "a.py", line 1234 | Bus error'),
        ("<Thing at 7f3acc00d1e8> is closed", "<Thing at 7fbad0e8> is closed"),
        ("/tmp/tmpxkq_wd/data is missing", "/tmp/tmpabq3wz/data is missing"),
        ("run 1f0c-abcd-e2 is unknown", "run 88e1-cafe-0b is unknown"),
        ("12:00:01.5Z loss nan", "23:59:59.25Z loss nan"),
        # A long line is cut where its end is so many characters away.
        (LONG.format("xx y x"), LONG.format("y x x")),
    ],
)
def test_numbers_and_names_by_chance_do_not_make_a_failure_another_one(
    first: str, second: str
) -> None:
    stage = Stage()
    stage.begin()
    stage.end(message=f"its log ends: {first}", code=127)
    stage.begin()
    stage.end(message=f"its log ends: {second}", code=127)
    assert stage.job.state == "failed"


MODULE = "ModuleNotFoundError: No module named 'nope'"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (126, "its log ends: bash: ./prep.sh: Permission denied"),
        (127, "its log ends: bash: line 1: trian: command not found"),
        (1, f'its log ends: File "a.py", line 3, in <module> | import nope | {MODULE}'),
        (1, f"out of memory; its log ends: {MODULE}"),
        (1, "its log ends: ImportError: cannot import name 'x' from 'y' (/home/me/y.py)"),
        (1, f"its log ends: {MODULE} | E0000 launch: worker 0 failed"),
        (2, "its log ends: python: can't open file '/w/trian.py': [Errno 2] No such file or dir"),
        (1, "its log ends: /usr/bin/python: No module named trian"),
        (1, "its log ends: Error: Cannot find module '/w/a.js' | code: 'MODULE_NOT_FOUND', | }"),
        (2, 'its log ends: Can\'t open perl script "a.pl": No such file or directory'),
        (1, "its log ends: ruby: No such file or directory -- a.rb (LoadError)"),
        (2, "its log ends: Fatal error: cannot open file 'a.R': No such file or directory"),
        (1, "its log ends: Error: Could not find or load main class Train"),
        (2, "its log ends: sh: 0: cannot open prep.sh: No such file"),
    ],
)
def test_what_is_certain_to_fail_again_is_not_tried_a_third_time(code: int, message: str) -> None:
    stage = Stage()
    for _ in range(2):
        stage.begin()
        stage.end(code=code, message=message)
    assert (stage.job.state, stage.job.failures) == ("failed", 2)
    assert "failed twice alike within 30 s, so not retried" in stage.job.reason
    # A shell that finds no program cannot be told to exit with another code.
    assert ("exit with 75" in stage.job.reason) == (code < 126)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (1, "its log ends: FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'"),
        (1, "its log ends: ConnectionRefusedError: [Errno 111] Connection refused"),
        (1, f"its log ends: {MODULE} | TimeoutError: no answer from the licence server"),
        (1, "its log ends: warning: ImportError: apex is not there | bye"),
        (139, "its log ends: Segmentation fault"),
        (255, ""),
        (134, "its log ends: terminate called"),
        (None, "no such object: blobs/ab"),
    ],
)
def test_all_other_failures_use_up_the_retries(code: int | None, message: str) -> None:
    stage = Stage(retries=3)
    for failures in (1, 2, 3):
        stage.begin()
        stage.end(code=code, message=message, never_started=code is None)
        assert (stage.job.state, stage.job.failures) == ("running", failures)
    stage.begin()
    stage.end(code=code, message=message, never_started=code is None)
    assert stage.job.state == "failed"
    assert stage.job.reason.endswith("; no retries left")


@pytest.mark.parametrize("gang", [False, True])
def test_codes_that_the_file_names_end_the_retries_at_once(gang: bool) -> None:
    tasks = 2 if gang else 1
    stage = Stage(tasks=tasks, gang=gang, fail_on=(3, 137))
    for index in range(tasks):
        stage.begin(index)
    stage.end(0, code=137, after_ms=3_600 * SECOND_MS)
    if gang:
        stage.end(1, code=143, stopped=True)
    assert (stage.job.state, stage.job.failures, stage.job.exit_code) == ("failed", 1, 137)
    assert stage.job.reason.endswith("; 137 (SIGKILL) is in `fail_on`, so not retried")


def test_codes_that_the_file_names_are_retried_though_they_are_certain() -> None:
    stage = Stage(retries=2, retry_on=(1, 127))
    for code in (127, 127):
        stage.begin()
        stage.end(code=code)
        assert stage.job.state == "running"
    stage.begin()
    stage.end(code=127)
    assert (stage.job.state, stage.job.failures) == ("failed", 3)
    assert stage.job.reason.endswith("; no retries left")


def test_the_instances_faults_are_excused_whatever_the_file_names() -> None:
    stage = Stage(retries=0, fail_on=(1,))
    stage.begin()
    stage.end(blameless=True, message=NO_ROOM)
    assert (stage.job.state, stage.job.failures) == ("running", 0)


def test_tasks_of_an_array_that_fail_alike_are_each_tried_again() -> None:
    stage = Stage(tasks=2)
    for index in (0, 1):
        stage.begin(index)
    for index in (0, 1):
        stage.end(index)
    assert (stage.job.state, stage.job.failures) == ("running", 2)
    stage.begin(1)
    stage.end(1)
    assert stage.job.outcome == "failed"


@pytest.mark.parametrize("gang", [False, True])
def test_failures_that_are_the_instances_fault_are_never_charged(gang: bool) -> None:
    tasks = 2 if gang else 1
    stage = Stage(tasks=tasks, gang=gang, retries=0)
    for _ in range(4):
        for index in range(tasks):
            stage.begin(index)
        for index in reversed(range(tasks)):
            # The others of a gang fail for want of the first.
            here = {"blameless": True, "message": NO_ROOM} if index == 0 else {}
            stage.end(index, **here)
        state = "pending" if gang else "running"  # the only task of an array comes and goes
        assert (stage.job.state, stage.job.failures) == (state, 0)
        assert "does not count" in stage.job.reason
        assert NO_ROOM in stage.job.reason
    # The pause grows, up to a minute.
    paused = stage.now
    stage.begin()
    assert 30 * SECOND_MS <= stage.now - paused <= 61 * SECOND_MS


def test_an_instance_on_which_nothing_can_run_is_given_back() -> None:
    stage = Stage(retries=0)
    for _ in range(5):
        stage.begin()
        stage.end(blameless=True, message=NO_ROOM)
    assert stage.machine.state.instances[BOX].state is InstanceState.TERMINATING
    assert "5 tasks in a row" in stage.machine.state.instances[BOX].reason


def test_an_instance_on_which_something_runs_is_kept() -> None:
    stage = Stage(tasks=2, retries=0)
    stage.begin(1)
    for _ in range(6):
        stage.begin(0)
        stage.end(0, blameless=True, message=NO_ROOM)
    assert stage.machine.state.instances[BOX].state is InstanceState.READY


def test_words_of_any_length_are_cut() -> None:
    stage = Stage()
    stage.begin()
    stage.end(message="\x1b[2J" + "x" * 100_000)
    assert len(stage.job.reason) < 1_000
    assert stage.job.reason.isprintable()


def test_the_record_says_how_each_attempt_ended() -> None:
    stage = Stage()
    stage.begin()
    stage.end(code=3, after_ms=40 * SECOND_MS)
    stage.begin()
    second_ms = stage.run().attempt_started_ms
    assert second_ms > 40 * SECOND_MS
    stage.end(code=0)
    assert [(past.number, past.why) for past in stage.run().past] == [
        (1, "it exited with code 3"),
        (2, "it succeeded"),
    ]
    assert [(past.started_ms, past.ended_ms) for past in stage.run().past] == [
        (0, 40 * SECOND_MS),
        (second_ms, stage.now),
    ]


def test_only_the_last_ends_of_attempts_are_on_record() -> None:
    stage = Stage(retries=20)
    for code in range(1, 12):
        stage.begin()
        stage.end(code=code, after_ms=40 * SECOND_MS)
    assert [past.number for past in stage.run().past] == list(range(4, 12))
