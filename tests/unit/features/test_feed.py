"""The feed tells each change of a job, a task and an instance once, and little of large arrays."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.changes import Changes
from eva_master.model.events import (
    CancelRequested,
    DrainRequested,
    InstanceGone,
    InstanceInterrupted,
    InstanceUp,
    LaunchFailed,
    Phase,
    PlanReady,
    SuspendRequested,
    Tick,
    WorkerRegistered,
)
from eva_master.model.feed import FeedEvent
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.hand_driven import CATALOG, JOB, SETTINGS, SIZE, SLOW, Cluster

I1 = InstanceId("i00001")
FED = replace(SETTINGS, feed=True)


class Fed(Cluster):
    """A cluster whose events are taken as a journal would take them."""

    def __init__(self, state: State | None = None, settings: Settings = FED) -> None:
        super().__init__(state, settings)
        self.feed: list[FeedEvent] = []
        self.written = Changes()

    def news(self) -> list[tuple[str, str, str]]:
        """Kind, subject and sentence of the events since the last call."""
        self.written = self.machine.take_changes()
        self.feed += self.written.feed
        return [
            (event.kind.value, event.task or event.job or event.instance, event.text)
            for event in self.written.feed
        ]


def kinds(cluster: Fed) -> list[str]:
    return [kind for kind, *_ in cluster.news()]


def test_the_life_of_a_job_and_its_instance_in_order() -> None:
    cluster = Fed()
    cluster.start(JOB, on=SLOW, at=1_000)
    assert cluster.news() == [
        ("submitted", "job-1", "submitted by me: 1 task"),
        ("launching", "i00001", "launching slow.1 at $0.3570/h"),
        ("up", "i00001", "slow.1 at $0.3570/h is up"),
        ("placed", "job-1/0", "starts on i00001 (slow.1)"),
    ]
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=60_000, exit_code=0)
    kind, subject, text = cluster.news()[0]
    assert (kind, subject, text) == ("succeeded", "job-1", "succeeded")
    assert [event.number for event in cluster.feed] == list(range(1, len(cluster.feed) + 1))
    assert {event.owner for event in cluster.feed if event.job} == {"me"}
    assert cluster.state.counters.events == len(cluster.feed)


def test_numbers_go_on_after_a_restart() -> None:
    cluster = Fed()
    cluster.submit(JOB, name="first", at=0)
    cluster.news()
    changes = Changes(jobs=tuple(cluster.state.jobs.values()), values=cluster.written.documents())
    again = Fed(State.restored(CATALOG, changes))
    again.machine.recover(Millis(5_000))
    assert again.news() == [("leader", "", "a master has taken charge")]
    assert [event.number for event in again.feed] == [cluster.feed[-1].number + 1]


def test_a_journal_that_was_put_back_is_told_once_with_numbers_above_all_that_were_read() -> None:
    cluster = Fed()
    cluster.submit(JOB, name="first", at=0)
    cluster.news()
    changes = Changes(jobs=tuple(cluster.state.jobs.values()), values=cluster.written.documents())
    state = State.restored(CATALOG, changes)
    state.wall, state.journal_ms = WallClock(ahead_ms=1_000), Millis(1_795_000_000_000)
    again = Fed(state, replace(FED, restored_mark=7))
    again.machine.recover(Millis(1_795_100_000_000))
    ((kind, subject, text),) = again.news()
    assert (kind, subject) == ("leader", "")
    assert text.startswith(
        "a master has taken charge with a journal put back to 2026-11-18 11:06:41 UTC: "
    )
    # A follower has read events that the backup lacks, and asks for those after them.
    assert again.feed[-1].number > cluster.feed[-1].number + 10_000
    changes = Changes(jobs=tuple(again.state.jobs.values()), values=again.written.documents())
    later = Fed(State.restored(CATALOG, changes), replace(FED, restored_mark=7))
    later.machine.recover(Millis(1_795_200_000_000))
    assert later.news() == [("leader", "", "a master has taken charge")]


def test_failures_say_why() -> None:
    cluster = Fed()
    cluster.start(JOB + "retries: 1\n", on=SLOW)
    cluster.news()
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=60_000, exit_code=3)
    (failure,) = [event for event in cluster.news() if event[0] == "failed"]
    assert failure[1] == "job-1"
    assert failure[2].startswith("failure 1: ")
    assert "3" in failure[2]


def test_a_task_that_loses_its_instance_and_one_that_is_taken_back() -> None:
    cluster = Fed()
    cluster.start(JOB, on=SLOW)
    cluster.news()
    cluster.handle(
        InstanceInterrupted(I1, cluster.state.sessions[I1], Millis(180_000), "spot"), at=60_000
    )
    assert ("revoked" in kinds(cluster)) is True
    cluster.handle(InstanceGone(I1, Millis(0), Millis(180_000), "reclaimed"), at=180_000)
    news = cluster.news()
    assert ("lost", "job-1/0", "attempt 1 ended with i00001") in news
    assert [subject for kind, subject, _ in news if kind == "gone"] == ["i00001"]


def test_a_launch_that_the_cloud_refuses() -> None:
    cluster = Fed()
    cluster.submit(JOB, name="job")
    request = cluster.request
    assert request is not None
    plan = Plan((NewInstance(0, SLOW),), (Assign(RunId("job-1/0"), 0),))
    cluster.handle(PlanReady(request.round, plan, None), at=0)
    cluster.news()
    cluster.handle(LaunchFailed(I1, Millis(9_000), "no capacity"), at=1_000)
    assert ("refused", "i00001", "slow.1 was not launched: no capacity") in cluster.news()


def test_what_users_order_is_told_with_its_author() -> None:
    cluster = Fed()
    cluster.start(JOB, on=SLOW)
    cluster.news()
    cluster.handle(SuspendRequested("c1", JobId("job-1"), "ann"), at=1_000)
    assert ("suspended", "job-1", "suspended by ann") in cluster.news()
    cluster.handle(DrainRequested("c2", I1, False, "op"), at=2_000)
    assert "draining" in kinds(cluster)
    cluster.handle(CancelRequested("c3", JobId("job-1"), "me"), at=3_000)
    cluster.say(RunId("job-1/0"), Phase.EXITED, at=4_000, exit_code=0)
    assert "cancelled" in kinds(cluster)


def test_a_large_array_is_told_in_few_events() -> None:
    cluster = Fed()
    cluster.submit(JOB + "kind: array\ntasks: 300\n", name="job")
    request = cluster.request
    assert request is not None
    waiting = [run.id for run in request.snapshot.runs]
    launches = tuple(NewInstance(key, SLOW) for key in range(100))
    places = tuple(Assign(run, key // 3) for key, run in enumerate(waiting))
    cluster.handle(PlanReady(request.round, Plan(launches, places), None), at=0)
    cluster.news()
    come = [
        event
        for number, instance in enumerate(cluster.state.live, 1)
        for event in (
            InstanceUp(instance, Millis(1_000)),
            WorkerRegistered(instance, number, SIZE, ()),
        )
    ]
    cluster.handle(*come, at=1_000)
    placed = [event for event in cluster.news() if event[0] == "placed"]
    assert len(placed) == 21
    assert placed[-1] == ("placed", "job-1", "280 more of its tasks alike")
    assert len({subject for _, subject, _ in placed}) == 21


def test_a_job_is_late_once_and_an_ended_one_never() -> None:
    cluster = Fed()
    cluster.submit(JOB + "deadline: {within: 10m}\nduration: 1m\n", name="late", at=0)
    cluster.submit(JOB + "deadline: {within: 10m}\nduration: 1m\n", name="done", at=0)
    cluster.news()
    cluster.handle(CancelRequested("c", JobId("done-2"), "me"), at=1_000)
    cluster.news()
    cluster.handle(Tick(), at=599_999)
    assert "late" not in kinds(cluster)
    cluster.handle(Tick(), at=600_000)
    late = [event for event in cluster.news() if event[0] == "late"]
    assert late == [("late", "late-1", "its deadline has passed")]
    cluster.handle(Tick(), at=900_000)
    assert "late" not in kinds(cluster)


def test_a_master_that_starts_in_between_tells_it_too_but_not_again() -> None:
    cluster = Fed()
    cluster.submit(JOB + "deadline: {within: 10m}\nduration: 1m\n", name="job", at=0)
    cluster.news()
    changes = Changes(jobs=tuple(cluster.state.jobs.values()))
    for start, told in ((300_000, 1), (700_000, 0)):
        again = Fed(State.restored(CATALOG, changes))
        again.machine.recover(Millis(start))
        again.handle(Tick(), at=800_000)
        assert kinds(again).count("late") == told


def test_nothing_is_written_where_nobody_reads() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.start(JOB, on=SLOW)
    assert cluster.machine.take_changes().feed == ()
    assert cluster.state.counters.events == 0
