"""What the master believes of what a worker says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eva_master.adapters.rpc.server.views import metrics_within
from eva_master.adapters.rpc.workers import messages
from eva_master.adapters.rpc.workers.message_rate import MessageRate
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.ids import Millis
from eva_worker.link import wire
from eva_worker.orders import Phase, Progress, Report, TaskKey

RUN = "job-1/0"


def report(**fields: Any) -> pb.TaskReport:
    return pb.TaskReport(**{"run_id": RUN, "attempt": 1, "phase": pb.PHASE_RUNNING, **fields})


def test_metrics_are_bounded_however_an_agent_came_to_them() -> None:
    bomb = {f"{number:05d}" + "x" * 175: 1.0 for number in range(17_000)}
    bomb |= {"y" * 201: 1.0, "": 1.0, "a\0": 1.0, "nan": math.nan, "inf": math.inf}
    kept = messages.progress(pb.Sample(run_id=RUN, attempt=1, metrics=bomb)).metrics
    assert len(kept) == 256
    assert all(0 < len(name.encode()) <= 200 and math.isfinite(value) for name, value in kept)
    assert all(name.isprintable() for name, _ in kept)


@pytest.mark.parametrize("number", [2**53, 2**63, 2**64 - 1])
def test_a_generation_that_cannot_be_counts_as_none(number: int) -> None:
    (heard,) = messages.reports([report(generation=number)])
    assert heard.generation == 0
    (heard,) = messages.reports([report(generation=7)])
    assert heard.generation == 7


@pytest.mark.parametrize("steps", [2**53 + 1, 2**64 - 1])
def test_steps_that_cannot_be_are_not_heard(steps: int) -> None:
    sample = pb.Sample(run_id=RUN, attempt=1, steps=steps)
    assert messages.samples([sample]) == ()
    (heard,) = messages.reports([report(progress=sample)])
    assert heard.progress is None


@pytest.mark.parametrize(
    "run", ["", "../x", "a/b", "a" * 300 + "/0", "a/0\n", "a/0/0", "x" * 10**6]
)
def test_task_runs_that_cannot_be_are_left_out(run: str) -> None:
    assert messages.reports([report(run_id=run)]) == ()
    assert messages.samples([pb.Sample(run_id=run, attempt=1, steps=1)]) == ()


@pytest.mark.parametrize(
    ("ran_ms", "heard"), [(None, None), (0, 0), (2**53, None), (2**64 - 1, None)]
)
def test_running_times_that_cannot_be_are_not_heard(ran_ms: int | None, heard: int | None) -> None:
    message = pb.TaskReport(
        run_id="job-1/0", phase=pb.PHASE_RUNNING, ran_ms=ran_ms, image_ms=ran_ms
    )
    (report,) = messages.reports([message])
    assert (report.ran_ms, report.image_ms) == (heard, heard)


def test_texts_are_cut_and_fit_for_a_log() -> None:
    (heard,) = messages.reports([report(message="x" * 10**6)])
    assert len(heard.message) == 2_000
    (heard,) = messages.reports([report(message="a\0b\x1b[31m\n\tc")])
    assert heard.message == "a?b?[31m\n\tc"
    assert messages.words("a\x1b[31m\n" + "b" * 10**6) == "a?[31m?" + "b" * 193


@pytest.mark.parametrize(("at_ms", "heard"), [(0, None), (5, 5), (2**53, None), (2**64 - 1, None)])
def test_times_that_cannot_be_are_not_heard(at_ms: int, heard: int | None) -> None:
    assert messages.interrupted_at(pb.Interruption(at_ms=at_ms), Millis(1_000)) == heard


@pytest.mark.parametrize(
    ("left_ms", "heard"), [(0, 1_000), (120_000, 121_000), (2**64 - 1, 3_601_000)]
)
def test_an_interruption_is_told_by_what_is_left(left_ms: int, heard: int) -> None:
    # The agent's clock may be hours off: the moment itself counts for nothing.
    notice = pb.Interruption(at_ms=5_000_000, left_ms=left_ms)
    assert messages.interrupted_at(notice, Millis(1_000)) == heard
    assert messages.interrupted_at(pb.Interruption(left_ms=left_ms), Millis(1_000)) is None


@pytest.mark.parametrize(
    ("address", "heard"),
    [
        ("10.0.0.7", True),
        ("fe80::1%eth0", True),
        ("a b", False),
        ("x" * 300, False),
        ("$(x)", False),
    ],
)
def test_addresses_that_cannot_be_are_not_passed_on(address: str, heard: bool) -> None:
    assert messages.address(pb.Register(address=address)) == (address if heard else "")


def test_a_worker_that_says_too_much_is_read_slowly() -> None:
    now = 0.0
    pace = MessageRate(lambda: now)
    assert pace.pause_s(1_000) == 0
    for _ in range(200):
        now += pace.pause_s(1_000)
    assert 28 <= now <= 32, "200,000 reports at 5,000 a second, with 50,000 to begin with"
    now += 60
    assert pace.pause_s(10_000) == 0


def test_reports_weigh_what_is_in_them() -> None:
    few, much = pb.TaskReport(run_id=RUN), pb.TaskReport(run_id=RUN)
    for number in range(256):
        much.progress.metrics[f"{number:0200}"] = 1.0
    for some in ({"register": pb.Register(tasks=[much])}, {"reports": pb.Reports(tasks=[much])}):
        assert messages.weight(pb.WorkerMessage(**some)) > 100  # type: ignore[arg-type]
    assert messages.weight(pb.WorkerMessage(reports=pb.Reports(tasks=[few] * 9))) == 10
    heartbeat = pb.Heartbeat(samples=[much.progress])
    assert messages.weight(pb.WorkerMessage(heartbeat=heartbeat)) > 100


def test_metrics_of_many_tasks_share_a_message() -> None:
    many = [(f"{number:03d}" + "x" * 197, 1.0) for number in range(256)]
    assert len(metrics_within(many, 64 << 10)) == 256
    assert len(metrics_within(many, 1_000)) == 4
    assert metrics_within([("loss", 1.0)], 6) == {}


@pytest.mark.parametrize("code", [2**31, -(2**31) - 1, 10**30])
def test_an_agent_survives_any_exit_and_any_message(code: int) -> None:
    odd = Report(
        TaskKey(RUN, 1),
        Phase.EXITED,
        exit_code=code,
        generation=10**26,
        message="\udcff" * 10_000,
    )
    sent = wire.task_report(odd)
    assert len(sent.message) == 2_000
    assert sent.SerializeToString()


def test_reports_of_many_tasks_fit_into_messages() -> None:
    """All the metrics that 500 tasks may have are 27 MB, and the master takes 16 MiB."""
    metrics = {f"{number:03d}" + "x" * 197: 1.0 for number in range(256)}
    reports = [
        Report(TaskKey(f"job-1/{number}", 1), Phase.RUNNING, progress=Progress(7, 9, metrics))
        for number in range(500)
    ]
    together = wire.all_reports(reports)
    assert max(message.ByteSize() for message in together) < 2 << 20
    listed = [task.run_id for message in together for task in message.reports.tasks]
    assert listed == [report.key.run for report in reports]
    assert not any(message.reports.complete for message in together)
    register = wire.registered(reports)
    assert sum(task.ByteSize() for task in register) < 1 << 20
    assert [task.run_id for task in register] == listed
    beats = wire.heartbeats(wire.sample(it.key, it.progress) for it in reports)
    assert max(message.ByteSize() for message in beats) < 2 << 20
    assert sum(len(message.heartbeat.samples) for message in beats) == 500


def test_few_reports_are_one_message() -> None:
    few = [Report(TaskKey("job-1/0", 1), Phase.RUNNING, progress=Progress(7))]
    (message,) = wire.all_reports(few)
    assert message.reports.complete
    assert wire.registered(few)[0].progress.steps == 7
    (message,) = wire.all_reports([])
    assert message.reports.complete
    (beat,) = wire.heartbeats([])
    assert beat.HasField("heartbeat")
