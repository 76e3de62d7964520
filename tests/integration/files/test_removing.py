"""Files of ended jobs are removed from a real store, by users over a real connection or in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.objects import open_store, removals
from eva_master.adapters.objects.checkpoints import StoredCheckpoints
from eva_master.adapters.objects.store import Objects
from eva_master.adapters.store.archive import SqlArchive
from eva_master.adapters.store.journal import SqlJournal
from eva_master.control.state.store import State
from eva_master.model.actions import FindExpired, RemoveResults
from eva_master.model.changes import Changes
from eva_master.model.events import Event, RemovalRequested, ResultsExpired, ResultsRemoved
from eva_master.ports import ObjectStore
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import FilesStub
from eva_wire.values.errors import InvalidJob, NotAuthorised, NotFound, StorageError
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.archive import none_ended
from tests.fakes.aws.service import bucket_url
from tests.fakes.rpc.server import RpcMaster, add_job, refusal, rpc_master, spec

JOB = JobId("train-1")
READS = """\
name: next
run: python train.py
resources: {cpus: 1, memory: 1GiB}
storage: {inputs: {data: job:train/outputs}}
"""


@pytest.fixture(params=["directory", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    url = (tmp_path / "store").as_uri() if request.param == "directory" else bucket_url(monkeypatch)
    return open_store(url)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path / "master") as running:
        yield running


class Heard:
    """The inbox of a control loop."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    def post(self, event: Event) -> None:
        self.events.put_nowait(event)


def adapter(store: ObjectStore, inbox: Heard, ended: Any = none_ended) -> StoredCheckpoints:
    return StoredCheckpoints(store, inbox, SystemClock(), ended)  # type: ignore[arg-type]


async def removed(store: ObjectStore, by: str = "ada") -> ResultsRemoved:
    inbox = Heard()
    adapter(store, inbox).remove(RemoveResults(JOB, by))
    async with asyncio.timeout(60):
        event = await inbox.events.get()
    assert isinstance(event, ResultsRemoved)
    return event


async def fill(store: ObjectStore) -> None:
    for name in ("outputs/a", "logs/0001/0", "checkpoints/00000001/manifest.json", "finished/1"):
        for run in ("0", "0+1", "17"):
            await store.put(f"jobs/{JOB}/{run}/{name}", b"1")
    await store.put("jobs/train-10/0/outputs/a", b"another job's")
    await store.put("uploads/ada/aa/file", b"a blob")


async def test_all_of_the_job_goes_and_nothing_else(store: ObjectStore) -> None:
    await fill(store)
    for _ in range(2):
        assert await removed(store) == ResultsRemoved(JOB)
        assert await store.list("") == [
            "jobs/train-10/0/outputs/a",
            "removed/train-1",
            "uploads/ada/aa/file",
        ]
    note = await removals.removal_of(store, JOB)
    assert note is not None
    assert note.words.endswith("by ada")


async def test_an_interrupted_removal_is_gone_on_with(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    original, count = Objects.delete, 0

    async def failing(self: Objects, key: str) -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise StorageError("the store is away")
        await original(self, key)

    monkeypatch.setattr(Objects, "delete", failing)
    assert (await removed(store)).error == "the store is away"
    # Users are told from the first moment on.
    assert await removals.removal_of(store, JOB) is not None
    monkeypatch.setattr(Objects, "delete", original)
    assert (await removed(store, by="")).error == ""
    assert await store.list(f"jobs/{JOB}") == []
    note = await removals.removal_of(store, JOB)
    assert note is not None
    assert note.by == "ada"


def ends(name: str, at: int | None) -> Callable[[State], JobId]:
    """Adds a job that ended at a time, or has not."""

    def add(state: State) -> JobId:
        key = add_job(state, spec(name), at=1)
        if at is not None:
            record = state.jobs[key].to(JobState.ENDING, Millis(at))
            state.put_job(record.to(JobState.SUCCEEDED, Millis(at)))
        return key

    return add


async def test_ended_jobs_are_found_by_the_time_of_their_end(tmp_path: Path) -> None:
    state = State(())
    for at in (30, 10, 20, 20, None, 20, 40):
        ends("a", at)(state)
    written: Changes = state.take_changes()
    with SqlJournal.open(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        journal.commit(written)
        archive = SqlArchive(journal.engine)
        assert archive.ended(Millis(0), Millis(35), 2) == (["a-2", "a-3", "a-4", "a-6"], 20)
        assert archive.ended(Millis(20), Millis(35), 2) == (["a-1"], 35)
        assert archive.ended(Millis(35), Millis(39), 2) == ([], 39)
        inbox = Heard()
        adapter(open_store(tmp_path.as_uri()), inbox, archive.ended).expired(
            FindExpired(Millis(0), Millis(15), 9)
        )
        async with asyncio.timeout(60):
            assert await inbox.events.get() == ResultsExpired((JobId("a-2"),), Millis(15))


async def test_owners_and_operators_remove_and_others_do_not(master: RpcMaster) -> None:
    await master.loop.change(ends("train", 5))
    for owner, role in (("ada", Role.USER), ("ben", Role.OPERATOR)):
        stub = FilesStub(master.channel_of(owner, role))
        assert (await stub.Remove(pb.RemoveFilesRequest(job=JOB))).job_id == JOB
        event = master.loop.commands[-1]
        assert isinstance(event, RemovalRequested)
        assert (event.job, event.owner) == (JOB, owner)
    stub = FilesStub(master.channel_of("ben", Role.USER))
    status, error = await refusal(stub.Remove(pb.RemoveFilesRequest(job=JOB)))
    assert (status, type(error)) == (grpc.StatusCode.PERMISSION_DENIED, NotAuthorised)
    assert len(master.loop.commands) == 2


async def test_users_are_told_that_files_were_removed(master: RpcMaster) -> None:
    await master.loop.change(ends("train", 5))
    await removals.remove(master.store, JOB, "ben", Millis(1_800_000_000_000))
    stub, jobs = FilesStub(master.channel_of("ada", Role.USER)), master.jobs
    with pytest.raises(grpc.aio.AioRpcError, match="removed on 2027-01-15 by ben"):
        await stub.List(pb.ListFilesRequest(job="train")).read()
    for call in (
        jobs.Submit(pb.SubmitRequest(job_yaml=READS)),
        jobs.Retry(pb.RetryRequest(job="train")),
    ):
        status, error = await refusal(call)
        assert (status, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, InvalidJob)
        assert "what train-1 had stored was removed on 2027-01-15 by ben" in str(error)
    assert master.loop.commands == []


async def test_a_job_that_is_not_there_has_nothing_to_remove(master: RpcMaster) -> None:
    stub = FilesStub(master.channel_of("ada", Role.USER))
    status, error = await refusal(stub.Remove(pb.RemoveFilesRequest(job="nope")))
    assert (status, type(error)) == (grpc.StatusCode.NOT_FOUND, NotFound)
