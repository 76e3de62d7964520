"""Files of tasks in a folder and in a bucket: listed, read in pieces, replaced meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.objects import open_store
from eva_master.adapters.objects.stored_files import (
    PIECE_BYTES,
    FileReader,
    ReadAhead,
    TaskFile,
    listed,
)
from eva_master.ports import ObjectStore
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.aws.service import bucket_url

JOB, RUN = JobId("train-1"), RunId("train-1/0")
LARGE = os.urandom(2 * PIECE_BYTES + 17)
ROOM = 3


@pytest.fixture(params=["directory", "s3"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    url = (tmp_path / "store").as_uri() if request.param == "directory" else bucket_url(monkeypatch)
    store = open_store(url)
    for name, data in {
        "outputs/large": LARGE,
        "outputs/d/é %1": b"1",
        "outputs/empty": b"",
        "checkpoints/00000001/files/a": b"22",
        "checkpoints/00000001/manifest.json": b"{}",
        "checkpoints/00000002/files/a": b"not whole",
        "logs/0001/0000000000000000": b"one ",
        "logs/0001/0000000000000004": b"two",
    }.items():
        await store.put(f"jobs/{RUN}/{name}", data)
    return store


async def files(store: ObjectStore, path: str = "", *, one: bool = False) -> dict[str, TaskFile]:
    parts = listed(store, JOB, [RUN] if one else None, path)
    return {file.path: file async for part in parts for file in part}


async def read(store: ObjectStore, *wanted: tuple[TaskFile, int]) -> list[bytes | None]:
    """The bytes of each file; `None` if its version is gone."""
    data: list[bytes | None] = [b""] * len(wanted)
    room = ReadAhead(ROOM)
    async for piece in FileReader(store, room).read(wanted):
        before = data[piece.position]
        assert before is not None
        data[piece.position] = None if piece.data is None else before + piece.data
    assert [room.take() for _ in range(ROOM + 1)] == [True] * ROOM + [False]
    return data


@pytest.mark.parametrize("one", [False, True])
async def test_files_are_listed_with_their_sizes(store: ObjectStore, one: bool) -> None:
    sizes = {path: file.size for path, file in (await files(store, one=one)).items()}
    assert sizes == {
        "outputs/large": len(LARGE),
        "outputs/d/é %1": 1,
        "outputs/empty": 0,
        "checkpoints/00000001/a": 2,
        "logs/0001.log": 7,
    }
    for path in ("outputs/d", "outputs/large", "checkpoints/00000001", "logs/0001.log"):
        below = {name for name in sizes if name == path or name.startswith(f"{path}/")}
        assert set(await files(store, path, one=one)) == below


async def test_files_are_read_from_any_byte_on(store: ObjectStore) -> None:
    known = await files(store)
    wanted = [(known["outputs/large"], PIECE_BYTES - 1), (known["logs/0001.log"], 3)]
    wanted += [(known[path], 0) for path in ("outputs/empty", "checkpoints/00000001/a")]
    assert await read(store, *wanted) == [LARGE[PIECE_BYTES - 1 :], b" two", b"", b"22"]


async def test_a_version_that_is_gone_holds_up_no_other_file(store: ObjectStore) -> None:
    known = await files(store)
    await store.put(f"jobs/{RUN}/outputs/large", LARGE[::-1])
    await store.delete(f"jobs/{RUN}/logs/0001/0000000000000004")
    wanted = ("outputs/large", "logs/0001.log", "outputs/d/é %1")
    assert await read(store, *[(known[path], 0) for path in wanted]) == [None, None, b"1"]
    fresh = await files(store)
    assert await read(store, (fresh["outputs/large"], 0)) == [LARGE[::-1]]


@pytest.mark.parametrize("path", ["outputs/d/é %1", "checkpoints/00000001/a", "logs/0001.log"])
async def test_a_size_that_a_client_has_made_up_costs_a_few_pieces(
    store: ObjectStore, path: str
) -> None:
    listing = await files(store)
    endless = replace(listing[path], size=2**63 - 1)
    large = listing["outputs/large"]
    assert await read(store, (endless, 0), (large, 0), (endless, 2**62)) == [None, LARGE, None]


async def test_a_log_that_has_grown_is_read_as_far_as_it_was_listed(store: ObjectStore) -> None:
    log = (await files(store))["logs/0001.log"]
    await store.put(f"jobs/{RUN}/logs/0001/0000000000000007", b" three")
    assert await read(store, (log, 0)) == [b"one two"]


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("finished/0001.json", "1"),
        ("outputs", "1"),
        ("outputs/large", ""),
        ("checkpoints/plain/a", "sha256:../../x"),
        ("checkpoints/../../secret", "1"),
        ("logs/x.log", "1"),
    ],
)
async def test_a_name_that_no_listing_has_is_refused(
    store: ObjectStore, path: str, version: str
) -> None:
    file = TaskFile(RUN, path, 5, Millis(0), version)
    with pytest.raises(BadRequest, match="no task stores"):
        await read(store, (file, 0))
