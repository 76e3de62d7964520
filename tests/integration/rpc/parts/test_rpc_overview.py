"""The cluster at a glance, tasks on instances, and lists of jobs on conditions, over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.notices.receivers import ReceiverStatus
from eva_master.adapters.rpc.server.overview import attention
from eva_master.control.state.store import State
from eva_master.model.feed import FeedEvent, FeedKind
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.rpc.server import RpcMaster, add_instance, add_job, refusal, rpc_master, spec


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def two_jobs(state: State) -> None:
    """One job moves from the first instance to the second, another one waits."""
    first, second = add_instance(state), add_instance(state, "i-2")
    running = add_job(state, spec("running"))
    add_job(state, spec("Waiting"))
    run = next(state.members(running)).to(RunState.STARTING, Millis(1000))
    run = run.to(RunState.RUNNING, Millis(1500))
    state.put_run(replace(run, attempt=1, instance=first, target=second))
    state.put_job(state.jobs[running].to(JobState.RUNNING, Millis(1500)))


async def test_tasks_are_told_of_on_their_instances_if_they_are_asked_for(
    master: RpcMaster,
) -> None:
    await master.loop.change(two_jobs)
    state = await master.cluster.Describe(pb.DescribeRequest(placed=True))
    by_id = {instance.id: instance for instance in state.instances}
    (task,) = by_id["i-1"].placed
    assert (task.task, task.name, task.part) == ("running-1/0", "running", "")
    assert (task.state, task.target, task.since_ms) == ("running", "i-2", 1500)
    assert (task.share.milli_cpus, task.share.gpus) == (1000, 0)
    without = await master.cluster.Describe(pb.DescribeRequest())
    assert not any(instance.placed for instance in without.instances)


async def test_one_instance_is_told_of_by_its_id(master: RpcMaster) -> None:
    await master.loop.change(two_jobs)
    state = await master.cluster.Describe(pb.DescribeRequest(instance="i-2"))
    assert [instance.id for instance in state.instances] == ["i-2"]
    _, error = await refusal(master.cluster.Describe(pb.DescribeRequest(instance="i-9")))
    assert isinstance(error, NotFound)
    assert error.message == "there is no instance 'i-9'"


async def test_the_overview_has_sums_the_newest_events_and_what_needs_attention(
    master: RpcMaster,
) -> None:
    def failed(state: State) -> None:
        two_jobs(state)
        state.sessions.end(InstanceId("i-2"))
        at_ms = Millis(SystemClock().now())
        state.feed.extend(
            FeedEvent(number, at_ms, kind, job=JobId("running-1"), text=text)
            for number, (kind, text) in enumerate(
                ((FeedKind.SUBMITTED, "submitted"), (FeedKind.FAILED, "failure 1: exit code 3")), 1
            )
        )

    await master.loop.change(failed)
    answer = await master.cluster.Overview(pb.OverviewRequest())
    assert answer.instances == 2
    assert dict(answer.state.jobs_by_state) == {"pending": 1, "running": 1}
    assert not answer.state.instances
    assert [event.text for event in answer.events] == ["submitted", "failure 1: exit code 3"]
    notes = {note.subject: note for note in answer.notes}
    assert notes["i-2"].sentence == "Its agent is not connected."
    assert notes["running-1"].sentence == "Failure 1: exit code 3."
    assert notes["running-1"].command == "eva logs running-1"


async def test_jobs_are_listed_by_state_and_by_text(master: RpcMaster) -> None:
    await master.loop.change(two_jobs)

    async def listed(**conditions: object) -> list[str]:
        answer = await master.jobs.List(pb.ListJobsRequest(**conditions))  # type: ignore[arg-type]
        return [job.name for job in answer.jobs]

    assert await listed(states=["running"]) == ["running"]
    assert await listed(states=["pending", "running"]) == ["Waiting", "running"]
    assert await listed(states=["suspended"]) == []
    assert await listed(search="WAIT") == ["Waiting"]
    assert await listed(search="wait", states=["running"]) == []
    assert await listed(search="running-1", all=True) == ["running"]
    for conditions, words in (
        (pb.ListJobsRequest(states=["up"]), "'up' is no state of a job"),
        (pb.ListJobsRequest(search="x" * 201), "a search has at most 200 characters"),
    ):
        _, error = await refusal(master.jobs.List(conditions))
        assert error.message.startswith(words)


async def test_a_page_of_jobs_on_a_condition_is_full_and_names_the_next_one(
    master: RpcMaster,
) -> None:
    def many(state: State) -> None:
        for number in range(6):
            add_job(state, spec("even" if number % 2 == 0 else "odd"))

    await master.loop.change(many)
    request = pb.ListJobsRequest(search="odd", page_size=2)
    answer = await master.jobs.List(request)
    assert [job.name for job in answer.jobs] == ["odd", "odd"]
    request.page_token = answer.next_page_token
    answer = await master.jobs.List(request)
    assert [job.name for job in answer.jobs] == ["odd"]
    assert not answer.next_page_token


async def test_a_receiver_that_takes_no_notices_needs_attention() -> None:
    statuses = (
        ReceiverStatus("team", "https://a.example"),
        ReceiverStatus("pager", "https://b.example", waiting=7, dropped=3, reason="it answers 500"),
    )
    (note,) = attention.of_receivers(statuses)
    assert note.sentence == (
        "The receiver pager takes no notices: it answers 500. 7 wait; 3 were dropped."
    )
    assert note.command == "eva notify test pager"
