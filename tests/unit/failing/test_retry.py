"""Ended jobs that are done again: which tasks, under which indices, from which checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.rpc.server.admission.retried_tasks import retry_of
from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.control.readside.publisher import Publisher
from eva_master.control.state.store import State
from eva_master.model.actions import Action, ListCheckpoints, StartTask, TaskOrder
from eva_master.model.events import CheckpointsListed, JobSubmitted, PlanReady
from eva_master.model.job import CheckpointOrigin, Retry
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.ports.reading import TaskPage
from eva_wire.values.errors import NothingToRetry
from eva_wire.values.ids import JobId, Millis, RunId, run_id
from eva_wire.values.states import RunState
from tests.fakes.hand_driven import CATALOG, SETTINGS, SLOW, Cluster, Phase

ARRAY = "kind: array\nretries: 0\nrun: train\nresources: {cpus: 1, memory: 1GiB}\n"
GANG = "retries: 0\nrun: train\nresources: {cpus: 1, memory: 1GiB}\ntasks: 2\n"
OLD, NEW = JobId("job-1"), JobId("job-2")
MANY = 20


class Watched(Cluster):
    """The same, with what it tells workers and asks the object store."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__(state)
        self.orders: list[TaskOrder] = []
        self.listings: list[ListCheckpoints] = []

    def handle(self, *events: object, at: int) -> list[Action]:
        actions = super().handle(*events, at=at)
        self.orders += [it.order for it in actions if isinstance(it, StartTask)]
        self.listings += [it for it in actions if isinstance(it, ListCheckpoints)]
        return actions

    def place(self, *, at: int) -> list[TaskOrder]:
        """Place what waits, each task on an instance of its own; returns the orders to start."""
        before, self.orders = set(self.state.instances), []
        while self.request is not None:
            request, self.request = self.request, None
            waiting = [run.id for run in request.snapshot.runs if run.instance is None]
            launches = tuple(NewInstance(key, SLOW) for key in range(len(waiting)))
            places = tuple(Assign(run, key) for key, run in enumerate(waiting))
            self.handle(PlanReady(request.round, Plan(launches, places), None), at=at)
        for instance in sorted(set(self.state.instances) - before):
            self.register(instance, at=at)
        return self.orders

    def answer(self, stored: dict[RunId, tuple[int, ...]], *, at: int) -> list[TaskOrder]:
        """Answer the questions about checkpoints; returns the orders to start."""
        self.orders = []
        while self.listings:
            asked = self.listings.pop(0)
            names = (*asked.runs, *asked.origins)
            told = tuple((run, stored.get(run, ())) for run in names)
            self.handle(CheckpointsListed(asked.number, asked.job, told), at=at)
        return self.orders

    def retried(self, job: JobId = OLD, *, failed: bool = True) -> Retry:
        return retry_of(self.state.jobs[job], list(self.state.members(job)), failed=failed)

    def submit_again(self, retry: Retry, *, at: int = 61_000) -> None:
        spec = replace(self.state.jobs[retry.job].spec, retry=retry)
        self.handle(JobSubmitted(f"retry-{at}", spec), at=at)

    def end(self, job: JobId, codes: dict[int, int], *, at: int = 60_000) -> None:
        for index, code in codes.items():
            self.say(run_id(job, index), Phase.EXITED, at=at, exit_code=code)


def failed_array() -> Watched:
    """An array of twenty tasks has ended, of which tasks 4 and 17 failed."""
    cluster = Watched()
    cluster.start(f"{ARRAY}tasks: {MANY}\n", on=SLOW)
    cluster.end(OLD, dict.fromkeys(range(MANY), 0) | {4: 1, 17: 9})
    assert cluster.state.jobs[OLD].state == "failed"
    return cluster


def failed_gang() -> Watched:
    cluster = Watched()
    cluster.submit(GANG, name="job")
    cluster.place(at=1_000)
    for index in (0, 1):
        cluster.say(run_id(OLD, index), Phase.RUNNING, at=1_500)
    cluster.end(OLD, {0: 1, 1: 1}, at=2_000)
    assert cluster.state.jobs[OLD].state == "failed"
    return cluster


def test_the_failed_tasks_are_done_again_under_their_indices() -> None:
    cluster = failed_array()
    retry = cluster.retried()
    assert retry == Retry(OLD, (4, 17), (CheckpointOrigin(OLD, (4, 17)),))
    cluster.submit_again(retry)
    view = cluster.job_view(NEW)
    assert view.array.size == 2
    assert set(view.runs) == {"job-2/4", "job-2/17"}
    orders = cluster.place(at=62_000)
    told = {it.run: (it.index, it.tasks, it.origins) for it in orders}
    assert told == {
        "job-2/4": (4, MANY, ("job-1/4",)),
        "job-2/17": (17, MANY, ("job-1/17",)),
    }
    assert [it.program for it in orders] == [cluster.state.jobs[OLD].spec.tasks[4].program] * 2


def test_the_new_job_ends_with_its_own_tasks() -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    cluster.place(at=62_000)
    assert [run.id for run in cluster.state.members(NEW)] == ["job-2/4", "job-2/17"]
    cluster.end(NEW, {4: 0}, at=70_000)
    assert cluster.state.jobs[NEW].outcome is None
    assert RunId("job-2/5") not in cluster.state.runs
    cluster.end(NEW, {17: 0}, at=71_000)
    assert cluster.state.jobs[NEW].state == "succeeded"
    assert cluster.state.totals.runs == {RunState.SUCCEEDED: MANY, RunState.FAILED: 2}


def test_what_goes_on_from_a_checkpoint_teaches_nothing_of_run_times() -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    cluster.place(at=62_000)
    for name in ("job-2/4", "job-2/17"):
        cluster.say(RunId(name), Phase.RUNNING, at=62_000)
    cluster.end(NEW, {4: 0}, at=63_000)
    assert cluster.state.runs[RunId("job-2/4")].took_ms == 0
    assert not cluster.state.finished_tasks.of(cluster.state.jobs[NEW])


def test_all_tasks_are_done_again_and_those_that_had_succeeded_begin_anew() -> None:
    cluster = failed_array()
    retry = cluster.retried(failed=False)
    assert retry == Retry(OLD, None, (CheckpointOrigin(OLD, (4, 17)),))
    cluster.submit_again(retry)
    origins = {it.index: it.origins for it in cluster.place(at=62_000)}
    none: dict[int, tuple[str, ...]] = dict.fromkeys(range(MANY), ())
    assert origins == none | {4: ("job-1/4",), 17: ("job-1/17",)}


def test_a_retry_that_failed_goes_on_from_the_first_job_that_has_a_checkpoint() -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    cluster.place(at=62_000)
    cluster.end(NEW, {4: 1, 17: 0}, at=70_000)
    again = cluster.retried(NEW)
    assert again == Retry(NEW, (4,), (CheckpointOrigin(NEW, (4,)), CheckpointOrigin(OLD, (4,))))
    cluster.submit_again(again, at=71_000)
    (order,) = cluster.place(at=72_000)
    assert (order.run, order.origins) == ("job-3/4", ("job-2/4", "job-1/4"))


def test_all_of_a_retry_are_the_tasks_that_it_had() -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    cluster.place(at=62_000)
    cluster.end(NEW, {4: 0, 17: 0}, at=70_000)
    assert cluster.retried(NEW, failed=False) == Retry(NEW, (4, 17), ())


def test_a_job_of_which_no_task_failed_has_nothing_to_retry() -> None:
    cluster = Watched()
    cluster.start(f"{ARRAY}tasks: 2\n", on=SLOW)
    cluster.end(OLD, {0: 0, 1: 0})
    with pytest.raises(NothingToRetry, match="no task of job-1 failed"):
        cluster.retried()
    assert cluster.retried(failed=False) == Retry(OLD, None, ())


def test_a_master_that_restarts_goes_on_with_the_same_tasks(tmp_path: Path) -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    with SqlJournal.open(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        journal.load()
        journal.commit(cluster.machine.take_changes())
        again = State.restored(CATALOG, journal.load())
        record = SqlArchive(journal.engine).job(NEW, TaskPage(0, 100))
        failed = SqlArchive(journal.engine).job(OLD, TaskPage(0, 100, failed=True))
    assert record is not None
    assert [run.id for run in record.runs] == ["job-2/4", "job-2/17"]
    assert sum(record.states.values()) == 2
    assert [run.id for run in again.members(NEW)] == ["job-2/4", "job-2/17"]
    assert again.jobs[NEW].spec.retry == cluster.retried()
    assert again.active_load.tasks == 2
    # A job that the control loop has forgotten is retried as well.
    assert failed is not None
    assert retry_of(failed.job, failed.runs, failed=True) == cluster.retried()


def test_readers_see_the_tasks_that_there_are() -> None:
    cluster = failed_array()
    cluster.submit_again(cluster.retried())
    cluster.state.begin_publishing()
    model = Publisher(cluster.state, SETTINGS).publish(Millis(61_000))

    def page(first: int | None, most: int = 100) -> list[str]:
        return [run.id for run in model.record(NEW, Millis(61_000), TaskPage(first, most)).runs]

    assert model.record(NEW, Millis(61_000)).states == {RunState.WAITING: 2}
    assert [run.id for run in model.record(NEW, Millis(61_000)).runs] == ["job-2/4", "job-2/17"]
    assert page(0, 17) == ["job-2/4"]
    assert page(5) == ["job-2/17"]
    assert page(17, 1) == ["job-2/17"]
    assert page(18) == []


def test_a_gang_is_done_again_as_a_whole_from_a_checkpoint_that_all_have() -> None:
    cluster = failed_gang()
    cluster.listings.clear()
    retry = cluster.retried()
    assert retry == Retry(OLD, None, (CheckpointOrigin(OLD, (0, 1)),))
    cluster.submit_again(retry, at=3_000)
    cluster.place(at=3_000)
    (asked,) = cluster.listings
    assert asked.origins == ("job-1/0", "job-1/1")
    assert asked.give_up_after is None, "what the ended job has stored stays"
    stored = {RunId("job-1/0"): (3, 4), RunId("job-1/1"): (2, 3)}
    orders = cluster.answer(stored, at=3_000)
    told = [(it.run, it.resume, it.checkpoint_of) for it in orders]
    assert told == [("job-2/0", 3, "job-1/0"), ("job-2/1", 3, "job-1/1")]


def test_a_gang_of_which_one_member_publishes_has_its_checkpoint_for_all() -> None:
    cluster = failed_gang()
    cluster.listings.clear()
    cluster.submit_again(cluster.retried(), at=3_000)
    cluster.place(at=3_000)
    orders = cluster.answer({RunId("job-1/0"): (6, 7)}, at=3_000)
    assert [(it.resume, it.checkpoint_of) for it in orders] == [(7, "job-1/0")] * 2


def test_a_gang_that_has_checkpoints_of_its_own_goes_on_from_these() -> None:
    cluster = failed_gang()
    cluster.listings.clear()
    cluster.submit_again(replace(cluster.retried()), at=3_000)
    cluster.place(at=3_000)
    old = {RunId("job-1/0"): (6, 7)}
    cluster.answer(old, at=3_000)
    for index in (0, 1):
        cluster.say(run_id(NEW, index), Phase.RUNNING, at=3_500)
    for index in (0, 1):
        cluster.say(run_id(NEW, index), Phase.EXITED, at=4_000, exit_code=1, blameless=True)
    cluster.handle(at=200_000)
    orders = cluster.answer(old | {RunId("job-2/0"): (8,)}, at=200_000)
    assert [(it.attempt, it.resume, it.checkpoint_of) for it in orders] == [
        (2, 8, None),
        (2, 8, "job-2/0"),
    ]


def test_a_gang_that_was_not_failed_has_no_failed_tasks() -> None:
    cluster = Watched()
    cluster.submit(GANG, name="job")
    with pytest.raises(NothingToRetry):
        cluster.retried()
