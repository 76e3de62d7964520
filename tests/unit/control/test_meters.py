"""From agents' reports to windows: what opens one, what completes one, what is never measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.rpc.workers.messages import reports, samples
from eva_master.control.measure import learn
from eva_master.control.measure.throughput import Meters
from eva_master.control.state.store import State
from eva_master.learning.colocation import key, recorded
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire._proto import worker_pb2 as wpb
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, RunId, Workload
from tests.fakes.jobs import CATALOG, CPU, LARGE, job, task
from tests.fakes.learned.lessons import lessons_of

BOX = InstanceId("box")
WINDOW_MS = 60_000
RUN = TaskRun(RunId("a/0"), JobId("a"), 0, (("running", 0),), 1, BOX, BOX)


class Feed:
    """A task run, and a meter that its reports are given to."""

    def __init__(self, steps: int = 0) -> None:
        self.meters = Meters(WINDOW_MS)
        self.run = replace(RUN, progress=Progress(steps))
        self.windows: list[tuple[int, float]] = []

    def report(self, at: int, steps: int) -> None:
        """A report arrives; completed windows are noted."""
        progress, complete = self.meters.sample(self.run, Progress(steps), Millis(at))
        self.run = replace(self.run, progress=progress)
        if complete:
            self.windows.append((at, progress.rate))


def test_a_window_is_measured_over_whole_steps() -> None:
    feed = Feed(steps=5)
    for second in range(0, 400):
        feed.report(second * 1_000, 5 + second // 25)
    # Opened by the step at 25 s; those at 100 s, 175 s, ... are the first after each minute.
    assert feed.windows[:2] == [(100_000, 0.04), (175_000, 0.04)]


def test_up_to_the_first_step_and_the_warm_up_after_it_nothing_is_measured() -> None:
    feed = Feed()
    feed.meters.began(RUN.id)
    for second in range(0, 45):
        feed.report(second * 1_000, 0)
    for second in range(45, 75):  # slow at first
        feed.report(second * 1_000, second - 44)
    for second in range(75, 200):
        feed.report(second * 1_000, 30 + (second - 74) * 10)
    assert feed.windows == [(135_000, 10.0), (195_000, 10.0)]


def test_metrics_stay_until_the_next_attempt_reports_some() -> None:
    """Nor does the end of an attempt that had nothing left to do take them away."""
    loss, run = (("loss", 0.5),), replace(RUN, progress=Progress(500, 500, (("loss", 0.5),), 2.0))
    progress, _ = Meters(WINDOW_MS).sample(run, Progress(500, 500), Millis(1))
    assert (progress.metrics, progress.rate) == (loss, 2.0)
    assert Progress(501, metrics=(("loss", 0.4),)).after(progress).metrics == (("loss", 0.4),)


def test_an_attempt_that_resumes_warms_up_too() -> None:
    feed = Feed(steps=500)
    feed.meters.began(RUN.id)
    for second in range(0, 92):
        feed.report(second * 1_000, 500 + second)
    assert [at for at, _ in feed.windows] == [91_000]


def test_a_checkpoint_within_a_window_is_left_out() -> None:
    feed = Feed()
    steps = 0
    for second in range(0, 62):
        steps += 0 if 20 <= second < 45 else 10
        feed.report(second * 1_000, steps)
    assert feed.windows == [(60_000, 10.0)]


def test_steps_that_were_lost_begin_a_window_anew() -> None:
    feed = Feed()
    feed.report(0, 100)
    feed.report(30_000, 40)
    feed.report(61_000, 101)
    assert feed.windows == []
    feed.report(121_000, 161)
    assert feed.windows == [(121_000, 1.0)]


def test_a_task_that_stalls_has_no_rate_after_ten_windows() -> None:
    feed = Feed()
    feed.report(0, 1)
    feed.report(WINDOW_MS, 61)
    feed.report(WINDOW_MS * 11 - 1, 61)
    assert feed.run.progress.rate == 1
    feed.report(WINDOW_MS * 11, 61)
    assert feed.run.progress.rate == 0


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 2**53)), max_size=60),
)
def test_whatever_is_reported_a_rate_is_finite_and_not_negative(
    fresh: bool, heard: list[tuple[int, int]]
) -> None:
    feed, now = Feed(), 0
    if fresh:
        feed.meters.began(RUN.id)
    for elapsed, steps in heard:
        now += elapsed
        feed.report(now, steps)
        assert math.isfinite(feed.run.progress.rate)
        assert feed.run.progress.rate >= 0
    assert all(rate > 0 for _, rate in feed.windows)


# -- the border


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_figures_that_no_program_reaches_are_dropped(steps: int, total: int) -> None:
    sample = wpb.Sample(run_id="a/0", attempt=1, steps=steps, total_steps=total)
    plausible = steps <= 2**53 and total <= 2**53
    assert [it[2].steps for it in samples([sample])] == ([steps] if plausible else [])
    report = wpb.TaskReport(run_id="a/0", attempt=1, phase=wpb.PHASE_RUNNING, progress=sample)
    assert (reports([report])[0].progress is not None) == plausible


# -- what windows teach


def _state(*rates: float, stated: int | None = None, gang: bool = False) -> State:
    """Task runs on one instance: of a gang, or of a job each."""
    state = State(CATALOG)
    box = Instance(BOX, LARGE, (("ready", 0),), Millis(0), up_ms=Millis(0))
    state.put_instance(box)
    names = "abc"[: len(rates)]
    jobs = [names] if gang else list(names)
    for name in jobs:
        spec = replace(job(name, 2), tasks=tuple(task(2, one, stated) for one in name))
        state.put_job(Job(JobId(name), spec, Millis(0), (("running", 0),)))
    for number, (name, rate) in enumerate(zip(names, rates, strict=True)):
        owner, index = (names, number) if gang else (name, 0)
        run = replace(RUN, id=RunId(f"{owner}/{index}"), job=JobId(owner), index=index)
        state.put_run(replace(run, progress=Progress(rate=rate)))
    return state


def _teach(state: State, run: str) -> bool:
    return learn.from_window(state, state.runs[RunId(run)], Millis(7))


def test_a_window_alone_teaches_the_rate_even_where_one_is_stated() -> None:
    for stated in (None, 3 * MILLION):
        state = _state(2.0, stated=stated)
        assert _teach(state, "a/0")
        assert not _teach(state, "a/0"), "the same again is no news"
        assert lessons_of(state).standalone.lookup(Workload("a"), CPU) == 2.0
        assert lessons_of(state).throughput.observed == ()


def test_a_task_that_runs_on_without_a_step_is_known_to_report_none() -> None:
    state = _state(0.0)
    run = replace(state.runs[RunId("a/0")], started_ms=Millis(1_000))
    assert learn.unprofiled(state, run)
    later = {"since": Millis(1_000), "now": Millis(9_000)}
    assert not learn.from_silence(state, replace(run, progress=Progress(steps=1)), **later)
    assert not learn.from_silence(state, replace(run, started_ms=Millis(1_001)), **later)
    waits = replace(run, history=(("waiting", 0),))
    assert not learn.from_silence(state, waits, **later)
    assert learn.from_silence(state, run, **later)
    assert not learn.from_silence(state, run, **later), "it is known already"
    assert not learn.unprofiled(state, run)
    assert lessons_of(state).standalone.lookup(Workload("a"), CPU) is None


def test_a_task_that_a_rate_is_stated_of_needs_no_profile() -> None:
    state = _state(0.0, stated=MILLION)
    assert not learn.unprofiled(state, state.runs[RunId("a/0")])


def test_a_window_in_company_teaches_how_it_slows_down() -> None:
    state = _state(8.0, 10.0, stated=10 * MILLION)
    assert _teach(state, "a/0")
    assert lessons_of(state).throughput.observed == (((Workload("a"), (Workload("b"),)), 800_000),)
    assert lessons_of(state).evidence[key(Workload("a"), [Workload("b")])].at_ms == 7
    assert not lessons_of(state).standalone.rates


def test_a_task_of_unknown_rate_teaches_nothing_in_company() -> None:
    state = _state(8.0, 10.0)
    assert not _teach(state, "a/0")
    assert state.learned == State(CATALOG).learned


def test_a_gang_is_one_measurement() -> None:
    state = _state(8.0, 8.0, stated=10 * MILLION, gang=True)
    assert not _teach(state, "ab/1")
    assert _teach(state, "ab/0")
    assert recorded(lessons_of(state).throughput, key(Workload("a"), [Workload("b")])) == 800_000
    assert len(lessons_of(state).throughput.observed) == 1


def test_a_gang_is_measured_by_the_first_member_that_reports() -> None:
    state = _state(0.0, 8.0, stated=10 * MILLION, gang=True)
    assert _teach(state, "ab/1")


def test_a_gang_of_which_one_rate_is_unknown_teaches_nothing() -> None:
    state = _state(8.0, 8.0, stated=10 * MILLION, gang=True)
    record = state.jobs[JobId("ab")]
    tasks = (record.spec.tasks[0], replace(record.spec.tasks[1], throughput=()))
    state.put_job(replace(record, spec=replace(record.spec, tasks=tasks)))
    assert not _teach(state, "ab/0")
    assert lessons_of(state).throughput.observed == ()


def test_a_gang_on_two_families_teaches_no_rate() -> None:
    state = _state(8.0, 8.0, gang=True)
    other = replace(LARGE, type=replace(LARGE.type, name="d.8", family=Family("d")))
    far = Instance(InstanceId("far"), other, (("ready", 0),), Millis(0), up_ms=Millis(0))
    state.put_instance(far)
    state.put_run(replace(state.runs[RunId("ab/1")], instance=far.id, target=far.id))
    _teach(state, "ab/0")
    assert not lessons_of(state).standalone.rates
    state.put_instance(replace(far, offering=LARGE))
    _teach(state, "ab/0")
    assert list(lessons_of(state).standalone.rates) == [(Workload("a"), CPU)]


def test_a_program_faster_than_stated_is_not_slowed_down() -> None:
    state = _state(12.0, 10.0, stated=10 * MILLION)
    assert _teach(state, "a/0")
    assert recorded(lessons_of(state).throughput, key(Workload("a"), [Workload("b")])) == MILLION


@pytest.mark.parametrize("rate", [1e-9, 1e12])
def test_extreme_rates_stay_in_range(rate: float) -> None:
    state = _state(rate, 10.0, stated=10 * MILLION)
    _teach(state, "a/0")
    assert all(1 <= ppm <= MILLION for _, ppm in lessons_of(state).throughput.observed)
