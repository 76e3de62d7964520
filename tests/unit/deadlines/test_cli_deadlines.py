"""What users see of deadlines and of waiting for spot instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_client.cli.views import tables
from eva_master.adapters.rpc.server.shown.deadlines import (
    buying_of,
    explain,
    late_ppm,
    markets_of,
    notes_on,
    why_it_waits,
)
from eva_master.model.catalog import spot_family
from eva_master.model.changes import JobAccount
from eva_master.model.job import Deadline
from eva_master.model.records import Job
from eva_master.ports.reading import Outlook
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import Exact, JobId, Millis
from eva_wire.values.states import JobState, MarketRule
from tests.fakes.jobs import CPU, job

HOUR = 3_600_000
UNKNOWN, NOW = Outlook(), Millis(0)


def record(**changes: object) -> Job:
    """A job that is due an hour after the beginning of time."""
    spec = job("a", 1, deadline=Deadline(within_ms=HOUR))
    one = Job(JobId("a-1"), spec, Millis(0), ((JobState.PENDING, Millis(0)),))
    return replace(one, **changes)  # type: ignore[arg-type]


def on_spot_alone() -> Job:
    """One that may run nowhere else."""
    one = record()
    (task,) = one.spec.tasks
    demand = tuple((spot_family(CPU), need) for _, need in task.demand)
    return replace(one, spec=replace(one.spec, tasks=(replace(task, demand=demand),)))


@pytest.mark.parametrize(
    ("changes", "ends_ms", "lines"),
    [
        ({}, None, ["due at 1970-01-01 01:00:00 UTC"]),
        (
            {},
            HOUR // 2,
            ["due at 1970-01-01 01:00:00 UTC; at its pace it ends 30m 0s before that"],
        ),
        (
            {"buys": MarketRule.SPOT, "buys_ms": Millis(1), "buys_until_ms": Millis(60_000)},
            None,
            [
                "due at 1970-01-01 01:00:00 UTC",
                "it waits for a spot instance, until 1970-01-01 00:01:00 UTC at the latest: "
                "that is expected to be cheaper than on demand",
            ],
        ),
        (
            {"buys": MarketRule.ON_DEMAND, "buys_ms": Millis(2_000)},
            2 * HOUR,
            [
                "due at 1970-01-01 01:00:00 UTC; at its pace it ends 1h 0m after that",
                "since 1970-01-01 00:00:02 UTC it is kept off spot instances: there is no time to "
                "lose one",
            ],
        ),
        (
            {"history": ((JobState.SUCCEEDED, Millis(9)),), "finished_ms": Millis(HOUR // 4)},
            None,
            ["due at 1970-01-01 01:00:00 UTC; it ended 45m 0s before that"],
        ),
    ],
)
def test_jobs_say_how_they_stand(
    changes: dict[str, object], ends_ms: int | None, lines: list[str]
) -> None:
    assert list(explain(record(**changes), ends_ms, Millis(0))) == lines


@pytest.mark.parametrize(
    ("hours", "advice"), [(8, "30m 0s"), (2, "15m 0s"), (0.7, "9m 0s"), (168, "2h 21m")]
)
def test_how_often_to_checkpoint_follows_from_how_long_instances_last(
    hours: float, advice: str
) -> None:
    plain = replace(record(), spec=job("a", 1, checkpoint_interval_ms=HOUR))
    (line,) = explain(plain, None, Millis(0), round(hours * HOUR))
    assert f"a checkpoint every {advice}, if one takes a minute; it says every 1h 0m" in line
    kept = replace(plain, buys=MarketRule.ON_DEMAND)
    assert len(list(explain(kept, None, Millis(0), HOUR))) == 1


def test_what_is_late_says_so() -> None:
    assert list(explain(record(), None, Millis(2 * HOUR))) == [
        "due at 1970-01-01 01:00:00 UTC, and it is late"
    ]


def test_what_runs_on_spot_alone_is_warned_of_at_once() -> None:
    assert notes_on(record().spec) == ()
    (note,) = notes_on(on_spot_alone().spec)
    assert "nothing keeps the deadline" in note
    assert "spot instances alone" in list(explain(on_spot_alone(), None, Millis(0)))[-1]


def test_messages_have_what_is_known() -> None:
    plain = replace(record(), spec=job("a", 1))
    assert buying_of(plain, UNKNOWN, NOW) is None
    assert why_it_waits(plain) == ""
    waits = replace(plain, buys=MarketRule.SPOT, buys_ms=Millis(5), buys_until_ms=Millis(9))
    assert buying_of(waits, UNKNOWN, NOW) == pb.Buying(what="spot", since_ms=5, until_ms=9)
    assert why_it_waits(waits).startswith("it waits for a spot instance")
    assert buying_of(record(), UNKNOWN, NOW) == pb.Buying(what="any", due_ms=HOUR)


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (pb.Job(buying=pb.Buying(due_ms=2 * HOUR)), [("deadline", "in 1h 0m")]),
        (
            pb.Job(buying=pb.Buying(due_ms=2 * HOUR), eta_ms=HOUR + HOUR // 2),
            [("deadline", "in 1h 0m, 30m 0s to spare")],
        ),
        (
            pb.Job(buying=pb.Buying(due_ms=2 * HOUR), finished_ms=3 * HOUR),
            [("deadline", "missed, 1h 0m late")],
        ),
        (
            pb.Job(buying=pb.Buying(what="spot", until_ms=HOUR + 60_000)),
            [("waits", "for a spot instance, for 1m 0s at most")],
        ),
        (
            pb.Job(buying=pb.Buying(what="on_demand", since_ms=HOUR // 2)),
            [("kept", "off spot instances, since there is no time to lose one, 30m 0s ago")],
        ),
        (
            pb.Job(buying=pb.Buying(what="apart", since_ms=HOUR // 2)),
            [("kept", "apart from others, since it would be late in company, 30m 0s ago")],
        ),
    ],
)
def test_status_tells_in_a_line_each(message: pb.Job, lines: list[tuple[str, str]]) -> None:
    assert list(tables._buying(message, HOUR)) == lines


@pytest.mark.parametrize(
    ("outlook", "chance"),
    [
        (Outlook(), None),
        (Outlook(left_ms=HOUR // 2), 0),
        (Outlook(left_ms=2 * HOUR), 1),
        (Outlook(left_ms=1, eta_ms=Millis(2 * HOUR)), 1),
        # Half an hour is left, and at most an hour in two of three cases: one deviation.
        (Outlook(HOUR // 2, latest_ms=Millis(HOUR)), 0.159),
        (Outlook(HOUR, latest_ms=Millis(2 * HOUR)), 0.5),
        (Outlook(2 * HOUR, latest_ms=Millis(4 * HOUR)), 0.841),
    ],
)
def test_the_chance_of_being_late_is_that_of_taking_longer(
    outlook: Outlook, chance: float | None
) -> None:
    found = late_ppm(record(), outlook, NOW)
    assert found == (None if chance is None else pytest.approx(1e6 * chance, rel=0.01))


def test_nobody_asks_for_the_chance_of_what_is_over() -> None:
    assert late_ppm(record(), Outlook(left_ms=1), Millis(HOUR)) == 1_000_000
    over = replace(record(), history=((JobState.SUCCEEDED, Millis(9)),))
    assert late_ppm(over, Outlook(left_ms=1), NOW) is None
    assert late_ppm(replace(record(), spec=job("a", 1)), Outlook(left_ms=1), NOW) is None


def test_where_it_ran_and_what_that_saved() -> None:
    dollars = 3_600_000 * 1_000_000
    account = JobAccount(
        JobId("a-1"),
        charged=Exact(5 * dollars),
        busy_ms=3 * HOUR,
        spot=Exact(1 * dollars),
        spot_ms=2 * HOUR,
        listed=Exact(4 * dollars),
        interruptions=2,
    )
    history = ((JobState.PENDING, Millis(0)), (JobState.RUNNING, Millis(HOUR)))
    message = markets_of(replace(record(), history=history), account, Millis(9 * HOUR))
    assert message is not None
    (line,) = tables._markets(pb.Job(markets=message))
    assert line == (
        "so far",
        "2h 0m on spot instances for $1.00, $3.00 less than on demand; 1h 0m on others; "
        "1h 0m waiting; 2 interruptions",
    )
    again = (*history, (JobState.PENDING, Millis(2 * HOUR)))
    message = markets_of(replace(record(), history=again), account, Millis(4 * HOUR))
    assert message is not None
    assert message.waiting_ms == 3 * HOUR
    plain = replace(record(), spec=job("a", 1))
    assert markets_of(plain, JobAccount(JobId("a-1"), busy_ms=5), NOW) is None
    assert list(tables._markets(pb.Job())) == []


def test_status_has_words_for_all_that_is_done_for_who_would_be_late() -> None:
    assert set(tables._KEPT) == set(MarketRule) - {MarketRule.ANY, MarketRule.SPOT}
