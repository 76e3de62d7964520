"""Arrays from tables, over real connections: submission, shown names, retries and starts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.objects.blobs import blob_key
from eva_master.adapters.objects.tables import TaskTables
from eva_master.control.state.store import State
from eva_master.model.actions import ForgetTask, StartTask, StopTask, TaskOrder
from eva_master.model.events import JobSubmitted, Phase, RunReport, WorkerReported
from eva_master.model.job import JobSpec, Program, Retry
from eva_master.model.progress import Progress
from eva_master.model.records import Outcome
from eva_master.model.resources import Resources
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import FilesStub, JobsStub
from eva_wire.values.errors import InvalidJob, NotFound, StorageError
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    JOB_YAML,
    SMALL,
    RpcMaster,
    add_instance,
    refusal,
    rpc_master,
)

JOB = JOB_YAML.format(name="sweep")
TABLE = b"name,lr\nslow,0.1\nquick,0.5\n"


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def stored(master: RpcMaster, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()

    async def chunks() -> AsyncIterator[pb.BlobChunk]:
        yield pb.BlobChunk(digest=digest, data=data)

    await master.jobs.PutBlob(chunks())
    return digest


async def submit(master: RpcMaster, data: bytes = TABLE, **options: str) -> pb.SubmitResponse:
    table = pb.Table(file_name="grid.csv", digest=await stored(master, data), **options)
    return await master.jobs.Submit(pb.SubmitRequest(job_yaml=JOB, table=table))


def submitted(master: RpcMaster) -> JobSpec:
    command = master.loop.commands[-1]
    assert isinstance(command, JobSubmitted)
    return command.spec


async def test_rows_are_tasks_and_their_names_are_shown(master: RpcMaster) -> None:
    answer = await submit(master)
    shown = await master.jobs.Get(pb.GetJobRequest(job=answer.job_id))
    assert [(task.index, task.name) for task in shown.tasks] == [(0, "slow"), (1, "quick")]
    page = pb.TaskPage(first=1, size=1)
    shown = await master.jobs.Get(pb.GetJobRequest(job=answer.job_id, tasks=page))
    assert [task.name for task in shown.tasks] == ["quick"]
    (listed,) = (await master.jobs.List(pb.ListJobsRequest())).jobs
    assert [task.name for task in listed.tasks] == ["slow", "quick"]


async def test_a_bad_table_is_refused_by_the_master_too(master: RpcMaster) -> None:
    status, error = await refusal(submit(master, b"name,lr\nslow,0.1\nslow\n"))
    assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
    assert [problem.line for problem in error.problems] == [3, 3]
    _, error = await refusal(submit(master, b"lr\n\xff\n"))
    assert "grid.csv:2" in error.message
    _, error = await refusal(submit(master, names="trial"))
    assert "no column 'trial'" in error.message
    assert not master.loop.commands


async def test_a_table_has_to_be_the_callers_own(master: RpcMaster) -> None:
    digest = await stored(master, TABLE)
    ben = JobsStub(master.channel_of("ben", Role.USER))
    table = pb.Table(file_name="grid.csv", digest=digest)
    _, error = await refusal(ben.Submit(pb.SubmitRequest(job_yaml=JOB, table=table)))
    assert "the table has not been uploaded by ben" in error.message
    status, _ = await refusal(
        master.jobs.Submit(pb.SubmitRequest(job_yaml=JOB, table=pb.Table(digest="../../x")))
    )
    assert status is not grpc.StatusCode.OK
    assert not master.loop.commands


async def test_a_submission_without_a_digest_is_refused(master: RpcMaster) -> None:
    request = pb.SubmitRequest(job_yaml=JOB, table=pb.Table(file_name="grid.csv", rows=3))
    status, _ = await refusal(master.jobs.Submit(request))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert not master.loop.commands


async def test_a_preview_needs_the_number_of_rows_alone(master: RpcMaster) -> None:
    for rows in (0, 100_001):
        table = pb.Table(file_name="grid.csv", rows=rows)
        status, _ = await refusal(master.jobs.Plan(pb.PlanRequest(job_yaml=JOB, table=table)))
        assert status is grpc.StatusCode.INVALID_ARGUMENT
    answer = await master.jobs.Plan(
        pb.PlanRequest(job_yaml=JOB, table=pb.Table(file_name="grid.csv", rows=3))
    )
    assert [placement.task for placement in answer.placements] == [0, 1, 2]


async def test_a_retry_has_the_table_of_the_job(master: RpcMaster) -> None:
    answer = await submit(master)
    table = submitted(master).array.table
    assert table is not None

    def end(state: State) -> None:
        job = state.jobs[JobId(answer.job_id)]
        ended = job.to(JobState.ENDING, Millis(2_000)).to(JobState.FAILED, Millis(2_000))
        state.put_job(replace(ended, outcome=Outcome.FAILED))

    await master.loop.change(end)
    await master.jobs.Retry(pb.RetryRequest(command_id="again", job=answer.job_id))
    spec = submitted(master)
    assert spec.array.table == table
    assert isinstance(spec.retry, Retry)
    await master.store.delete(blob_key(table.blob))
    _, error = await refusal(
        master.jobs.Retry(pb.RetryRequest(command_id="late", job=answer.job_id))
    )
    assert "not stored any more" in error.message


# -- starts ----------------------------------------------------------------------------------------


def order(table: str, index: int, attempt: int = 1) -> TaskOrder:
    return TaskOrder(
        run=RunId(f"sweep-1/{index}"),
        attempt=attempt,
        job=JobId("sweep-1"),
        index=index,
        workload="sweep",
        program=Program("true", (("SEED", "7"),)),
        demand=Resources(0, 1_000, 1_024),
        grace_period_ms=1_000,
        table=table,
    )


async def test_an_order_to_start_has_its_row_alone(master: RpcMaster) -> None:
    await submit(master)
    table = submitted(master).array.table
    assert table is not None
    agent = await master.welcomed()
    for index in (1, 0):
        master.sessions.execute(StartTask(InstanceId("i-1"), order(table.blob, index)))
    heard = [await agent.hear() for _ in range(2)]
    assert [dict(message.start.order.env) for message in heard] == [
        {"SEED": "7", "name": "quick", "lr": "0.5"},
        {"SEED": "7", "name": "slow", "lr": "0.1"},
    ]


async def test_orders_keep_their_turn_while_a_table_is_read(master: RpcMaster) -> None:
    await submit(master)
    table = submitted(master).array.table
    assert table is not None
    agent = await master.welcomed()
    run, instance = RunId("sweep-1/0"), InstanceId("i-1")
    master.sessions.execute(StartTask(instance, order(table.blob, 0)))
    master.sessions.execute(StopTask(instance, run, 1, 500))
    master.sessions.execute(ForgetTask(instance, run, 1))
    bodies = [(await agent.hear()).WhichOneof("body") for _ in range(3)]
    assert bodies == ["start", "stop", "forget"]


async def test_a_start_whose_table_is_gone_fails_and_says_so(master: RpcMaster) -> None:
    await master.welcomed()
    instance = InstanceId("i-1")
    master.sessions.execute(StartTask(instance, order("ada/" + "ab" * 32, 0, attempt=3)))
    event = await master.loop.event()
    assert isinstance(event, WorkerReported)
    (report,) = event.reports
    assert (report.run, report.attempt, report.phase) == ("sweep-1/0", 3, Phase.EXITED)
    assert report.never_started
    assert "its row of the job's table cannot be read" in report.message
    assert isinstance(report, RunReport)


async def test_a_start_waits_for_a_store_that_is_away(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(master)
    table = submitted(master).array.table
    assert table is not None
    agent = await master.welcomed()
    row = TaskTables.row
    away = [True]

    async def reached(self: TaskTables, name: str, index: int) -> object:
        if away:
            away.pop()
            raise StorageError("the store does not answer")
        return await row(self, name, index)

    monkeypatch.setattr(TaskTables, "row", reached)
    start = StartTask(InstanceId("i-1"), order(table.blob, 1))
    master.sessions.execute(start)  # Dropped, and repeated by the control loop.
    master.sessions.execute(StopTask(InstanceId("i-1"), RunId("other-1/0"), 1, 0))
    assert (await agent.hear()).WhichOneof("body") == "stop"
    master.sessions.execute(start)
    assert (await agent.hear()).start.order.env["lr"] == "0.5"
    assert master.loop.quiet


# -- rows in memory --------------------------------------------------------------------------------


async def test_a_table_is_read_once_and_a_failure_is_not_kept(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ada/{hashlib.sha256(TABLE).hexdigest()}"
    tables = TaskTables(master.store)
    with pytest.raises(NotFound):
        await tables.row(name, 0)
    await stored(master, TABLE)
    assert await tables.row(name, 1) == {"name": "quick", "lr": "0.5"}
    await master.store.delete(blob_key(name))
    assert await tables.row(name, 0) == {"name": "slow", "lr": "0.1"}
    with pytest.raises(InvalidJob):
        await tables.row(name, 2)


async def test_tables_that_were_used_longest_ago_are_forgotten(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.objects.tables._MOST_KEPT", 200)
    tables = TaskTables(master.store)
    names = [f"ada/{await stored(master, f'column_{at}{chr(10)}1'.encode())}" for at in range(20)]
    for name in names:
        assert list((await tables.row(name, 0)).values()) == ["1"]
    assert 1 <= len(tables._tables) < 20
    assert names[-1] in tables._tables


# -- exports ---------------------------------------------------------------------------------------


async def table_of(master: RpcMaster, job: str, channel: grpc.aio.Channel | None = None) -> bytes:
    files = FilesStub(channel or master.user)
    return b"".join([chunk.data async for chunk in files.Table(pb.TableRequest(job=job))])


async def test_a_table_is_sent_back_to_its_owner_alone(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.server.files.service._TABLE_PIECE_BYTES", 10)
    answer = await submit(master)
    assert await table_of(master, answer.job_id) == TABLE
    ben = master.channel_of("ben", Role.USER)
    status, _ = await refusal(table_of(master, answer.job_id, ben))
    assert status is grpc.StatusCode.PERMISSION_DENIED
    table = submitted(master).array.table
    assert table is not None
    await master.store.delete(blob_key(table.blob))
    status, _ = await refusal(table_of(master, answer.job_id))
    assert status is grpc.StatusCode.NOT_FOUND
    plain = await master.jobs.Submit(pb.SubmitRequest(job_yaml=JOB))
    assert await table_of(master, plain.job_id) == b""


async def test_pages_with_times_have_instances_and_all_metrics(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.server.views._METRICS_BYTES", 1_000)
    answer = await submit(master)
    job = JobId(answer.job_id)
    metrics = tuple((f"metric_{number:03}", float(number)) for number in range(100))

    def ran(state: State) -> None:
        add_instance(state)
        run = state.runs[run_id(job, 1)]
        history = (
            *(("waiting", 1_000), ("starting", 2_000), ("running", 3_000), ("waiting", 5_000)),
            *(("starting", 6_000), ("running", 7_000), ("succeeded", 7_500)),
        )
        state.put_run(
            replace(
                run,
                history=history,
                attempt=2,
                exit_code=0,
                places=((1, InstanceId("i-1")), (2, InstanceId("i-1"))),
                progress=Progress(steps=7, metrics=metrics),
            )
        )

    await master.loop.change(ran)
    page = pb.TaskPage(times=True)
    waiting, done = (await master.jobs.Get(pb.GetJobRequest(job=job, tasks=page))).tasks
    assert not any(map(waiting.HasField, ("started_ms", "finished_ms", "ran_ms")))
    assert (waiting.last_instance, waiting.instance_type) == ("", "")
    assert (done.started_ms, done.finished_ms, done.ran_ms) == (3_000, 7_500, 2_500)
    assert (done.last_instance, done.instance_type) == ("i-1", SMALL.type.name)
    assert dict(done.metrics) == dict(metrics)
    plain = await master.jobs.Get(pb.GetJobRequest(job=job, tasks=pb.TaskPage()))
    assert not plain.tasks[1].HasField("ran_ms")
    assert len(plain.tasks[1].metrics) < 100


async def test_a_task_is_found_by_its_name(master: RpcMaster) -> None:
    answer = await submit(master)
    page = pb.TaskPage(name="quick")
    job = await master.jobs.Get(pb.GetJobRequest(job="sweep", tasks=page))
    assert (job.id, [task.index for task in job.tasks]) == (answer.job_id, [1])
    for name in ("quic", "1", "slow\nquick"):
        page = pb.TaskPage(name=name)
        status, _ = await refusal(master.jobs.Get(pb.GetJobRequest(job="sweep", tasks=page)))
        assert status is grpc.StatusCode.NOT_FOUND
