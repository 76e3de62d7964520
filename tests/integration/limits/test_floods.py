"""Many calls at once, while the master has no time to take them, cost no caller its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.rpc.server.admission import pacing
from eva_master.control.state.store import State
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Outcome
from eva_master.model.values import replace
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.errors import Busy
from eva_wire.values.ids import Millis, Workload
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    DEADLINE_S,
    JOB_YAML,
    RpcMaster,
    add_job,
    refusal,
    rpc_master,
    spec,
)

_CALLS = 3_500
"""More than the three thousand that gRPC keeps by default until they are taken."""


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def test_calls_that_come_while_the_master_is_busy_are_all_answered(master: RpcMaster) -> None:
    credentials = grpc.ssl_channel_credentials(master.authorities)
    options = [("grpc.ssl_target_name_override", MASTER_NAME)]
    address = f"127.0.0.1:{master.ports.users}"
    with grpc.secure_channel(address, credentials, options) as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result, DEADLINE_S)
        describe = ClusterStub(channel).Describe
        # The master's loop is this one, which has no turn until all calls are sent.
        calls = [describe.future(pb.DescribeRequest(), timeout=DEADLINE_S) for _ in range(_CALLS)]
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.to_thread(lambda: [call.exception() for call in calls])
        codes = {call.code() for call in calls}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}


async def test_large_submissions_and_retries_of_one_user_count_together(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "_TEXT_PER_SECOND", 1)
    monkeypatch.setattr(pacing, "_TEXT_BURST_S", 1.0)
    task = TaskSpec(Workload("w"), Program("x" * 1_000_000), spec("big").tasks[0].demand)

    def ended(state: State) -> None:
        for owner in ("ada", "bob"):
            name = add_job(state, JobSpec("big", owner, (task,)))
            over = state.jobs[name].to(JobState.ENDING, Millis(2_000))
            over = over.to(JobState.CANCELLED, Millis(2_000))
            state.put_job(replace(over, outcome=Outcome.CANCELLED))

    await master.loop.change(ended)
    submission = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="small"))
    ada, bob = (JobsStub(master.channel_of(owner, Role.USER)) for owner in ("ada", "bob"))
    assert (await ada.Retry(pb.RetryRequest(job="big"))).retry_of == "big-1"
    for call in (ada.Retry(pb.RetryRequest(job="big-1")), ada.Submit(submission)):
        status, error = await refusal(call)
        assert (status, type(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, Busy)
    for _ in range(2):  # A repeated one counts once.
        assert (await bob.Submit(submission)).job_id.startswith("small")
    status, error = await refusal(bob.Retry(pb.RetryRequest(job="big-2")))
    assert (status, type(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, Busy)
