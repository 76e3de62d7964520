"""Partitions over gRPC and in the metrics: who may use which, and what each has and costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.http.metrics import MasterMetrics
from eva_master.adapters.loop.clock import SystemClock
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.events import JobSubmitted, MoveRequested
from eva_master.model.fleet.job_keys import KeysRead
from eva_master.model.fleet.partitions import (
    Budget,
    Offers,
    Partition,
    PartitionLimits,
    Partitions,
    Rule,
)
from eva_master.model.records import Outcome
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import RpcMaster, add_instance, add_job, refusal, rpc_master, spec
from tests.integration.rpc.test_rpc_cluster import scrape

PARTS = Partitions(
    (
        Partition(
            "quick",
            policy="no_packing",
            limits=PartitionLimits(jobs=7),
            budget=Budget(per_hour=2_000_000),
            submitters=OwnerPatterns(("ada",)),
            rule=Rule(below_ms=60_000),
        ),
        Partition("none", offers=Offers(families=frozenset({"g"}))),
        Partition(
            "main", policy="first-fit", default=True, keys=KeysRead("first-fit", frozenset())
        ),
    )
)
JOB = "name: {}\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n{}"


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path, partitions=PARTS) as running:
        yield running


async def submit(master: RpcMaster, name: str, owner: str = "ada", more: str = "") -> str:
    jobs = JobsStub(master.channel_of(owner, Role.USER))
    text = JOB.format(name, more)
    request = pb.SubmitRequest(job_yaml=text, file_name="f", command_id=f"c-{name}")
    return str((await jobs.Submit(request)).job_id)


async def test_a_submission_is_given_its_partition(master: RpcMaster) -> None:
    await submit(master, "a", more="duration: 5s\n")
    await submit(master, "b")
    await submit(master, "c", more="partition: quick\n")
    await submit(master, "d", owner="bo", more="duration: 5s\n")
    specs = [it.spec for it in master.loop.commands if isinstance(it, JobSubmitted)]
    assert [it.partition for it in specs] == ["quick", "main", "quick", "main"]
    listed = await master.jobs.List(pb.ListJobsRequest())
    assert {job.name: job.partition for job in listed.jobs}["a"] == "quick"


def end(state: State, name: JobId) -> None:
    job = state.jobs[name].to(JobState.ENDING, Millis(2_000)).to(JobState.FAILED, Millis(2_000))
    state.put_job(replace(job, outcome=Outcome("failed")))


async def test_keys_that_no_policy_of_the_partition_reads_are_told_of(master: RpcMaster) -> None:
    told = "`value`: the policy first-fit does not read this key"
    jobs = JobsStub(master.channel_of("ada", Role.USER))
    worth = "value: {worth: $5}\n"
    request = pb.SubmitRequest(job_yaml=JOB.format("a", worth), file_name="f", command_id="c")
    answer = await jobs.Submit(request)
    assert [note.startswith(told) for note in answer.notes] == [True]
    plan = await jobs.Plan(pb.PlanRequest(job_yaml=JOB.format("a", worth), file_name="f"))
    assert plan.notes == answer.notes
    cluster = ClusterStub(master.channel_of("ada", Role.USER))
    explained = await cluster.Explain(pb.ExplainRequest(subject=answer.job_id))
    assert explained.notes == answer.notes
    await master.loop.change(lambda state: end(state, JobId(answer.job_id)))
    again = await jobs.Retry(pb.RetryRequest(command_id="r", job=answer.job_id))
    assert again.notes == answer.notes
    other = JOB.format("b", worth + "partition: quick\n")
    request = pb.SubmitRequest(job_yaml=other, file_name="f", command_id="d")
    assert (await jobs.Submit(request)).notes == []


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        ("bo", "quick", "bo may not run jobs in partition 'quick'"),
        ("ada", "quik", "there is no partition 'quik'"),
        ("ada", "none", "in partition none, the task can run on no family"),
    ],
)
async def test_a_partition_that_cannot_be_is_refused_with_line_and_key(
    master: RpcMaster, owner: str, name: str, words: str
) -> None:
    status, error = await refusal(submit(master, "a", owner, f"partition: {name}\n"))
    assert status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
    assert words in str(error)
    assert "f:" in str(error)
    assert not master.loop.commands


async def test_a_move_is_a_command_of_the_owner_or_of_an_operator(master: RpcMaster) -> None:
    await submit(master, "a")
    others = JobsStub(master.channel_of("bo", Role.USER))
    status, _ = await refusal(others.Move(pb.MoveRequest(job="a-1", partition="quick")))
    assert status is grpc.StatusCode.PERMISSION_DENIED
    for who, role in (("ada", Role.USER), ("ops", Role.OPERATOR)):
        stub = JobsStub(master.channel_of(who, role))
        await stub.Move(pb.MoveRequest(command_id=who, job="a-1", partition="quick"))
    moves = [it for it in master.loop.commands if isinstance(it, MoveRequested)]
    assert [(it.owner, it.operator, it.partition) for it in moves] == [
        ("ada", False, "quick"),
        ("ops", True, "quick"),
    ]


def ended_in(partition: str, owner: str) -> Callable[[State], JobId]:
    """A job of an owner that has ended in a partition, to which an operator had moved it."""

    def end(state: State) -> JobId:
        name = add_job(state, replace(spec("old"), owner=owner))
        over = state.jobs[name].to(JobState.ENDING, Millis(1)).to(JobState.FAILED, Millis(2))
        state.put_job(replace(over, outcome=Outcome.FAILED, moved_to=partition))
        return name

    return end


async def test_a_retry_runs_where_its_owner_may_run_jobs(master: RpcMaster) -> None:
    job = await master.loop.change(ended_in("quick", "bo"))
    bo = JobsStub(master.channel_of("bo", Role.USER))
    status, error = await refusal(bo.Retry(pb.RetryRequest(job=job)))
    assert status is grpc.StatusCode.PERMISSION_DENIED
    assert f"bo may not run jobs in partition quick, where {job} ran" in str(error)
    assert not master.loop.commands
    await JobsStub(master.channel_of("ops", Role.OPERATOR)).Retry(pb.RetryRequest(job=job))
    gone = await master.loop.change(ended_in("gone", "bo"))
    await bo.Retry(pb.RetryRequest(job=gone))
    specs = [it.spec for it in master.loop.commands if isinstance(it, JobSubmitted)]
    assert [(it.owner, it.partition) for it in specs] == [("bo", "quick"), ("bo", "main")]


def one_instance_each(state: State) -> None:
    """An instance for each of two partitions."""
    for name, partition in (("i-1", "quick"), ("i-2", "main"), ("i-3", "main")):
        add_instance(state, name)
        instance = replace(state.instances[name], partition=partition)
        state.put_instance(instance)
        ledger.open_account(state, instance)
        ledger.book(state, instance.id, Millis(3_600_950))


async def test_every_user_sees_what_partitions_have_and_cost(master: RpcMaster) -> None:
    await submit(master, "a", more="partition: quick\n")
    await master.loop.change(one_instance_each)
    looking = ClusterStub(master.channel_of("guest", Role.VIEWER))
    answer = await looking.Partitions(pb.PartitionsRequest())
    assert [(it.name, it.policy, it.jobs, it.instances, it.open) for it in answer.partitions] == [
        ("quick", "no_packing", 1, 1, False),
        ("none", "", 0, 0, True),
        ("main", "first-fit", 0, 2, True),
    ]
    quick, none, main = answer.partitions
    assert (quick.most_jobs, quick.budget_micro_usd_per_hour) == (7, 2_000_000)
    assert (quick.offerings, none.offerings, main.offerings) == (2, 0, 2)
    assert quick.price_micro_usd_per_hour == 89_250
    assert sum(it.cost_micro_usd for it in answer.partitions) == answer.bill.cost_micro_usd
    described = await looking.Describe(pb.DescribeRequest())
    assert {it.id: it.partition for it in described.instances} == {
        "i-1": "quick",
        "i-2": "main",
        "i-3": "main",
    }


async def test_metrics_tell_partitions_apart(master: RpcMaster) -> None:
    await submit(master, "a", more="partition: quick\n")
    await master.loop.change(one_instance_each)
    metrics = MasterMetrics(
        gateway=master.loop.gateway,
        inbox=master.loop.inbox,
        sessions=master.sessions,
        clock=SystemClock(),
    )
    server = metrics.serve("127.0.0.1", 0, authority().server())
    try:
        found = await asyncio.to_thread(scrape, server.port)
    finally:
        await asyncio.to_thread(server.stop)
    assert found["eva_partition_jobs", "quick"] == 1
    assert found["eva_partition_tasks", "main"] == 0
    assert found["eva_partition_instances", "main"] == 2
    assert found["eva_partition_cost_usd_total", "quick"] >= 0.08925
    assert ("eva_partition_month_usd", "none") in found
