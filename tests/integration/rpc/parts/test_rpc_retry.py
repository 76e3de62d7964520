"""The command that does an ended job again, over real connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.control.state.store import State
from eva_master.model.events import JobSubmitted
from eva_master.model.job import CheckpointOrigin, JobOutputs, JobSpec, Retry
from eva_master.model.records import Outcome
from eva_master.testing.job_views import with_values
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import (
    InvalidJob,
    InvalidRequest,
    JobActive,
    NotAuthorised,
    NotFound,
    NothingToRetry,
)
from eva_wire.values.ids import JobId, Millis, run_id
from eva_wire.values.states import JobState, RunState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, add_job, refusal, rpc_master, spec

MANY = 1_500


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def ended(state: State, job: JobSpec, how: JobState, *failed: int) -> JobId:
    """A job that has ended; of an array the named tasks failed and the others succeeded."""
    name = add_job(state, job)
    for index in range(len(job.tasks)) if job.kind is JobKind.ARRAY else ():
        run = state.runs[run_id(name, index)]
        over = RunState.FAILED if index in failed else RunState.SUCCEEDED
        state.put_run(replace(run, history=(*run.history, (over.value, 2_000)), attempt=1))
    over_job = state.jobs[name].to(JobState.ENDING, Millis(2_000)).to(how, Millis(2_000))
    state.put_job(replace(over_job, outcome=Outcome(how.value)))
    return name


def array(tasks: int = 30, **more: object) -> JobSpec:
    return with_values(spec("sweep", tasks=tasks, kind=JobKind.ARRAY), more)


def submitted(master: RpcMaster) -> JobSubmitted:
    command = master.loop.commands[-1]
    assert isinstance(command, JobSubmitted)
    return command


async def test_the_failed_tasks_of_an_array_are_done_again_once(master: RpcMaster) -> None:
    old = await master.loop.change(lambda state: ended(state, array(), JobState.FAILED, 3, 7))
    request = pb.RetryRequest(command_id="c-1", job="sweep", failed=True)
    answers = [await master.jobs.Retry(request) for _ in range(2)]
    assert answers == [pb.RetryResponse(job_id="sweep-2", retry_of=old, tasks=2)] * 2
    assert len(master.loop.commands) == 1
    event = submitted(master)
    assert event.spec == array(
        retry=Retry(old, (3, 7), (CheckpointOrigin(old, (3, 7)),)),
        tenant=event.spec.tenant,
    )
    shown = await master.jobs.Get(pb.GetJobRequest(job="sweep-2"))
    assert (shown.retry_of, shown.task_count) == (old, 2)


@pytest.mark.parametrize("forgotten", [False, True])
async def test_large_arrays_are_read_page_by_page_also_from_the_journal(
    master: RpcMaster, forgotten: bool
) -> None:
    failed = range(0, MANY, 2)
    old = await master.loop.change(
        lambda state: ended(state, array(MANY), JobState.FAILED, *failed)
    )
    if forgotten:
        await master.loop.change(lambda state: state._forget_job(old))
    for only, count in ((True, MANY // 2), (False, MANY)):
        answer = await master.jobs.Retry(pb.RetryRequest(job=old, failed=only))
        assert answer.tasks == count
        retry = submitted(master).spec.retry
        assert retry is not None
        assert retry.tasks == (tuple(failed) if only else None)
        assert retry.origins == (CheckpointOrigin(old, tuple(failed)),)


async def test_what_runs_is_not_retried_and_nobody_retries_what_is_not_theirs(
    master: RpcMaster,
) -> None:
    def jobs(state: State) -> None:
        add_job(state, spec("active"))
        ended(state, spec("fine"), JobState.SUCCEEDED)
        ended(state, replace(spec("bobs"), owner="bob"), JobState.FAILED)

    await master.loop.change(jobs)

    user = JobsStub(master.channel_of("ada", Role.USER))

    async def refused(job: str, *, failed: bool = False) -> tuple[grpc.StatusCode, type]:
        status, error = await refusal(user.Retry(pb.RetryRequest(job=job, failed=failed)))
        return status, type(error)

    unmet = grpc.StatusCode.FAILED_PRECONDITION
    assert await refused("active") == (unmet, JobActive)
    assert await refused("fine", failed=True) == (unmet, NothingToRetry)
    assert await refused("nothing") == (grpc.StatusCode.NOT_FOUND, NotFound)
    assert await refused("bobs-3") == (grpc.StatusCode.PERMISSION_DENIED, NotAuthorised)
    assert master.loop.commands == []
    operator = JobsStub(master.channel_of("root", Role.OPERATOR))
    answer = await operator.Retry(pb.RetryRequest(job="bobs-3"))
    assert answer.retry_of == "bobs-3"
    assert (submitted(master).spec.owner, submitted(master).operator) == ("bob", True)


async def test_a_job_whose_files_are_gone_is_refused(master: RpcMaster) -> None:
    whole = spec("lost")
    program = replace(whole.tasks[0].program, workdir="ab" * 32)
    lost = replace(whole, tasks=(replace(whole.tasks[0], program=program),))
    await master.loop.change(lambda state: ended(state, lost, JobState.FAILED))
    status, error = await refusal(master.jobs.Retry(pb.RetryRequest(job="lost")))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
    assert "not stored any more" in error.message


async def test_a_chain_is_retried_from_its_beginning(master: RpcMaster) -> None:
    """A job runs after the retry of one that failed, and reads the outputs of that."""

    def chain(state: State) -> JobId:
        first = ended(state, spec("prepare"), JobState.FAILED)
        train = spec("train")
        outputs = (JobOutputs("data", first),)
        program = replace(train.tasks[0].program, outputs=outputs)
        tasks = (replace(train.tasks[0], program=program),)
        ended(
            state,
            replace(train, tasks=tasks, stage=replace(train.stage, depends_on=(first,))),
            JobState.FAILED,
        )
        return first

    first = await master.loop.change(chain)
    status, error = await refusal(master.jobs.Retry(pb.RetryRequest(job="train")))
    assert (status, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, InvalidRequest)
    assert error.message == f"{first}, after which train-2 is to run, failed"
    assert error.hint == f"retry that one first: eva retry {first}"
    again = (await master.jobs.Retry(pb.RetryRequest(job="prepare"))).job_id
    await master.jobs.Retry(pb.RetryRequest(job="train"))
    retried = submitted(master).spec
    assert retried.stage.depends_on == (again,)
    assert [it.job for it in retried.tasks[0].program.outputs] == [again]
