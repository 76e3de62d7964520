"""Uploads that no job needs are collected, and no others."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.objects import collection, promises, removals
from eva_master.adapters.objects.blobs import blob_key
from eva_master.adapters.objects.store import Objects
from eva_master.adapters.rpc.server.files import service
from eva_master.control.state.store import State
from eva_master.ports import Clock
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import FilesStub, JobsStub
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, add_job, rpc_master, spec


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RpcMaster]:
    # Uploads of a test are old enough at once, and so are those that are promised.
    monkeypatch.setattr(collection, "YOUNG_MS", -1_000)
    original = Objects.find

    async def old(self: Objects, key: str) -> Any:
        stored = await original(self, key)
        return None if stored is None else replace(stored, modified_ms=Millis(0))

    monkeypatch.setattr(Objects, "find", old)
    async with rpc_master(tmp_path / "master") as running:
        yield running


class Ahead:
    """The loop's time, since the wall clock was set back."""

    def now(self) -> Millis:
        return Millis(SystemClock().now() + 10 * promises.YOUNG_MS)


def name_of(data: bytes) -> str:
    return f"ada/{hashlib.sha256(data).hexdigest()}"


async def put(master: RpcMaster, data: bytes) -> str:
    await master.store.put(blob_key(name_of(data)), data)
    return name_of(data)


async def directory(master: RpcMaster, *contents: bytes) -> str:
    """Uploads a working directory of files with these contents; returns its name."""
    for content in contents:
        await put(master, content)
    files = [{"sha256": name_of(content).partition("/")[2]} for content in contents]
    return await put(master, json.dumps({"files": files}).encode())


def with_workdir(name: str, workdir: str, *, ended: bool = False) -> Callable[[State], JobId]:
    """Adds a job with an uploaded directory."""
    plain = spec(name)
    task = plain.tasks[0]
    program = replace(task.program, workdir=workdir)
    job = replace(plain, tasks=(replace(task, program=program),))

    def add(state: State) -> JobId:
        key = add_job(state, job)
        if ended:
            record = state.jobs[key].to(JobState.ENDING, Millis(5))
            state.put_job(record.to(JobState.SUCCEEDED, Millis(5)))
        return key

    return add


async def gc(master: RpcMaster, *, dry_run: bool = False) -> pb.Garbage:
    stub = FilesStub(master.channel_of("oscar", Role.OPERATOR))
    sums = pb.Garbage()
    async for part in stub.Collect(pb.CollectRequest(dry_run=dry_run)):
        sums = part
    return sums


async def contents(master: RpcMaster) -> set[bytes]:
    keys = await master.store.list("uploads")
    return {await master.store.get(key) for key in keys} - {b"[]"}


async def test_uploads_that_jobs_name_stay_and_others_go(master: RpcMaster) -> None:
    active = await directory(master, b"a", b"shared")
    ended = await directory(master, b"b", b"shared")
    await directory(master, b"c", b"shared")
    await master.loop.change(with_workdir("active", active))
    await master.loop.change(with_workdir("ended", ended, ended=True))
    before = await contents(master)
    for dry_run, count in ((True, 2), (False, 2), (False, 0)):
        sums = await gc(master, dry_run=dry_run)
        assert sums.uploads == count
        assert (await contents(master) == before) is dry_run
    left = await contents(master)
    assert {b"a", b"b", b"shared"} <= left
    assert b"c" not in left
    assert len(left) == 5


async def test_uploads_of_a_job_go_once_its_results_were_removed(master: RpcMaster) -> None:
    workdir = await directory(master, b"a")
    job = await master.loop.change(with_workdir("train", workdir, ended=True))
    assert (await gc(master)).uploads == 0
    await removals.remove(master.store, job, "ada", Millis(7))
    await master.store.put(f"jobs/{job}/0/logs/0001/0", b"late")
    sums = await gc(master)
    assert (sums.uploads, sums.leftovers, sums.leftovers_bytes) == (2, 1, 4)
    assert await master.store.list("jobs") == []


async def test_uploads_that_were_promised_stay_for_a_day_whatever_master_promised_them(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await put(master, b"a")
    jobs = JobsStub(master.channel_of("ada", Role.USER))
    digest = name.partition("/")[2]
    assert not (await jobs.MissingBlobs(pb.MissingBlobsRequest(digests=[digest]))).digests
    assert (await gc(master)).uploads == 0
    # A master that has started since finds the promise in the store.
    monkeypatch.setattr(promises.Promises, "holds", lambda *_: False)
    assert (await gc(master)).uploads == 0
    monkeypatch.setattr(promises, "KEPT_MS", -1_000)
    assert (await gc(master)).uploads == 1
    assert await master.store.list("promises") == []


async def test_young_uploads_stay(master: RpcMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "YOUNG_MS", promises.YOUNG_MS)
    await put(master, b"a")
    assert (await gc(master)).uploads == 0


async def test_young_uploads_stay_though_the_clock_of_the_store_was_set_back(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "YOUNG_MS", promises.YOUNG_MS)
    await put(master, b"a")
    original = service.collect

    def later(store: Any, archive: Any, promised: Any, _: Clock, **how: Any) -> Any:
        return original(store, archive, promised, Ahead(), **how)

    monkeypatch.setattr(service, "collect", later)
    assert (await gc(master)).uploads == 0
    assert await master.store.list("clock") == []


async def test_a_collection_beside_another_one_has_its_own_look_at_the_time(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, looks = Objects.modified, list[Millis]()

    async def after_another(self: Objects, prefix: str) -> Any:
        monkeypatch.setattr(Objects, "modified", original)
        looks.append(await collection._time_of(self))
        return await original(self, prefix)

    monkeypatch.setattr(collection, "YOUNG_MS", promises.YOUNG_MS)
    monkeypatch.setattr(Objects, "modified", after_another)
    looks.append(await collection._time_of(master.store))

    assert min(looks) > 0
    assert not await master.store.modified("clock"), "objects that tell the time are left"


async def test_partial_files_of_uploads_that_died_go_after_two_days(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(9 << 20)
        asked.set()
        await go_on.wait()
        yield b"end"

    root = tmp_path / "master" / "objects"
    upload = asyncio.create_task(master.store.put("jobs/a-1/0/outputs/x", pieces()))
    await asked.wait()
    (partial,) = root.rglob("x#*")
    dead = partial.with_name("y#12")
    dead.write_bytes(b"dead")
    (root / "jobs" / "a-1" / "0" / "mine#1a").touch()
    sums = await gc(master, dry_run=True)
    assert (sums.leftovers, partial.exists(), dead.exists()) == (2, True, True)
    monkeypatch.setattr(collection, "YOUNG_MS", promises.YOUNG_MS)
    assert (await gc(master)).leftovers == 0
    go_on.set()
    await upload
    monkeypatch.setattr(collection, "YOUNG_MS", -1_000)
    sums = await gc(master)
    assert (sums.leftovers, sums.leftovers_bytes) == (1, 4)
    left = {path.name for path in root.rglob("*") if path.is_file()}
    assert left == {"x", "mine#1a"}


async def test_only_operators_collect(master: RpcMaster) -> None:
    stub = FilesStub(master.channel_of("ada", Role.USER))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Collect(pb.CollectRequest(dry_run=True)).read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
