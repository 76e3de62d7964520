"""Events make one notice for each receiver, job, topic and failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from eva_master.adapters.notices.choosing import JobFacts, notices
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.notices import Notice, Wanted
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.notices import Topic
from tests.fakes.rpc.server import spec

ALL = Wanted(frozenset(Topic), asked=False)
ASKED = Wanted()


def job(name: str, *asked: Topic, owner: str = "ada") -> Job:
    return Job(JobId(name), replace(spec(name, owner=owner), notify=asked), Millis(0), ())


def around(
    *jobs: Job,
    tasks: Mapping[str, int] | None = None,
    repeated: Callable[[FeedEvent], bool] = lambda _: False,
) -> JobFacts:
    by_name = {job.id: job for job in jobs}
    return JobFacts(
        "test",
        lambda name: by_name.get(JobId(name)),
        lambda _: tasks or {},
        lambda at_ms: Millis(at_ms + 5),
        repeated,
    )


def event(number: int, kind: FeedKind, about: str = "", **more: object) -> FeedEvent:
    owner = "ada" if about else ""
    return FeedEvent(number, Millis(number), kind, about, owner=owner, **more)  # type: ignore[arg-type]


def told(made: list[Notice]) -> list[tuple[str, str, str]]:
    return [(notice.receiver, notice.job or notice.instance, notice.topic) for notice in made]


def test_a_job_that_asks_is_told_of_to_those_who_listen_to_jobs() -> None:
    asking, silent = job("asking", Topic.END), job("silent")
    receivers = {"jobs": ASKED, "all": ALL, "none": Wanted(asked=False)}
    events = [event(1, FeedKind.SUCCEEDED, "asking"), event(2, FeedKind.SUCCEEDED, "silent")]
    made = notices(events, receivers, around(asking, silent))
    assert told(made) == [
        ("all", "asking", "end"),
        ("jobs", "asking", "end"),
        ("all", "silent", "end"),
    ]


def test_each_topic_is_asked_for_by_itself() -> None:
    kinds = {
        Topic.END: (FeedKind.SUCCEEDED, FeedKind.CANCELLED, FeedKind.FAILED),
        Topic.LATE: (FeedKind.LATE,),
        Topic.CAPPED: (FeedKind.CAPPED,),
        Topic.FAILURE: (FeedKind.FAILED,),
    }
    for topic, told_of in kinds.items():
        asked = job("j", topic)
        for kind in FeedKind:
            made = notices([event(1, kind, "j")], {"jobs": ASKED}, around(asked))
            assert bool(made) is (kind in told_of), (topic, kind)


def test_ten_thousand_tasks_that_fail_are_one_notice_with_a_count_of_tasks() -> None:
    events = [
        event(number, FeedKind.FAILED, "j", task=f"j/{number}", text="exit 1", failure=1)
        for number in range(1, 10_001)
    ]
    states = {"failed": 9_000, "waiting": 1_000}
    (notice,) = notices(events, {"all": ALL}, around(job("j"), tasks=states))
    assert (notice.count, notice.task, notice.tasks) == (10_000, "j/1", states)


def test_each_failure_is_told_once_and_an_end_at_once_stands_for_both() -> None:
    def failing(number: int, failure: int) -> FeedEvent:
        return event(number, FeedKind.FAILED, "j", task="j/0", failure=failure)

    both = [failing(1, 1), failing(2, 2), failing(3, 2)]
    made = notices(both, {"all": ALL}, around(job("j")))
    assert [(notice.topic, notice.count) for notice in made] == [("failure", 1), ("failure", 2)]
    made = notices([*both, event(4, FeedKind.FAILED, "j")], {"all": ALL}, around(job("j")))
    assert [(notice.topic, notice.kind) for notice in made] == [("end", "failed")]
    seen = around(job("j"), repeated=lambda event: event.failure == 1)
    assert len(notices(both, {"all": ALL}, seen)) == 1


def test_the_end_of_a_failed_job_is_a_failure_for_those_who_ask_for_failures() -> None:
    failures = Wanted(frozenset({Topic.FAILURE}), asked=False)
    made = notices([event(1, FeedKind.FAILED, "j")], {"pager": failures}, around(job("j")))
    assert told(made) == [("pager", "j", "end")]
    assert not notices([event(1, FeedKind.SUCCEEDED, "j")], {"pager": failures}, around(job("j")))


def test_a_receiver_of_some_owners_hears_of_no_other_job() -> None:
    vision = replace(ALL, owners=OwnerPatterns(("*@vision",)))
    mine, other = job("a", owner="ana@vision"), job("b")
    events = [
        replace(event(1, FeedKind.SUCCEEDED, "a"), owner="ana@vision"),
        event(2, FeedKind.SUCCEEDED, "b"),
        event(3, FeedKind.REFUSED, instance="i-1"),
    ]
    made = notices(events, {"vision": vision}, around(mine, other))
    assert told(made) == [("vision", "a", "end"), ("vision", "i-1", "refused")]


def test_what_many_tasks_and_instances_do_is_no_news() -> None:
    events = [
        event(1, FeedKind.SUSPENDED, "j", task="j/0"),
        event(2, FeedKind.PLACED, "j", task="j/0"),
        event(3, FeedKind.LAUNCHING, instance="i-1"),
        event(4, FeedKind.SUSPENDED, "j"),
    ]
    assert told(notices(events, {"all": ALL}, around(job("j")))) == [("all", "j", "suspended")]


def test_a_job_that_is_forgotten_is_told_of_by_its_id() -> None:
    (notice,) = notices([event(1, FeedKind.FAILED, "j")], {"all": ALL}, around())
    assert (notice.job, notice.name, notice.owner, notice.at_ms) == ("j", "", "ada", 6)
    assert not notices([event(1, FeedKind.FAILED, "j")], {"jobs": ASKED}, around())


def test_the_id_of_a_delivery_is_the_same_when_events_are_read_again() -> None:
    events = [event(1, FeedKind.FAILED, "j"), event(2, FeedKind.SUCCEEDED, "k")]
    receivers = {"a": ALL, "b": ALL}
    first = [notice.id for notice in notices(events, receivers, around())]
    assert first == [notice.id for notice in notices(events, receivers, around())]
    assert len(set(first)) == 4


def test_each_budget_is_told_by_itself_and_that_of_an_owner_to_who_may_hear_of_it() -> None:
    ana = replace(ALL, owners=OwnerPatterns(("ana",)))
    events = [
        event(1, FeedKind.BUDGET, text="80 % of the budget of tenant vision are spent"),
        FeedEvent(2, Millis(2), FeedKind.BUDGET, owner="ben", text="ben has spent $5"),
        FeedEvent(3, Millis(3), FeedKind.BUDGET, owner="ana", text="ana has spent $5"),
    ]
    made = notices(events, {"all": ALL, "ana": ana}, around())
    assert [(notice.receiver, notice.owner) for notice in made] == [
        ("all", ""),
        ("ana", ""),
        ("all", "ben"),
        ("all", "ana"),
        ("ana", "ana"),
    ]
    assert not any(notice.counts_along for notice in made)


def test_a_cap_that_is_near_and_one_that_is_reached_are_two_notices_each_time() -> None:
    events = [
        event(1, FeedKind.CAPPED, "j", text="most of its max_cost is spent"),
        event(2, FeedKind.CAPPED, "j", text="suspended: $5.00 of $5.00 are spent"),
    ]
    again = around(job("j"), repeated=lambda _: True)
    made = notices(events, {"all": ALL}, again)
    assert [notice.text for notice in made] == [event.text for event in events]
    assert not notices([event(1, FeedKind.LATE, "j")], {"all": ALL}, again)
    rests = [event(number, FeedKind.SUSPENDED, "j") for number in (1, 5)]
    assert all(notices([rest], {"all": ALL}, again) for rest in rests)
