"""Words that people read: one thing is one, a job has ended, and a column has one meaning."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.harness import publish
from eva_client.cli.views import explanation, tables
from eva_client.cli.views.words import amount, is_in, of_feature
from eva_lab.cli import simulate
from eva_wire._proto import api_pb2 as pb


def text_of(explained: pb.Explanation) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(explanation.explain(explained))
    return out.getvalue()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("succeeded", "sweep-5 has succeeded"),
        ("failed", "sweep-5 has failed"),
        ("cancelled", "sweep-5 was cancelled"),
        ("running", "sweep-5 is running"),
        ("pending", "sweep-5 is pending"),
    ],
)
def test_a_job_has_ended_or_is_in_a_state(state: str, told: str) -> None:
    explained = pb.Explanation(kind="job", job=pb.Job(id="sweep-5", state=state))
    assert text_of(explained).splitlines()[0] == told
    assert is_in(state) == told.removeprefix("sweep-5 ")


@pytest.mark.parametrize(
    ("feature", "value", "told"),
    [
        ("cpus", "1000", "with 1 CPU"),
        ("cpus", "500", "with 0.5 CPUs"),
        ("cpus", "2000", "with 2 CPUs"),
        ("gpus", "1", "with 1 GPU"),
        ("gpus", "8", "with 8 GPUs"),
    ],
)
def test_what_jobs_have_in_common_is_counted(feature: str, value: str, told: str) -> None:
    assert of_feature(feature, value) == told


def test_one_is_singular() -> None:
    assert amount(1.0, "task") == "1 task"
    known = pb.RunTimeEstimate(mean_ms=1_000, least_ms=1_000, most_ms=2_000, tasks=1)
    assert "by 1 finished task" in tables.estimated(known)
    assert "finished tasks" not in tables.estimated(known)


@pytest.mark.parametrize(("state", "told"), [("running", "runs"), ("succeeded", "ran")])
def test_a_job_that_has_ended_was_measured(state: str, told: str) -> None:
    occupant = pb.Occupant(task="a-1/0", profiled=True)
    hosting = pb.Hosting(instance="i-1", type="c7i.large", occupants=[occupant])
    job = pb.Job(id="a-1", state=state)
    text = text_of(pb.Explanation(kind="job", job=job, hostings=[hosting]))
    assert f"a-1/0 {told} alone while its standalone throughput" in text


def test_alone_is_dollars_wherever_a_column_has_that_name() -> None:
    occupant = pb.Occupant(task="a-1/0", reservation_micro_usd_per_hour=89_200)
    hosting = pb.Hosting(instance="i-1", type="c7i.large", occupants=[occupant])
    head = text_of(pb.Explanation(kind="job", hostings=[hosting])).splitlines()[2]
    assert head.split() == ["TASK", "BY", "ITSELF", "THROUGHPUT", "WORTH", "SHARE"]
    assert "ALONE" not in simulate._COLUMNS
    assert "OF ALONE" in simulate._COLUMNS


def test_tasks_of_an_array_that_wait_alike_are_one_line() -> None:
    job = pb.Job(id="sweep-1", state="running")
    for index in range(30):
        job.tasks.add(index=index, state="waiting", waiting_for="no room on c7i.large")
    job.tasks.add(index=30, state="waiting")
    lines = text_of(pb.Explanation(kind="job", job=job)).splitlines()
    assert lines == [
        "sweep-1 is running",
        "  sweep-1/0, and 29 others alike, waits: no room on c7i.large",
        "  sweep-1/30 waits for the next round",
    ]


def test_figures_of_benchmarks_are_read_by_people(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "seconds": 0.123456789,
        "calls": 1_234_567,
        "sizes": [{"tasks": 100, "median": 1.23456}, {"tasks": 20_000, "median": 98_765.4}],
        "by_kind": {"full": {"ms": 1.5, "ok": True}, "part": {"ms": 20.0, "ok": False}},
        "missed": [],
    }
    assert publish(figures, as_json=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "seconds                      0.1235",
        "calls                        1,234,567",
        "sizes",
        "   tasks  median",
        "     100   1.235",
        "  20,000  98,765",
        "by_kind",
        "         ms  ok",
        "  full  1.5  yes",
        "  part   20  no",
        "missed                       none",
    ]
