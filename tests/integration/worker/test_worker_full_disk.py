"""Attempts that cannot be prepared for want of room on the disk, and whose fault that is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from eva_worker.attach.attachments import Attachments
from eva_worker.errors import InstanceFailed, StartFailed
from eva_worker.files.storage import Storage
from eva_worker.orders import Order, Report, TaskKey, Welcome
from eva_worker.process.metrics import Metrics
from eva_worker.runtime import Image, Tell
from eva_worker.runtime.process.runtime import ProcessRuntime
from eva_worker.tasks import attempt as attempts
from eva_worker.tasks.attempt import Attempt, Services
from eva_worker.tasks.devices import CpuMap, Devices
from eva_worker.tasks.records import AttemptRecords, Record, Stage

KEY = TaskKey("job-1/0", 1)


class Failing(ProcessRuntime):
    """A runtime that cannot prepare anything."""

    def __init__(self, root: Path, error: Exception) -> None:
        super().__init__(root)
        self._error = error

    async def prepare(self, image: Image, tell: Tell) -> str:
        raise self._error


@pytest.mark.parametrize(
    ("error", "by_itself", "blameless"),
    [
        (OSError(errno.ENOSPC, "no space"), True, False),
        (OSError(errno.ENOSPC, "no space"), False, True),
        (OSError(errno.EIO, "broken"), None, False),
        # Whoever fills disk after disk is not excused by what else fails then.
        (InstanceFailed("no space"), True, False),
        (InstanceFailed("no engine"), None, True),
        (StartFailed("no such image"), None, False),
    ],
)
async def test_a_task_that_fills_the_disk_before_it_runs_is_to_blame_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    by_itself: bool | None,
    blameless: bool,
) -> None:
    monkeypatch.setattr(attempts, "filled_by", lambda _: by_itself)
    monkeypatch.setattr(attempts, "_FETCH_TRIES", 1)
    storage = Storage(tmp_path / "cache", tmp_path / "uploads", [tmp_path])
    storage.configure(Welcome("test", 1_000, (tmp_path / "objects").as_uri(), 1))
    runtime = Failing(tmp_path / "runtime", error)
    services = Services(
        runtime=runtime,
        attachments=Attachments(runtime),
        records=AttemptRecords(tmp_path / "tasks"),
        devices=Devices([], 1_000),
        cpus=CpuMap("i-1", 1, emulated=True),
        storage=storage,
        metrics=Metrics(),
        base_env={},
        task_env={},
    )
    reports: list[Report] = []
    record = Record(KEY, Stage.PREPARING, Order(KEY.run, 1, "job-1", "true"))
    services.records.add(record)
    await Attempt(record, services, reports.append).live(adopted=False)
    assert (reports[-1].never_started, reports[-1].blameless) == (True, blameless)
