"""Tasks of jobs page by page, over a real connection, and what is told of large jobs unasked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.control.state.store import State
from eva_master.model.records import Job
from eva_master.ports.reading import SMALL_JOB
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import JobId, Millis, run_id
from eva_wire.values.states import JobState, RunState
from tests.fakes.rpc.server import RpcMaster, refusal, rpc_master, spec

SIZE = 2_500
FAILED = (7, 1_234)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def add_array(state: State) -> JobId:
    """An array of which two tasks have failed and all others wait, without records of these."""
    name = JobId(f"sweep-{state.count(jobs=1).jobs}")
    array = spec("sweep", tasks=SIZE, kind=JobKind.ARRAY)
    state.put_job(Job(name, array, Millis(1), ((JobState.PENDING.value, 1),), command="sweep"))
    for index in FAILED:
        run = state.runs[run_id(name, index)]
        over = replace(run, history=(*run.history, (RunState.FAILED.value, 5)), failures=3)
        state.put_run(replace(over, reason="it exited with 7", exit_code=7))
    return name


async def test_a_job_of_thousands_of_tasks_is_told_in_few_bytes(master: RpcMaster) -> None:
    name = await master.loop.change(add_array)
    job = await master.jobs.Get(pb.GetJobRequest(job=name))
    assert [task.index for task in job.tasks] == list(FAILED)
    assert job.task_count == SIZE
    assert dict(job.tasks_by_state) == {"failed": 2, "waiting": SIZE - 2}
    (listed,) = (await master.jobs.List(pb.ListJobsRequest())).jobs
    assert len(listed.tasks) <= SMALL_JOB
    watched = await master.jobs.Watch(pb.WatchRequest(jobs=[name])).read()
    assert watched.ByteSize() < 2_000
    assert dict(watched.tasks_by_state) == {"failed": 2, "waiting": SIZE - 2}


async def test_tasks_are_told_page_by_page(master: RpcMaster) -> None:
    name = await master.loop.change(add_array)

    async def page(**asked: object) -> list[int]:
        request = pb.GetJobRequest(job=name, tasks=pb.TaskPage(**asked))
        return [task.index for task in (await master.jobs.Get(request)).tasks]

    assert await page(first=0, size=1_000) == list(range(1_000))
    assert await page(first=2_000, size=1_000) == list(range(2_000, SIZE))
    assert await page(first=10) == list(range(10, 110))
    assert len(await page(size=4_000_000_000)) == 1_000
    assert await page(failed=True) == list(FAILED)
    assert await page(first=8, failed=True) == [1_234]
    assert await page(first=4_000_000_000, failed=True) == []


async def test_a_task_tells_how_it_failed(master: RpcMaster) -> None:
    name = await master.loop.change(add_array)
    request = pb.GetJobRequest(job=name, tasks=pb.TaskPage(first=7, size=1))
    (task,) = (await master.jobs.Get(request)).tasks
    assert (task.state, task.failures, task.reason) == ("failed", 3, "it exited with 7")
    assert task.exit_code == 7


async def test_an_index_that_a_job_has_not_is_refused_with_those_that_it_has(
    master: RpcMaster,
) -> None:
    name = await master.loop.change(add_array)
    asked = pb.GetJobRequest(job=name, tasks=pb.TaskPage(first=SIZE, size=1))
    status, error = await refusal(master.jobs.Get(asked))
    assert (status, type(error)) == (grpc.StatusCode.NOT_FOUND, NotFound)
    assert f"no task {SIZE}: it has 2,500 tasks, 0 to 2499" in str(error)
    logs = master.jobs.Logs(pb.LogsRequest(job=name, task=SIZE))
    status, error = await refusal(logs.read())
    assert status is grpc.StatusCode.NOT_FOUND
    assert "0 to 2499" in str(error)
