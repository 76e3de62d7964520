"""What users see of deadlines and of waiting for spot instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc.server.shown.buying import buying_of, notes_on, told, why_it_waits
from eva_master.app.cli.views import tables
from eva_master.model.catalog import spot_family
from eva_master.model.ids import JobId, Millis
from eva_master.model.job import Deadline
from eva_master.model.records import Job
from eva_master.model.states import Buys, JobState
from tests.fakes.jobs import CPU, job

HOUR = 3_600_000


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
            {"buys": Buys.SPOT, "buys_ms": Millis(1), "buys_until_ms": Millis(60_000)},
            None,
            [
                "due at 1970-01-01 01:00:00 UTC",
                "it waits for a spot instance, until 1970-01-01 00:01:00 UTC at the latest: "
                "that is expected to be cheaper than on demand",
            ],
        ),
        (
            {"buys": Buys.ON_DEMAND, "buys_ms": Millis(2_000)},
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
    assert list(told(record(**changes), ends_ms, Millis(0))) == lines


@pytest.mark.parametrize(
    ("hours", "advice"), [(8, "30m 0s"), (2, "15m 0s"), (0.7, "9m 0s"), (168, "2h 21m")]
)
def test_how_often_to_checkpoint_follows_from_how_long_instances_last(
    hours: float, advice: str
) -> None:
    plain = replace(record(), spec=job("a", 1, checkpoint_interval_ms=HOUR))
    (line,) = told(plain, None, Millis(0), round(hours * HOUR))
    assert f"a checkpoint every {advice}, if one takes a minute; it says every 1h 0m" in line
    kept = replace(plain, buys=Buys.ON_DEMAND)
    assert len(list(told(kept, None, Millis(0), HOUR))) == 1


def test_what_is_late_says_so() -> None:
    assert list(told(record(), None, Millis(2 * HOUR))) == [
        "due at 1970-01-01 01:00:00 UTC, and it is late"
    ]


def test_what_runs_on_spot_alone_is_warned_of_at_once() -> None:
    assert notes_on(record().spec) == ()
    (note,) = notes_on(on_spot_alone().spec)
    assert "nothing keeps the deadline" in note
    assert "spot instances alone" in list(told(on_spot_alone(), None, Millis(0)))[-1]


def test_messages_have_what_is_known() -> None:
    plain = replace(record(), spec=job("a", 1))
    assert buying_of(plain) is None
    assert why_it_waits(plain) == ""
    waits = replace(plain, buys=Buys.SPOT, buys_ms=Millis(5), buys_until_ms=Millis(9))
    assert buying_of(waits) == pb.Buying(what="spot", since_ms=5, until_ms=9)
    assert why_it_waits(waits).startswith("it waits for a spot instance")
    assert buying_of(record()) == pb.Buying(what="any", due_ms=HOUR)


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
    ],
)
def test_status_tells_in_a_line_each(message: pb.Job, lines: list[tuple[str, str]]) -> None:
    assert list(tables._buying(message, HOUR)) == lines
