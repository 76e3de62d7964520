"""A worker leaves by itself: without a master, or when the cloud takes its instance away."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.settings import SUPERVISOR
from tests.fakes.aws.metadata import REBALANCE, FakeMetadata
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster
from tests.integration.worker.test_worker_agent import RUN, SAVING, Worker, until


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    yield worker
    await worker.end()


@pytest.fixture
async def metadata() -> AsyncIterator[FakeMetadata]:
    service = FakeMetadata()
    yield service
    service.stop()


def switch(home: Path) -> tuple[str, ...]:
    """Options that show whether the instance would have been switched off."""
    return ("--power-off", f"touch {shlex.quote(str(home / 'off'))}")


async def ended(worker: Worker) -> int:
    assert worker.process
    async with asyncio.timeout(DEADLINE_S):
        return await worker.process.wait()


def steps_stored(master: FakeMaster) -> list[str]:
    stored = master.store / "jobs" / RUN / "checkpoints"
    manifests = sorted(stored.glob("*/manifest.json"))
    return [entry["path"] for it in manifests for entry in json.loads(it.read_text())["files"]]


async def test_without_a_master_tasks_checkpoint_and_the_instance_goes_off(
    worker: Worker, master: FakeMaster, tmp_path: Path
) -> None:
    await worker.start("--abandoned-after-s", "6", *switch(tmp_path))
    worker.order(SAVING)
    await until((worker.path() / "work" / "up").exists)
    # As long as there is a master it may take as long as it likes.
    began = time.monotonic()
    await until(lambda: time.monotonic() > began + 8)
    assert worker.agent() is not None
    await master.vanish()
    assert await ended(worker) == 0
    assert (tmp_path / "off").exists()
    assert steps_stored(master) == ["deep/model"]


async def test_an_agent_that_cannot_even_start_counts_as_one_without_a_master(
    worker: Worker, master: FakeMaster, tmp_path: Path
) -> None:
    # Agents need the state directory's lock, which is a directory here.
    (tmp_path / "state" / "lock").mkdir(parents=True)
    sessions = asyncio.create_task(
        worker.start("--abandoned-after-s", "2", *switch(tmp_path)), name="never up"
    )
    async with asyncio.timeout(2 * DEADLINE_S):
        while not (tmp_path / "off").exists():
            await asyncio.sleep(0.05)
    sessions.cancel()
    assert not master.sessions


async def test_told_by_a_signal_to_leave_it_does_not_switch_off(
    worker: Worker, tmp_path: Path
) -> None:
    await worker.start("--abandoned-after-s", "600", *switch(tmp_path))
    assert await worker.stop() == 0
    assert not (tmp_path / "off").exists()


async def test_second_agent_on_a_state_directory_is_refused(worker: Worker) -> None:
    await worker.start()
    agent = worker.agent()
    assert agent
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker.agent"),
        env={**agent.environ(), SUPERVISOR: str(os.getpid())},
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await second.communicate()
    assert second.returncode == 1
    assert b"another agent works on this state directory" in said


async def test_an_agent_whose_supervisor_died_as_it_began_ends_itself(worker: Worker) -> None:
    """Otherwise it would live on, and keep the next supervisor's agents out for ever."""
    await worker.start()
    agent = worker.agent()
    assert agent
    environment = agent.environ()
    assert await worker.stop() == 0
    orphan = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker.agent"),
        env={**environment, SUPERVISOR: "1"},
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await orphan.communicate()
    assert orphan.returncode == 1
    assert b"the supervisor of this agent is gone" in said


async def test_an_interruption_is_passed_on_and_tasks_are_stored_before_it(
    worker: Worker, master: FakeMaster, metadata: FakeMetadata, tmp_path: Path
) -> None:
    await worker.start("--metadata-url", metadata.url, *switch(tmp_path))
    worker.order(SAVING)
    await until((worker.path() / "work" / "up").exists)
    at = int(time.time()) + 120
    metadata.interrupt(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}")
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.stopped, report.generation) == (True, 1)
    assert await ended(worker) == 0
    assert master.goodbyes == ["spot interruption: terminate"]
    (notice,) = interruptions(master)
    assert (notice.at_ms, notice.reason) == (at * 1000, "spot interruption: terminate")
    assert (tmp_path / "off").exists()


async def test_a_task_that_will_not_stop_is_ended_in_time(
    worker: Worker, master: FakeMaster, metadata: FakeMetadata
) -> None:
    await worker.start("--metadata-url", metadata.url)
    worker.order("trap '' TERM; touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    at = time.time() + 8
    metadata.interrupt(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}")
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    # Its order gives it 20 s.
    assert (report.stopped, report.exit_code) == (True, -9)
    assert time.time() < at
    assert await ended(worker) == 0


async def test_a_task_that_will_not_stop_holds_up_a_signal_no_longer_than_the_master_allows(
    worker: Worker, master: FakeMaster
) -> None:
    master.shutdown_grace_ms = 100
    await worker.start()
    worker.order("trap '' TERM; touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    began = time.monotonic()
    assert await worker.stop() == 0
    assert time.monotonic() - began < 20, "its order gives it 20 s"
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert (report.stopped, report.exit_code) == (True, -9)


async def test_a_recommendation_is_passed_on_again_to_the_next_session_and_nothing_stops(
    worker: Worker, master: FakeMaster, metadata: FakeMetadata
) -> None:
    metadata.documents[REBALANCE] = b"{}"
    await worker.start("--metadata-url", metadata.url)
    await master.until(lambda: interruptions(master))
    worker.order("touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    master.hang_up()
    await master.until(lambda: len(master.sessions) > 1 and interruptions(master))
    assert [it.at_ms for it in interruptions(master)] == [0]
    assert (await master.phase(RUN, 1, pb.PHASE_RUNNING)).stopped is False
    worker.halt(grace_ms=0)
    assert await worker.stop() == 0


async def test_the_stages_of_the_boot_are_told_until_the_first_welcome(
    worker: Worker, master: FakeMaster, tmp_path: Path
) -> None:
    file = tmp_path / "boot"
    file.write_text("machine 9000\ndownload 1200\n")
    await worker.start("--boot-file", str(file))
    told = [(stage.name, stage.ms) for stage in master.session.register.boot]
    assert told == [("machine", 9000), ("download", 1200)]
    master.hang_up()
    await master.until(lambda: len(master.sessions) > 1)
    assert not master.session.register.boot
    assert await worker.stop() == 0


def interruptions(master: FakeMaster) -> list[pb.Interruption]:
    heard: Callable[[pb.WorkerMessage], bool] = lambda it: it.HasField("interruption")  # noqa: E731
    return [it.interruption for it in filter(heard, master.session.heard)]
