"""What left the master's memory is shown as before, and no question reaches the control loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.errors import NotAuthorised
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import InstanceState, JobState, RunState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    DEADLINE_S,
    JOB_YAML,
    RpcMaster,
    add_instance,
    add_job,
    refusal,
    rpc_master,
    spec,
)

FOR_GOOD = Millis(10**14)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def lived(state: State, name: str, number: int) -> JobId:
    """A job that ran on an instance of its own; both are over."""
    place, job = add_instance(state, f"i{number:05d}"), add_job(state, spec(name))
    ledger.open_account(state, state.instances[place])
    (run,) = state.members(job)
    running = run.to(RunState.STARTING, Millis(1000)).to(RunState.RUNNING, Millis(1000))
    state.put_run(replace(running, attempt=1, instance=place, target=place, moves=1))
    ledger.book(state, place, Millis(3_600_950 * number))
    ended = state.runs[run.id].to(RunState.SUCCEEDED, Millis(2000))
    state.put_run(replace(ended, instance=None, target=None, exit_code=0))
    ending = state.jobs[job].to(JobState.ENDING, Millis(2000))
    done = replace(
        ending.to(JobState.SUCCEEDED, Millis(2001)), exit_code=0, finished_ms=Millis(2001)
    )
    state.put_job(done)
    state.sessions.end(place)
    gone = state.instances[place].to(InstanceState.GONE, Millis(2002))
    state.put_instance(replace(gone, gone_ms=Millis(3_600_950 * number)))
    ledger.close_account(state, state.instances[place])
    return job


async def five(master: RpcMaster) -> list[JobId]:
    """Five jobs that are over, an active one submitted between them; newest first."""
    names = await master.loop.change(
        lambda state: [
            *(lived(state, f"old{number}", number) for number in (1, 2)),
            add_job(state, spec("active")),
            *(lived(state, f"old{number}", number) for number in (3, 4, 5)),
        ]
    )
    return names[::-1]


async def everything(master: RpcMaster, name: str) -> dict[str, object]:
    """What every read says, as far as it is the same before and after something is forgotten."""
    jobs, instances, bills = [], [], []
    request = pb.ListJobsRequest(page_size=2, all=True)
    while True:
        page = await master.jobs.List(request)
        assert len(page.jobs) <= 2
        jobs += page.jobs
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    describe = pb.DescribeRequest(page_size=2, all=True)
    while True:
        cluster = await master.cluster.Describe(describe)
        instances += cluster.instances
        if not cluster.next_page_token:
            break
        describe.page_token = cluster.next_page_token
    cost = pb.CostRequest(page_size=3)
    while True:
        bill = await master.cluster.Cost(cost)
        bills += [*bill.jobs, *bill.instances]
        cost.jobs_page_token = bill.next_jobs_page_token
        cost.instances_page_token = bill.next_instances_page_token
        if not bill.next_jobs_page_token:
            assert not bill.next_instances_page_token
            break
    explained = await master.cluster.Explain(pb.ExplainRequest(subject=name))
    job = await master.jobs.Get(pb.GetJobRequest(job=name))
    named = await master.jobs.Get(pb.GetJobRequest(job=name.rpartition("-")[0]))
    for told in (explained, explained.job, job, named, *jobs):
        told.now_ms = 0
    return {
        "jobs": jobs,
        "instances": instances,
        "bills": bills,
        "sums": (bill.cost_micro_usd, bill.idle_micro_usd, bill.no_packing_micro_usd),
        "migrations": bill.migrations,
        "counts": (dict(cluster.jobs_by_state), dict(cluster.tasks_by_state)),
        "job": job,
        "named": named,
        "explained": explained,
        "instance": await master.cluster.Explain(pb.ExplainRequest(subject="i00001")),
    }


async def test_every_read_says_the_same_before_and_after_something_is_forgotten(
    master: RpcMaster,
) -> None:
    names = await five(master)
    before = await everything(master, "old2-2")
    before.pop("instance")
    assert [job.id for job in before["jobs"]] == names
    assert [job.id for job in before["bills"][:3]] == names[:3]
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 4))
    half = await everything(master, "old2-2")
    half.pop("instance")
    assert half == before
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 100))
    assert list(master.loop.state.jobs) == ["active-3"]
    after = await everything(master, "old2-2")
    assert after.pop("instance").kind == "instance"
    assert after == before


async def test_no_read_reaches_the_control_loop(master: RpcMaster) -> None:
    await five(master)
    before = master.loop.inbox.received
    await everything(master, "old2-2")
    await master.cluster.Interference(pb.InterferenceRequest())
    stream = master.jobs.Watch(pb.WatchRequest())
    async with asyncio.timeout(DEADLINE_S):
        assert (await stream.read()).id == "active-3"
    stream.cancel()
    # The answer to a question of its own; nothing else came.
    await master.loop.change(lambda _: None)
    assert master.loop.inbox.received == before + 1


async def test_a_stopped_control_loop_keeps_nobody_from_reading(master: RpcMaster) -> None:
    names = await five(master)
    master.loop.stop()
    page = await master.jobs.List(pb.ListJobsRequest(all=True))
    assert [job.id for job in page.jobs] == names


async def test_a_submission_is_known_long_after_its_job_left_memory(master: RpcMaster) -> None:
    request = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="once"))
    first = await master.jobs.Submit(request)

    def end(state: State) -> None:
        job = state.jobs[JobId(first.job_id)]
        state.put_job(replace(job, history=(("cancelled", 5),), command="c1"))

    await master.loop.change(end)
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 10))
    assert not master.loop.state.jobs
    again = await master.jobs.Submit(request)
    assert again.job_id == first.job_id
    assert not master.loop.state.jobs


async def test_an_old_job_may_be_cancelled_by_its_owner_alone_and_stays_as_it_is(
    master: RpcMaster,
) -> None:
    await five(master)
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 100))
    commands = len(master.loop.commands)
    cancelled = await master.jobs.Cancel(pb.CancelRequest(job="old1"))
    assert cancelled.job_id == "old1-1"
    assert len(master.loop.commands) == commands
    eve = JobsStub(master.channel_of("eve", Role.USER))
    status, error = await refusal(eve.Cancel(pb.CancelRequest(job="old1-1")))
    assert status is grpc.StatusCode.PERMISSION_DENIED
    assert isinstance(error, NotAuthorised)


async def test_the_log_of_an_old_job_is_read_and_followed_to_its_end(master: RpcMaster) -> None:
    await five(master)
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 100))
    await master.store.put("jobs/old1-1/0/logs/1/0", b"hello\n")
    for follow in (False, True):
        stream = master.jobs.Logs(pb.LogsRequest(job="old1", follow=follow))
        async with asyncio.timeout(DEADLINE_S):
            assert [chunk.data async for chunk in stream] == [b"hello\n"]


async def test_a_watch_of_an_old_job_shows_it_and_ends(master: RpcMaster) -> None:
    await five(master)
    await master.loop.change(lambda state: state.forget(FOR_GOOD, 100))
    stream = master.jobs.Watch(pb.WatchRequest(jobs=["old1", "old2-2"]))
    async with asyncio.timeout(DEADLINE_S):
        shown = [job.id async for job in stream]
    assert sorted(shown) == ["old1-1", "old2-2"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda master: master.jobs.List(pb.ListJobsRequest(all=True, page_token="?")),
        lambda master: master.cluster.Describe(pb.DescribeRequest(all=True, page_token="bm9wZQ==")),
        lambda master: master.cluster.Cost(pb.CostRequest(jobs_page_token="abc")),
        lambda master: master.cluster.Cost(pb.CostRequest(instances_page_token="bm9wZQ==")),
    ],
)
async def test_a_made_up_page_token_is_refused_everywhere(
    master: RpcMaster, ask: Callable[[RpcMaster], Awaitable[object]]
) -> None:
    status, _ = await refusal(ask(master))
    assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_sums_come_without_lists_when_nobody_wants_them(master: RpcMaster) -> None:
    await five(master)
    bill = await master.cluster.Cost(pb.CostRequest(without_jobs=True, without_instances=True))
    assert bill.cost_micro_usd > 0
    assert not bill.jobs
    assert not bill.instances
    assert not bill.next_jobs_page_token
