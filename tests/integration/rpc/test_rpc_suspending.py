"""Commands that suspend and resume jobs, and what is shown of them, over real connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.control.state.store import State
from eva_master.model.events import JobSubmitted, ResumeRequested, SuspendRequested
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.errors import NotAuthorised, NotFound
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, add_job, refusal, rpc_master, spec
from tests.integration.rpc.test_rpc_jobs import JOB_YAML


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


COMMANDS = [
    ("Suspend", pb.SuspendRequest, SuspendRequested),
    ("Resume", pb.ResumeRequest, ResumeRequested),
]


@pytest.mark.parametrize(("name", "request_", "event"), COMMANDS)
async def test_owners_and_operators_may_and_others_may_not(
    master: RpcMaster, name: str, request_: type, event: type
) -> None:
    job = await master.loop.change(lambda state: add_job(state, spec("resnet", owner="ann")))
    for owner, role in (("ann", Role.USER), ("root", Role.OPERATOR)):
        stub = JobsStub(master.channel_of(owner, role))
        answer = await getattr(stub, name)(request_(command_id=f"c-{owner}", job=job))
        assert answer.job_id == job
    assert master.loop.commands == [event("c-ann", job, "ann"), event("c-root", job, "root")]
    for owner, role in (("ben", Role.USER), ("ann", Role.VIEWER)):
        stub = JobsStub(master.channel_of(owner, role))
        status, error = await refusal(getattr(stub, name)(request_(job=job)))
        assert (status, type(error)) == (grpc.StatusCode.PERMISSION_DENIED, NotAuthorised)
    status, error = await refusal(getattr(master.jobs, name)(request_(job="nope")))
    assert (status, type(error)) == (grpc.StatusCode.NOT_FOUND, NotFound)
    assert len(master.loop.commands) == 2


async def test_the_master_is_told_whether_an_operator_submits(master: RpcMaster) -> None:
    for owner, role in (("ann", Role.USER), ("root", Role.OPERATOR)):
        stub = JobsStub(master.channel_of(owner, role))
        await stub.Submit(pb.SubmitRequest(job_yaml=JOB_YAML.format(name="resnet")))
    submitted = [it for it in master.loop.commands if isinstance(it, JobSubmitted)]
    assert [(it.spec.owner, it.operator) for it in submitted] == [("ann", False), ("root", True)]


async def test_a_job_is_shown_as_suspended_with_the_reason(master: RpcMaster) -> None:
    def suspended(state: State) -> JobId:
        job = add_job(state, spec("resnet"))
        told = Suspension(Suspender.USER, Millis(7), who="ann")
        state.put_job(replace(state.jobs[job], suspension=told))
        return job

    job = await master.loop.change(suspended)
    shown = await master.jobs.Get(pb.GetJobRequest(job=job))
    assert shown.state == "suspended"
    assert (shown.suspension.by, shown.suspension.since_ms) == ("user", 7)
    assert shown.suspension.reason == "suspended by ann"
    assert {task.waiting_for for task in shown.tasks} == {"suspended by ann"}


async def test_a_job_whose_tasks_a_plan_has_suspended_is_shown_so(master: RpcMaster) -> None:
    told = Suspension(Suspender.PRIORITY, Millis(7), reason="x", job=JobId("u-9"))

    def suspended(state: State) -> JobId:
        job = add_job(state, spec("resnet"))
        for run in list(state.members(job)):
            state.put_run(replace(run, suspension=told, waiting_for="no room at present"))
        return job

    job = await master.loop.change(suspended)
    shown = await master.jobs.Get(pb.GetJobRequest(job=job))
    assert (shown.state, shown.suspension.job) == ("suspended", "u-9")
    for task in shown.tasks:
        assert task.suspension.by == "priority"
        assert task.waiting_for.startswith(told.words)
        assert task.waiting_for.endswith("no room at present")
