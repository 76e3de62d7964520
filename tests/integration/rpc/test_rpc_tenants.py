"""Tenants over gRPC: whose a submitted job is, and who may look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from eva_master.model.accounting.tenants import TenantRules
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, rpc_master

RULES = TenantRules({"vision": ("ada",), "speech": ("b*",)})
JOB = "name: {}\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n"


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path, tenants=RULES) as running:
        yield running


async def test_a_job_keeps_the_tenant_of_its_submission(master: RpcMaster) -> None:
    for owner in ("ada", "bo", "carl"):
        jobs = JobsStub(master.channel_of(owner, Role.USER))
        request = pb.SubmitRequest(
            job_yaml=JOB.format(f"of-{owner}"), file_name="f", command_id="c"
        )
        await jobs.Submit(request)
    listed = await master.jobs.List(pb.ListJobsRequest())
    assert {job.owner: job.tenant for job in listed.jobs} == {
        "ada": "vision",
        "bo": "speech",
        "carl": "default",
    }
    held = master.loop.journal.load().jobs
    assert {job.spec.owner: job.spec.tenant for job in held}["bo"] == "speech"


async def test_every_user_sees_all_tenants_as_they_see_all_costs(master: RpcMaster) -> None:
    jobs = JobsStub(master.channel_of("bo", Role.USER))
    await jobs.Submit(pb.SubmitRequest(job_yaml=JOB.format("a"), file_name="f", command_id="c"))
    looking = ClusterStub(master.channel_of("guest", Role.VIEWER))
    answer = await looking.Tenants(pb.TenantsRequest())
    assert [(one.name, dict(one.jobs_by_state)) for one in answer.tenants] == [
        ("vision", {}),
        ("speech", {"pending": 1}),
        ("default", {}),
    ]


async def test_every_user_is_told_costs_by_type_and_by_owner(master: RpcMaster) -> None:
    looking = ClusterStub(master.channel_of("guest", Role.VIEWER))
    for by in ("type", "owner"):
        bill = await looking.Cost(pb.CostRequest(by=by))
        assert (bill.by, list(bill.shares)) == (by, [])
    assert not (await looking.Cost(pb.CostRequest())).by
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await looking.Cost(pb.CostRequest(by="moon" * 1000))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
