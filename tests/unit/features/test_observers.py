"""Features are told of every changed record, in their order, and are known by type alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.control.turn.turn import Feature, Features, Turn
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import SMALL, job

NAME = JobId("a-1")


class Diary(Feature):
    """Writes down what it is told, with the state's record of that moment."""

    wakes = frozenset({Wake.LATE})

    def __init__(self) -> None:
        self.pages: list[tuple[object, ...]] = []

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        self.pages.append(("rings", alarm.about, turn.now))

    def job_ends(self, turn: Turn, job: Job) -> None:
        self.pages.append(("ends", turn.state.jobs[job.id].state, job.state))

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        self.pages.append(("job", old and old.state, turn.state.jobs[job.id].state))

    def run_changes(self, turn: Turn, old: TaskRun, run: TaskRun) -> None:
        self.pages.append(("changes", turn.state.runs[run.id].state, run.state))

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        self.pages.append(("run", old and old.state, turn.state.runs[run.id].state))

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        self.pages.append(("instance", old and old.reason, instance.reason))


class Echo(Diary):
    """A second feature, of a type of its own, without alarms."""

    wakes = frozenset()


class Silent(Feature):
    """Overrides nothing."""


def opened(*features: Feature) -> Context:
    """A context of one pending job of one task."""
    state = State((SMALL,))
    context = Context(state, Settings(), Features(features))
    context.begin(Millis(5))
    context.put_job(Job(NAME, job("a", 1), Millis(0), (("pending", 0),)))
    return context


def test_a_new_job_has_no_old_record_and_one_that_ends_is_told_first() -> None:
    diary = Diary()
    context = opened(diary)
    ending = context.state.jobs[NAME].to(JobState.ENDING, context.now)
    context.put_job(ending)
    run = context.state.runs[RunId(f"{NAME}/0")]
    context.put_run(run.to(RunState.CANCELLED, context.now))
    over = ending.to(JobState.CANCELLED, context.now)
    context.put_job(over)
    context.put_job(replace(over, reason="told once"))
    assert [page for page in diary.pages if page[0] in ("job", "ends")] == [
        ("job", None, JobState.PENDING),
        ("job", JobState.PENDING, JobState.ENDING),
        ("ends", JobState.ENDING, JobState.CANCELLED),
        ("job", JobState.ENDING, JobState.CANCELLED),
        ("job", JobState.CANCELLED, JobState.CANCELLED),
    ]


def test_accounts_are_booked_before_a_task_changes_its_state_or_place_alone() -> None:
    diary = Diary()
    context = opened(diary)
    diary.pages.clear()
    run = context.state.runs[RunId(f"{NAME}/0")]
    context.put_run(replace(run, reason="as it was"))
    context.put_run(context.state.runs[run.id].to(RunState.CANCELLED, context.now))
    waiting, cancelled = RunState.WAITING, RunState.CANCELLED
    assert diary.pages == [
        ("run", waiting, waiting),
        ("changes", waiting, cancelled),
        ("run", waiting, cancelled),
    ]


def test_an_instance_is_told_with_its_old_record() -> None:
    diary = Diary()
    context = opened(diary)
    diary.pages.clear()
    instance = Instance(InstanceId("i"), SMALL, (("launching", 0),), Millis(0))
    context.put_instance(instance)
    context.put_instance(replace(instance, reason="why"))
    assert diary.pages == [("instance", None, ""), ("instance", "", "why")]


def test_features_are_told_in_order_and_looked_up_by_type() -> None:
    diary, echo = Diary(), Echo()
    echo.pages = diary.pages
    context = opened(Silent(), diary, echo)
    assert diary.pages == [("job", None, JobState.PENDING)] * 2
    assert context.memory(Diary) is diary
    assert context.memory(Echo) is echo
    with pytest.raises(KeyError):
        opened().memory(Diary)


def test_an_alarm_rings_at_the_feature_that_states_its_purpose() -> None:
    diary, echo = Diary(), Echo()
    context = opened(diary, echo)
    context.wake(Alarm.late(NAME))
    assert diary.pages[-1] == ("rings", NAME, Millis(5))
    assert len(echo.pages) == 1, "only the new job"


def test_a_feature_that_overrides_nothing_is_never_called() -> None:
    features = Features((Silent(), Diary()))
    assert len(features.run_changed) == len(features.job_changed) == 1
    assert not Features((Silent(),)).run_changed
