"""Labels of jobs over gRPC: shown, filtered, bounded, kept by retries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_client.cli.views import shapes
from eva_master.control.state.store import State
from eva_master.model.records import Outcome
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.rpc.server import RpcMaster, add_job, rpc_master, spec


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def labelled(state: State, name: str, *, over: bool = False, **labels: str) -> JobId:
    job = add_job(state, replace(spec(name), labels=tuple(sorted(labels.items()))))
    if over:
        (run,) = state.members(job)
        state.put_run(run.to(RunState.CANCELLED, Millis(2_000)))
        record = state.jobs[job].to(JobState.ENDING, Millis(2_000))
        record = record.to(JobState.CANCELLED, Millis(2_000))
        state.put_job(replace(record, outcome=Outcome.CANCELLED, finished_ms=Millis(2_000)))
    return job


def some(state: State) -> None:
    labelled(state, "a", team="vision", tier="1", over=True)
    labelled(state, "b", team="vision")
    labelled(state, "c")
    labelled(state, "d", team="speech", tier="1")
    labelled(state, "e", team="vision", tier="1")


async def names(master: RpcMaster, *, size: int = 0, ended: bool = False, **labels: str) -> str:
    """Names of the listed jobs, one letter each, over all pages."""
    listed, token = "", ""
    while True:
        request = pb.ListJobsRequest(page_size=size, page_token=token, all=ended, labels=labels)
        page = await master.jobs.List(request)
        listed += "".join(job.name for job in page.jobs)
        token = page.next_page_token
        if not token:
            return listed


@pytest.mark.parametrize("size", [0, 1, 2])
async def test_jobs_are_listed_that_have_all_of_the_labels(master: RpcMaster, size: int) -> None:
    await master.loop.change(some)
    assert await names(master, size=size) == "edcb"
    assert await names(master, size=size, team="vision") == "eb"
    assert await names(master, size=size, team="vision", tier="1") == "e"
    assert await names(master, size=size, ended=True, team="vision", tier="1") == "ea"
    assert await names(master, size=size, team="none") == ""


async def test_a_job_is_shown_with_its_labels(master: RpcMaster) -> None:
    await master.loop.change(some)
    message = await master.jobs.Get(pb.GetJobRequest(job="e"))
    assert dict(message.labels) == {"team": "vision", "tier": "1"}
    assert shapes.job(message)["labels"] == {"team": "vision", "tier": "1"}
    assert shapes.job(await master.jobs.Get(pb.GetJobRequest(job="c")))["labels"] == {}


async def test_more_labels_than_a_job_may_have_are_refused(master: RpcMaster) -> None:
    labels = {f"k{number}": "v" for number in range(17)}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await master.jobs.List(pb.ListJobsRequest(labels=labels))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "16 are the most" in (refused.value.details() or "")


async def test_a_retry_has_the_labels(master: RpcMaster) -> None:
    await master.loop.change(some)
    answer = await master.jobs.Retry(pb.RetryRequest(command_id="r", job="a-1"))
    message = await master.jobs.Get(pb.GetJobRequest(job=answer.job_id))
    assert dict(message.labels) == {"team": "vision", "tier": "1"}
