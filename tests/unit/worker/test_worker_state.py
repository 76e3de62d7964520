"""What the worker keeps on disk, its settings and its command line."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from eva_worker import cli
from eva_worker.errors import BadOrder, InstanceFailed
from eva_worker.orders import Order, Phase, TaskKey
from eva_worker.process import durable_files
from eva_worker.process.durable_files import RESERVE_BYTES, Reserve, read_json, write_json
from eva_worker.process.metrics import Metrics
from eva_worker.settings import Settings
from eva_worker.tasks import progress_server
from eva_worker.tasks.devices import Assignment
from eva_worker.tasks.endings import filled_by, not_begun
from eva_worker.tasks.progress_server import StepCounters
from eva_worker.tasks.records import AttemptRecords, Began, Record, Stage
from tests.fakes.rpc.authority import authority

KEY = TaskKey("job-1/0+2", 7)
ORDER = Order(
    run=KEY.run, attempt=7, job="job-1", command="true", env={"A": "b"}, inputs={"d": "/x"}, gpus=2
)
ARGUMENTS = {
    "--master": "h:1",
    "--enrol": "h:2",
    "--instance-id": "i-1",
    "--instance-type": "p3.2xlarge",
    "--cpus": "1.5",
    "--memory-mib": "10",
    "--state-dir": "state",
}


def test_records_survive(tmp_path: Path) -> None:
    devices = Assignment(("GPU-1",), (0, 2), ((3, 500),))
    record = Record(KEY, Stage.RUNNING, ORDER, devices, stop_grace_ms=5, generation=4)
    AttemptRecords(tmp_path).add(record)
    book = AttemptRecords(tmp_path)
    assert book.load() == [record]
    assert book.highest(KEY.run) == 7
    book.remove(KEY)
    assert AttemptRecords(tmp_path).load() == []
    assert AttemptRecords(tmp_path).highest(KEY.run) == 7
    assert AttemptRecords(tmp_path).highest("job-1/0") == 0


def test_an_attempt_runs_by_a_clock_that_nobody_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, boot = [5_000_000_000], ["boot-1"]
    monkeypatch.setattr("eva_worker.tasks.records.time.monotonic_ns", lambda: clock[0])
    monkeypatch.setattr("eva_worker.tasks.records.boot_id", lambda: boot[0])
    assert Record(KEY, Stage.PREPARING, ORDER).ran_by_now_ms() is None
    AttemptRecords(tmp_path).add(Record(KEY, Stage.RUNNING, ORDER, began=Began.now()))
    clock[0] += 90_000_000_000
    (adopted,) = AttemptRecords(tmp_path).load()
    assert adopted.ran_by_now_ms() == 90_000
    assert replace(adopted, ran_ms=89_000).ran_by_now_ms() == 89_000
    boot[0] = "boot-2"
    assert adopted.ran_by_now_ms() is None


def test_records_of_earlier_agents_are_read() -> None:
    document = Record(KEY, Stage.RUNNING, ORDER).to_json()
    del document["began"], document["ran_ms"]
    assert Record.from_json(document) == Record(KEY, Stage.RUNNING, ORDER)


def test_a_full_disk_has_room_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside, path = tmp_path / "reserve", tmp_path / "doc.json"
    reserve = Reserve()
    reserve.keep()
    assert not reserve.give_up(), "before it is told where"
    reserve.keep(aside)
    assert aside.stat().st_blocks * 512 >= RESERVE_BYTES
    monkeypatch.setattr(durable_files, "reserve", reserve)

    def full(_: int) -> None:
        if others or aside.exists():
            raise OSError(errno.ENOSPC, "No space left on device")

    others = False
    monkeypatch.setattr(os, "fsync", full)
    write_json(path, {"version": 1})
    assert read_json(path) == {"version": 1}
    assert not aside.exists()
    reserve.keep()
    others = True
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"version": 2})
    assert read_json(path) == {"version": 1}


def test_an_attempt_that_the_disk_has_no_room_for_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = AttemptRecords(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        book.add(Record(KEY, Stage.PREPARING, ORDER))
    # It is told as one that never started, so it must not be started when its order comes again.
    assert book.highest(KEY.run) == KEY.attempt
    assert book.load() == []


def test_half_written_document_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "doc.json"
    write_json(path, {"version": 1})

    def power_cut(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "fsync", power_cut)
    with pytest.raises(OSError, match="power cut"):
        write_json(path, {"version": 2})
    assert read_json(path) == {"version": 1}
    assert read_json(tmp_path / "none") is None


@pytest.mark.parametrize(
    "run", ["../0", "job", "job/x", "job/0/1", "/0", ".job/0", "a b/0", "job/0+", "job/0\n"]
)
def test_run_ids_that_could_leave_the_state_directory(run: str) -> None:
    with pytest.raises(BadOrder):
        TaskKey(run, 1)


def test_key_and_path_are_inverse() -> None:
    assert TaskKey.from_path(Path("/state") / KEY.path) == KEY


def test_counts_add_up_over_sources_and_survive(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    counters = StepCounters(path)
    counters.note("a", steps=5, published=1, metrics={"loss": 2.0})
    counters.note("b", steps=3, total=100, metrics={"loss": 1.0, "accuracy": 0.5})
    counters.note("a", steps=4)  # Overtaken by a later one.
    counters.save()
    counters.note("a", steps=6)
    again = StepCounters(path)
    assert again.progress().steps == 8
    again.note("a", steps=6)
    assert again.progress() == counters.progress()
    assert counters.progress().total_steps == 100
    assert counters.progress().published == 1
    assert counters.progress().metrics == {"loss": 1.0, "accuracy": 0.5}


async def test_counts_go_on_from_the_restored_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_server, "_KEPT_WITHIN_S", 0.0)
    counters = StepCounters(tmp_path / "progress.json")
    counters.begin_from(400)
    counters.note("a", steps=50, total=600)
    assert counters.progress().steps == 450
    assert counters.progress().total_steps == 1000
    # Another process has made 7 steps by the time that the first one's checkpoint is heard of.
    counters.note("b", steps=7)
    counters.note("a", steps=90, published=3, kept=80)
    assert await counters.steps_kept(3) == 487
    assert await counters.steps_kept(4) == 497
    # A member of a gang stores older ones as well.
    counters.note("a", steps=95, published=4, kept=95)
    assert await counters.steps_kept(3) == 487
    counters.save()
    assert StepCounters(tmp_path / "progress.json").progress().steps == 502


async def test_a_checkpoint_that_is_seen_before_its_report_waits_for_it(tmp_path: Path) -> None:
    counters = StepCounters(tmp_path / "progress.json")
    assert await counters.steps_kept(1) == 0  # Of a program that reports nothing.
    counters.note("a", steps=36)
    kept = asyncio.create_task(counters.steps_kept(1))
    # It is there, and its steps are not noted yet.
    counters.note("a", steps=41, published=1)
    await asyncio.sleep(0)
    assert not kept.done()
    counters.note("a", steps=44, published=1, kept=40)
    assert await kept == 40


def test_settings_survive_the_environment_and_hide_the_token() -> None:
    settings = Settings(
        master="h:1",
        instance="i",
        token="secret",
        instance_type="t",
        gpus=1,
        milli_cpus=1500,
        memory_mib=1,
        state_dir=Path("/s"),
        task_env={"A": "b"},
    )
    assert Settings.from_json(settings.to_json()) == settings
    assert "secret" not in repr(settings)


def run(monkeypatch: pytest.MonkeyPatch, *extra: str, **env: str) -> Settings:
    seen: list[Settings] = []
    monkeypatch.setattr(cli, "supervise", lambda settings: seen.append(settings) or 0)
    arguments = [word for pair in ARGUMENTS.items() for word in pair]
    told = {
        "EVA_WORKER_TOKEN": "secret",
        "EVA_WORKER_CA": authority().certificates.decode(),
        **env,
    }
    result = CliRunner().invoke(cli.worker, [*arguments, *extra], env=told)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_command_line_becomes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = run(
        monkeypatch, "--task-env", "A=b=c", "--task-env", "D=", "--emulated", EVA_WORKER_GPUS="3"
    )
    assert settings.task_env == {"A": "b=c", "D": ""}
    assert (settings.milli_cpus, settings.gpus, settings.emulated) == (1500, 3, True)
    assert settings.state_dir.is_absolute()
    assert (settings.join, settings.token) == ("h:2", "secret")
    assert settings.authorities == authority().certificates.decode()


def test_a_token_on_the_command_line_is_refused() -> None:
    arguments = [word for item in ARGUMENTS.items() for word in item]
    result = CliRunner().invoke(cli.worker, [*arguments, "--token", "secret"])
    assert result.exit_code == 2
    assert "No such option" in result.output


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "needs --ca-file or EVA_WORKER_CA, EVA_WORKER_TOKEN to get one"),
        ({"EVA_WORKER_CA": "no certificate"}, "EVA_WORKER_CA holds no certificate"),
    ],
)
def test_a_worker_without_a_way_to_a_certificate_does_not_start(
    env: dict[str, str], told: str, tmp_path: Path
) -> None:
    arguments = [word for item in ARGUMENTS.items() for word in item]
    arguments += ["--state-dir", str(tmp_path)]
    result = CliRunner().invoke(cli.worker, arguments, env=env)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_every_option_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in cli.worker.params:
        assert option.envvar == f"EVA_WORKER_{option.name.upper()}"
        assert option.help


@pytest.mark.parametrize("pair", ["A", "=b"])
def test_bad_task_env_is_refused(pair: str) -> None:
    arguments = [word for item in ARGUMENTS.items() for word in item]
    result = CliRunner().invoke(cli.worker, [*arguments, "--task-env", pair])
    assert result.exit_code == 2
    assert "NAME=VALUE" in result.output


def test_metrics_count_tasks_at_every_scrape() -> None:
    metrics = Metrics()
    counts = {Phase.STARTING: 0, Phase.RUNNING: 2, Phase.EXITED: 1}
    metrics.watch_tasks(counts.__getitem__)
    counts[Phase.RUNNING] = 3
    metrics.uploaded_bytes.inc(10)
    text = generate_latest(metrics.registry).decode()
    assert 'eva_worker_tasks{phase="running"} 3.0' in text
    assert "eva_worker_uploaded_bytes_total 10.0" in text
    assert "eva_worker_session_up 0.0" in text
    assert "eva_worker_reconnects_total 0.0" in text


class Disk:
    """A disk of 1,000 blocks and 100 files, as `os.statvfs` shows it."""

    def __init__(self, *, blocks: int = 0, files: int = 0) -> None:
        self.free, self.free_files = 1_000 - blocks, 100 - files

    def __call__(self, _: object) -> os.statvfs_result:
        room = (4096, 4096, 1_000, self.free, self.free)
        return os.statvfs_result((*room, 100, self.free_files, self.free_files, 0, 255))


@pytest.mark.parametrize(
    ("disk", "size", "files", "told"),
    [
        (Disk(blocks=500, files=50), 400, 40, None),
        (Disk(blocks=990, files=50), 600, 40, True),
        (Disk(blocks=990, files=50), 100, 4, False),
        # Full of files, most of which are empty.
        (Disk(blocks=10, files=100), 0, 60, True),
        (Disk(blocks=10, files=100), 0, 4, False),
    ],
)
def test_who_fills_a_disk_with_bytes_or_with_files_is_to_blame(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disk: Disk,
    size: int,
    files: int,
    told: bool | None,
) -> None:
    (tmp_path / "large").write_bytes(b"x" * size * 4096)
    for number in range(files - 1):
        (tmp_path / f"{number}").touch()
    monkeypatch.setattr(os, "statvfs", disk)
    assert filled_by(tmp_path) is told


@pytest.mark.parametrize(("by_itself", "blameless"), [(None, False), (True, False), (False, True)])
def test_inputs_that_no_disk_can_hold_are_charged(by_itself: bool | None, blameless: bool) -> None:
    """Otherwise the job would be tried for ever, each time on a new instance in the end."""
    error = OSError(errno.ENOSPC, "No space left on device")
    message, excused = not_begun(error, by_itself)
    assert excused is blameless
    assert ("its files fill the disk" in message) is bool(by_itself)
    assert "No space left" in message
    assert not_begun(InstanceFailed("the engine is away"), None) == ("the engine is away", True)


def test_files_that_an_agent_has_half_removed_are_removed(tmp_path: Path) -> None:
    """It died after it had removed the record; those of attempts with a record stay."""
    records = AttemptRecords(tmp_path / "tasks")
    for run in ("job-1/0", "job-1/1"):
        key = TaskKey(run, 1)
        records.add(Record(key, Stage.EXITED))
        (records.directory(key) / "tmp" / "deep").mkdir(parents=True)
    (records.directory(TaskKey("job-1/0", 1)) / "record.json").unlink()
    after = AttemptRecords(tmp_path / "tasks")
    assert [record.key.run for record in after.load()] == ["job-1/1"]
    assert not after.directory(TaskKey("job-1/0", 1)).exists()
    assert (after.directory(TaskKey("job-1/1", 1)) / "tmp" / "deep").exists()
    assert after.highest("job-1/0") == 1
