"""What has finished is finished, whoever dies before everybody has heard of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster
from tests.integration.worker.test_worker_agent import RUN, Worker, until

ENDING = "echo $$ >> ../ran; touch up; until [ -e go ]; do sleep 0.02; done"


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    await worker.start()
    yield worker
    await worker.end()


async def finish_unseen(worker: Worker, master: FakeMaster) -> None:
    """Have a task succeed while its agent sees nothing."""
    worker.order(ENDING)
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    agent = worker.agent()
    assert agent
    agent.suspend()
    (worker.path() / "work" / "go").touch()
    await until((worker.home / "state" / "runtime" / RUN / "0001" / "exit.json").exists)


def outcome(report: pb.TaskReport) -> tuple[int, bool, bool]:
    return report.exit_code, report.stopped, report.never_started


async def test_a_success_that_a_stop_overtakes_is_a_success(
    worker: Worker, master: FakeMaster
) -> None:
    await finish_unseen(worker, master)
    worker.halt()
    agent = worker.agent()
    assert agent
    agent.resume()
    assert outcome(await master.phase(RUN, 1, pb.PHASE_EXITED)) == (0, False, False)


async def test_a_success_survives_its_agent_and_the_end_of_its_worker(
    worker: Worker, master: FakeMaster
) -> None:
    await finish_unseen(worker, master)
    agent = worker.agent()
    assert agent
    # The next agent is asked to leave before it has looked at anything.
    worker.supervisor.suspend()
    agent.kill()
    assert worker.process
    worker.process.terminate()
    worker.supervisor.resume()
    async with asyncio.timeout(DEADLINE_S):
        assert await worker.process.wait() == 0
    assert outcome(master.reports[RUN, 1]) == (0, False, False)


async def test_a_success_that_no_master_heard_of_is_not_repeated_elsewhere(
    worker: Worker, master: FakeMaster, tmp_path: Path
) -> None:
    worker.order(ENDING)
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    await master.vanish()
    (worker.path() / "work" / "go").touch()
    record = worker.path() / "record.json"
    await until(lambda: json.loads(record.read_text())["stage"] == "exited")
    await worker.end()  # The whole instance is lost.
    await master.start()
    other = Worker(master, tmp_path / "other")
    await other.start()
    try:
        other.order(ENDING, attempt=2)
        report = await master.phase(RUN, 2, pb.PHASE_EXITED)
        assert outcome(report) == (0, False, False)
        assert report.message == "attempt 1 had succeeded before its instance was lost"
        assert not (other.path(attempt=2) / "ran").exists()
        # A member of a gang starts over with the others.
        gang = pb.Gang(rank=0, size=2, address="127.0.0.1", port=20_000)
        other.order("exit 4", attempt=3, gang=gang)
        assert (await master.phase(RUN, 3, pb.PHASE_EXITED)).exit_code == 4
    finally:
        await other.end()


async def test_what_was_stopped_or_failed_is_done_again(worker: Worker, master: FakeMaster) -> None:
    worker.order("trap 'exit 0' TERM; touch up; while :; do sleep 0.02; done")
    await until((worker.path() / "work" / "up").exists)
    worker.halt()
    assert outcome(await master.phase(RUN, 1, pb.PHASE_EXITED)) == (0, True, False)
    for attempt in (2, 3):
        worker.order("exit 4", attempt=attempt)
        assert outcome(await master.phase(RUN, attempt, pb.PHASE_EXITED)) == (4, False, False)


async def test_an_exit_on_record_needs_no_runtime_that_remembers_it(
    worker: Worker, master: FakeMaster
) -> None:
    worker.order(f'{ENDING}; echo out > "$EVA_STORAGE/outputs/out"')
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    await until((worker.path() / "work" / "up").exists)
    away = master.store.rename(master.store.with_name("away"))
    master.store.touch()  # The store fails.
    (worker.path() / "work" / "go").touch()
    record = worker.path() / "record.json"
    await until(lambda: json.loads(record.read_text())["stage"] == "closing")
    worker.supervisor.suspend()
    agent = worker.agent()
    assert agent
    agent.kill()
    shutil.rmtree(worker.home / "state" / "runtime" / RUN)
    master.store.unlink()
    away.rename(master.store)
    worker.supervisor.resume()
    await master.until(lambda: len(master.sessions) > 1)
    assert outcome(await master.phase(RUN, 1, pb.PHASE_EXITED)) == (0, False, False)
    assert (master.store / "jobs" / RUN / "outputs" / "out").read_text() == "out\n"


async def test_a_failure_tells_the_end_of_its_log(worker: Worker, master: FakeMaster) -> None:
    worker.order(r"printf 'early\n\nlate \033[31mred\033]0;x\007\n\377last\n'; exit 3")
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    said = r"early | late \x1b[31mred\x1b]0;x\x07 | \xfflast"
    assert (report.message, report.blameless) == (f"its log ends: {said}", False)
    worker.order("yes x | head -c 100000 | tr -d '\\n'; exit 3", run="job-2/0")
    report = await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    assert report.message.endswith("xxx")
    assert len(report.message) < 500


async def test_a_task_that_leaving_turns_down_has_not_failed(
    worker: Worker, master: FakeMaster
) -> None:
    slow = "trap 'touch asked; until [ -e go ]; do sleep 0.02; done; exit 0' TERM;"
    worker.order(f"{slow} touch up; while :; do sleep 0.02; done")
    work = worker.path() / "work"
    await until((work / "up").exists)
    assert worker.process
    worker.process.terminate()
    await until((work / "asked").exists)
    worker.order("true", run="job-2/0")
    assert outcome(await master.phase("job-2/0", 1, pb.PHASE_EXITED)) == (0, True, True)
    (work / "go").touch()
    async with asyncio.timeout(DEADLINE_S):
        assert await worker.process.wait() == 0
