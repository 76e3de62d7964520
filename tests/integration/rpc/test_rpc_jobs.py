"""What users do with jobs, over a real connection."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from eva_master.adapters.objects import store
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.errors import (
    AmbiguousName,
    DuplicateName,
    EvaError,
    InvalidJob,
    NotFound,
    Problem,
    StorageFull,
    Unplaceable,
)
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    DEADLINE_S,
    JOB_YAML,
    SMALL,
    RpcMaster,
    add_instance,
    add_job,
    refusal,
    rpc_master,
    spec,
)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def test_a_submitted_job_belongs_to_its_owner_and_is_found_by_name_and_id(
    master: RpcMaster,
) -> None:
    request = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))
    answer = await master.jobs.Submit(request)
    for reference in (answer.job_id, "resnet"):
        job = await master.jobs.Get(pb.GetJobRequest(job=reference))
        assert (job.id, job.name, job.owner, job.state) == (
            answer.job_id,
            "resnet",
            "ada",
            "pending",
        )
        assert [(task.index, task.state) for task in job.tasks] == [(0, "waiting")]
    # A name is its owner's alone; others are told the id.
    ben = JobsStub(master.channel_of("ben", Role.OPERATOR))
    status, error = await refusal(ben.Get(pb.GetJobRequest(job="resnet")))
    assert (status, type(error)) == (grpc.StatusCode.NOT_FOUND, NotFound)
    assert f"{answer.job_id} (ada)" in str(error)


@pytest.mark.parametrize("name", ["Cancel", "Suspend", "Resume", "Move"])
async def test_what_changes_a_job_refuses_a_name_that_several_have(
    master: RpcMaster, name: str
) -> None:
    def jobs(state: State) -> None:
        add_job(state, spec("train"))
        add_job(state, spec("train"))
        add_job(state, spec("train", owner="ben"))
        add_job(state, spec("lone"))

    await master.loop.change(jobs)
    call, request = getattr(master.jobs, name), getattr(pb, f"{name}Request")
    status, error = await refusal(call(request(job="train")))
    assert (status, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, AmbiguousName)
    assert "train-2, train-1" in str(error)
    assert master.loop.commands == []
    assert (await call(request(job="train-1"))).job_id == "train-1"
    assert (await call(request(job="lone"))).job_id == "lone-4"
    ben = JobsStub(master.channel_of("ben", Role.USER))
    assert (await getattr(ben, name)(request(job="train"))).job_id == "train-3"


async def test_a_client_that_is_about_to_change_a_job_is_told_of_all_that_have_the_name(
    master: RpcMaster,
) -> None:
    await master.loop.change(lambda state: [add_job(state, spec("train")) for _ in range(12)])
    assert (await master.jobs.Get(pb.GetJobRequest(job="train"))).id == "train-12"
    status, error = await refusal(master.jobs.Get(pb.GetJobRequest(job="train", to_change=True)))
    assert (status, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, AmbiguousName)
    assert str(error).endswith("train-4, train-3 and more")


async def test_a_repeated_submission_makes_one_job(master: RpcMaster) -> None:
    request = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))
    answers = await asyncio.gather(*(master.jobs.Submit(request) for _ in range(5)))
    assert len({answer.job_id for answer in answers}) == 1
    assert len((await master.jobs.List(pb.ListJobsRequest())).jobs) == 1


@pytest.mark.parametrize("together", [False, True])
async def test_an_id_of_another_users_command_is_not_theirs(
    master: RpcMaster, together: bool
) -> None:
    stubs = [JobsStub(master.channel_of(owner, Role.USER)) for owner in ("ann", "bob")]
    request = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))
    if together:
        answers = await asyncio.gather(*(stub.Submit(request) for stub in stubs))
    else:
        answers = [await stub.Submit(request) for stub in stubs]
    jobs = [
        await stub.Get(pb.GetJobRequest(job=answer.job_id))
        for stub, answer in zip(stubs, answers, strict=True)
    ]
    assert [job.owner for job in jobs] == ["ann", "bob"]


async def test_a_cancellation_is_not_answered_with_another_users_submission(
    master: RpcMaster,
) -> None:
    job = await master.loop.change(lambda state: add_job(state, spec("resnet", owner="bob")))
    ann, bob = (JobsStub(master.channel_of(owner, Role.USER)) for owner in ("ann", "bob"))
    submission = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))
    cancelled, submitted = await asyncio.gather(
        bob.Cancel(pb.CancelRequest(command_id="c1", job=job)), ann.Submit(submission)
    )
    assert cancelled.job_id == job != submitted.job_id


async def test_submissions_without_an_id_are_different_commands(master: RpcMaster) -> None:
    request = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="resnet"))
    first, second = [await master.jobs.Submit(request) for _ in range(2)]
    assert first.job_id != second.job_id
    assert len({command.command for command in master.loop.commands} - {""}) == 2


@pytest.mark.parametrize("url", ["file:///etc/shadow", "file:///data2", "file:///data/../etc"])
async def test_inputs_come_from_where_the_operator_allows(master: RpcMaster, url: str) -> None:
    yaml = JOB_YAML.format(name="thief") + f"storage: {{inputs: {{t: '{url}'}}}}\n"
    for call in (
        master.jobs.Submit(pb.SubmitRequest(job_yaml=yaml)),
        master.jobs.Plan(pb.PlanRequest(job_yaml=yaml)),
    ):
        status, error = await refusal(call)
        assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
        assert "input_roots" in str(error.problems[0].hint)
    yaml = JOB_YAML.format(name="honest") + "storage: {inputs: {t: 'file:///data/set'}}\n"
    await master.jobs.Submit(pb.SubmitRequest(job_yaml=yaml))


async def test_a_bad_job_file_is_refused_with_every_problem(master: RpcMaster) -> None:
    yaml = JOB_YAML.format(name="resnet") + "colour: red\nshape: round\n"
    request = pb.SubmitRequest(job_yaml=yaml, file_name="job.yaml")
    status, error = await refusal(master.jobs.Submit(request))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
    assert {(problem.key, problem.line) for problem in error.problems} == {
        ("colour", 4),
        ("shape", 5),
    }
    assert master.loop.commands == []


async def test_so_many_problems_that_they_do_not_fit_still_arrive_as_an_error(
    master: RpcMaster,
) -> None:
    keys = "".join(f"unknown_{index}: 1\n" for index in range(2000))
    request = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="resnet") + keys)
    status, error = await refusal(master.jobs.Submit(request))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
    assert "more problems" in error.problems[-1].message


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (DuplicateName("taken", hint="cancel it"), grpc.StatusCode.ALREADY_EXISTS),
        (Unplaceable("too big"), grpc.StatusCode.FAILED_PRECONDITION),
        # As large as it gets, in three bytes a character.
        (
            InvalidJob("鉄" * 500, hint="道" * 500, problems=(Problem("x", "k" * 500),) * 2),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
async def test_what_the_machine_refuses_reaches_the_user(
    tmp_path: Path, raised: EvaError, status: grpc.StatusCode
) -> None:
    def refuse(_: State, command: JobSubmitted | CancelRequested) -> Reply:
        return Reply(command.command, None, raised, "ada")

    async with rpc_master(tmp_path, refuse) as master:
        request = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="resnet"))
        answered, error = await refusal(master.jobs.Submit(request))
    assert answered is status
    assert (type(error), error.message, error.hint) == (type(raised), raised.message, raised.hint)


async def test_a_bug_in_a_handler_is_an_internal_error_with_a_number(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("eva_master.adapters.rpc.server.shown.costs.bill", broken)
    status, error = await refusal(master.cluster.Cost(pb.CostRequest()))
    assert status is grpc.StatusCode.INTERNAL
    assert "internal error" in error.message
    assert "secret" not in error.message + error.hint


async def test_cancel_names_the_job_and_knows_what_it_does_not_know(master: RpcMaster) -> None:
    job = await master.loop.change(lambda state: add_job(state, spec("resnet")))
    request = pb.CancelRequest(command_id="c2", job="resnet")
    assert (await master.jobs.Cancel(request)).job_id == job
    assert master.loop.commands == [CancelRequested("c2", job, "ada")]
    status, error = await refusal(master.jobs.Cancel(pb.CancelRequest(job="nope")))
    assert (status, type(error)) == (grpc.StatusCode.NOT_FOUND, NotFound)


def _end(state: State, job: JobId) -> None:
    ending = state.jobs[job].to(JobState.ENDING, Millis(2000))
    state.put_job(replace(ending.to(JobState.SUCCEEDED, Millis(2001)), exit_code=0))


async def _pages(master: RpcMaster, *, ended: bool, between: object = None) -> list[list[str]]:
    pages, token = [], ""
    while True:
        request = pb.ListJobsRequest(page_size=2, page_token=token, all=ended)
        answer = await master.jobs.List(request)
        pages.append([job.name for job in answer.jobs])
        token = answer.next_page_token
        if not token:
            return pages
        if callable(between):
            await master.loop.change(between)


async def test_paging_neither_repeats_nor_skips_while_jobs_come_and_go(master: RpcMaster) -> None:
    jobs = await master.loop.change(
        lambda state: [add_job(state, spec(f"j{index}")) for index in range(5)]
    )
    assert await _pages(master, ended=False) == [["j4", "j3"], ["j2", "j1"], ["j0"]]

    def meanwhile(state: State) -> None:
        add_job(state, spec(f"late{state.counters.jobs}"))
        # The last job of the first page, which the token names.
        if state.jobs[jobs[3]].state is JobState.PENDING:
            _end(state, jobs[3])

    assert await _pages(master, ended=False, between=meanwhile) == [
        ["j4", "j3"],
        ["j2", "j1"],
        ["j0"],
    ]
    everything = [name for page in await _pages(master, ended=True) for name in page]
    assert everything == ["late6", "late5", "j4", "j3", "j2", "j1", "j0"]
    assert "j3" not in [name for page in await _pages(master, ended=False) for name in page]


@pytest.mark.parametrize("token", ["?", "bm9wZQ==", "abc"])
async def test_a_made_up_page_token_is_refused(master: RpcMaster, token: str) -> None:
    status, _ = await refusal(master.jobs.List(pb.ListJobsRequest(page_token=token)))
    assert status is grpc.StatusCode.INVALID_ARGUMENT


async def _read(stream: grpc.aio.UnaryStreamCall[object, pb.Job]) -> pb.Job:
    async with asyncio.timeout(DEADLINE_S):
        job = await stream.read()
    assert isinstance(job, pb.Job), "the stream ended"
    return job


async def test_a_watch_shows_a_job_as_it_is_and_changes_until_it_ends(master: RpcMaster) -> None:
    job, other = await master.loop.change(
        lambda state: (add_job(state, spec("resnet")), add_job(state, spec("other")))
    )
    stream = master.jobs.Watch(pb.WatchRequest(jobs=["resnet"]))
    assert (await _read(stream)).state == "pending"
    await master.loop.change(lambda state: _end(state, other))
    await master.loop.change(lambda state: _end(state, job))
    last = await _read(stream)
    assert (last.id, last.state, last.exit_code) == (job, "succeeded", 0)
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_watching_all_jobs_shows_new_ones_too(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_job(state, spec("first")))
    stream = master.jobs.Watch(pb.WatchRequest())
    assert (await _read(stream)).name == "first"
    await master.loop.change(lambda state: add_job(state, spec("second")))
    assert (await _read(stream)).name == "second"
    stream.cancel()


async def test_a_preview_names_places_and_prices(master: RpcMaster) -> None:
    await master.loop.change(add_instance)
    request = pb.PlanRequest(job_yaml=JOB_YAML.format(name="resnet") + "tasks: 2\n")
    plan = await master.jobs.Plan(request)
    assert [(it.task, it.instance_type, it.instance) for it in plan.placements] == [
        (0, "c7i.large", "i-1"),
        (1, "c7i.large", ""),
    ]
    # The empty instance takes the place of a new one.
    assert plan.price_before_micro_usd_per_hour == 89_250
    assert plan.price_after_micro_usd_per_hour == 2 * 89_250
    assert plan.alone_micro_usd_per_hour == 2 * 89_250
    assert plan.moves == 0
    assert (await master.jobs.List(pb.ListJobsRequest(all=True))).jobs == []


async def test_a_preview_tells_what_would_be_kept_for_an_urgent_job(master: RpcMaster) -> None:
    def full(state: State) -> None:
        state.catalog = tuple(replace(it, limit=1) for it in state.catalog if it.id == SMALL.id)
        place = add_instance(state)
        (run,) = state.members(add_job(state, spec("busy")))
        state.put_run(replace(run, target=place))

    await master.loop.change(full)
    urgent = JOB_YAML.format(name="resnet").replace("cpus: 1", "cpus: 2") + "priority: 5\n"
    (placed,) = (await master.jobs.Plan(pb.PlanRequest(job_yaml=urgent))).placements
    assert placed.instance_type == ""
    assert placed.waiting_for.endswith("reached; kept for it once there is room: i-1")


async def test_a_file_is_missing_until_it_is_put(master: RpcMaster) -> None:
    content = b"x" * 1_000_000
    digest = hashlib.sha256(content).hexdigest()
    other = hashlib.sha256(b"other").hexdigest()
    question = pb.MissingBlobsRequest(digests=[digest, other])
    assert list((await master.jobs.MissingBlobs(question)).digests) == [digest, other]

    async def chunks(data: bytes) -> AsyncIterator[pb.BlobChunk]:
        yield pb.BlobChunk(digest=digest, data=data[:400_000])
        yield pb.BlobChunk(data=data[400_000:])

    status, _ = await refusal(master.jobs.PutBlob(chunks(content[:-1])))
    assert status is grpc.StatusCode.DATA_LOSS
    assert list((await master.jobs.MissingBlobs(question)).digests) == [digest, other]
    await master.jobs.PutBlob(chunks(content))
    assert list((await master.jobs.MissingBlobs(question)).digests) == [other]


async def test_files_are_those_of_who_uploaded_them(master: RpcMaster) -> None:
    """A digest is no secret: whoever knows one, or a list of them, has not got the files."""
    content = b"ada's weights"
    digest = hashlib.sha256(content).hexdigest()
    file = {"path": "w", "mode": 0o644, "sha256": digest, "size": len(content)}
    manifest = json.dumps({"files": [file]}).encode()
    listed = hashlib.sha256(manifest).hexdigest()

    def chunk(data: bytes) -> AsyncIterator[pb.BlobChunk]:
        async def chunks() -> AsyncIterator[pb.BlobChunk]:
            yield pb.BlobChunk(digest=hashlib.sha256(data).hexdigest(), data=data)

        return chunks()

    for data in (content, manifest):
        await master.jobs.PutBlob(chunk(data))
    ben = JobsStub(master.channel_of("ben", Role.USER))
    question = pb.MissingBlobsRequest(digests=[digest, listed])
    assert list((await ben.MissingBlobs(question)).digests) == [digest, listed]
    text = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"
    submission = pb.SubmitRequest(job_yaml=text, file_name="job.yaml", workdir=listed)
    status, error = await refusal(ben.Submit(submission))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
    assert "has not been uploaded by ben" in str(error)
    await ben.PutBlob(chunk(manifest))
    await ben.Submit(submission)
    await master.jobs.Submit(submission)
    theirs, hers = (
        one.spec.tasks[0].program.workdir
        for one in master.loop.commands
        if isinstance(one, JobSubmitted)
    )
    assert (theirs, hers) == (f"ben/{listed}", f"ada/{listed}")
    assert await master.store.size(f"uploads/ben/{digest[:2]}/{digest}") is None
    assert await master.store.size(f"uploads/ada/{digest[:2]}/{digest}") == len(content)


async def test_uploads_leave_room_on_a_disk(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's journal is on the same disk as a local cluster's objects."""
    content = bytes(3 << 20)
    digest = hashlib.sha256(content).hexdigest()
    disk = SimpleNamespace(f_frsize=1, f_blocks=100 << 30, f_bavail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)

    async def chunks() -> AsyncIterator[pb.BlobChunk]:
        for start in range(3):
            yield pb.BlobChunk(digest="" if start else digest, data=content[: 1 << 20])
            disk.f_bavail -= 1 << 20

    monkeypatch.setattr(store, "_LOOK_EVERY", 1 << 20)
    disk.f_bavail = (1 << 30) + (2 << 20)
    status, error = await refusal(master.jobs.PutBlob(chunks()))
    assert (status, type(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, StorageFull)
    disk.f_bavail = (1 << 30) + (5 << 20)
    await master.jobs.PutBlob(chunks())


async def test_a_digest_cannot_name_another_object(master: RpcMaster) -> None:
    question = pb.MissingBlobsRequest(digests=["../jobs/secret"])
    status, _ = await refusal(master.jobs.MissingBlobs(question))
    assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_job_whose_files_are_not_there_is_refused(master: RpcMaster) -> None:
    request = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="resnet"), workdir="0" * 64)
    status, error = await refusal(master.jobs.Submit(request))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
