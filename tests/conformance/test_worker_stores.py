"""What a worker needs of every object store, and that it finds there what the master left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import obstore
import pytest

from eva_master.adapters.objects import open_store
from eva_worker.errors import Missing, StoreUnavailable, UnstorableName
from eva_worker.files.objects import Objects
from eva_worker.files.parts import PartFile
from tests.fakes.aws.service import bucket_url

MIB = 1024 * 1024


@pytest.fixture(params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return (tmp_path / "store").as_uri()
    return bucket_url(monkeypatch)


async def keys(store: Objects, prefix: str) -> list[str]:
    return sorted([key async for key in store.list(prefix)])


@pytest.mark.parametrize("size", [0, 5, 20 * MIB])
async def test_a_file_goes_and_comes_back(url: str, tmp_path: Path, size: int) -> None:
    store = Objects(url)
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.write_bytes(b"x" * size)
    assert await store.put("a/b", source) == size
    await store.fetch("a/b", target)
    assert target.read_bytes() == source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["target"]


async def test_what_is_not_there(url: str, tmp_path: Path) -> None:
    store = Objects(url)
    with pytest.raises(Missing):
        await store.get("a/b")
    with pytest.raises(Missing):
        await store.fetch("a/b", tmp_path / "target")
    with pytest.raises(Missing):
        await store.put("a/b", tmp_path / "nothing")
    assert list(tmp_path.glob("*target*")) == []
    assert await keys(store, "a") == []
    await store.delete("a/b")


async def test_a_deleted_object_is_gone(url: str) -> None:
    store = Objects(url)
    await store.put("a/b", b"1")
    await store.put("a/c", b"1")
    await store.delete("a/b")
    assert await keys(store, "a") == ["a/c"]


async def test_a_directory_keeps_no_trace_of_what_was_deleted(tmp_path: Path) -> None:
    """A job that saves all the time would leave ever more of it, to be listed every time."""
    root = tmp_path / "my store"
    store = Objects(root.as_uri())
    for key in ("a/1/files/x y", "a/1/manifest", "a/2/manifest"):
        await store.put(key, b"1")
    await store.delete("a/1/files/x y")
    assert await keys(store, "a") == ["a/1/manifest", "a/2/manifest"]
    await store.delete("a/1/manifest")
    assert sorted(path.name for path in (root / "a").iterdir()) == ["2"]
    await store.delete("a/2/manifest")
    assert root.exists()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "a b", "x#1", "%2e%2e", "C:", "A|", "ü", "\x80"])
async def test_master_and_worker_agree_on_names(url: str, name: str) -> None:
    ours, masters = Objects(url), open_store(url)
    await ours.put(f"jobs/a-1/0/outputs/{name}", b"the worker's")
    assert await masters.list("jobs/a-1/0") == [f"jobs/a-1/0/outputs/{name}"]
    assert await masters.get(f"jobs/a-1/0/outputs/{name}") == b"the worker's"
    await masters.put(f"blobs/{name}", b"the master's")
    assert await keys(ours, "blobs") == [f"blobs/{name}"]
    assert await ours.get(f"blobs/{name}") == b"the master's"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", "\udc80"])
async def test_keys_that_name_no_object_are_refused(url: str, key: str) -> None:
    with pytest.raises(UnstorableName):
        await Objects(url).put(key, b"")


@pytest.mark.parametrize("bad", ["gs://bucket/prefix", "file:///proc/none"])
def test_a_place_that_cannot_hold_a_store_is_told(bad: str) -> None:
    with pytest.raises(StoreUnavailable, match="object store"):
        Objects(bad)


async def test_a_large_object_comes_in_parts(url: str, tmp_path: Path) -> None:
    store = Objects(url)
    data = bytes(range(256)) * (37 * MIB // 256) + b"and a little more"
    await store.put("a/large", data)
    target = tmp_path / "deep" / "target"
    await store.fetch("a/large", target, size=len(data))
    assert target.read_bytes() == data
    assert [path.name for path in target.parent.iterdir()] == ["target"]


async def test_a_fetch_that_failed_goes_on_where_it_ended(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Objects(url)
    data = bytes(40 * MIB) + b"end"
    await store.put("a/large", data)
    target = tmp_path / "target"
    read: list[tuple[int, int]] = []
    get = obstore.get_async

    async def count(*arguments: Any, options: Any = None) -> Any:
        read.append(options["range"])
        if len(read) == 4:
            while not [*tmp_path.glob(".part*.list")]:
                await asyncio.sleep(0.01)
            raise OSError("the network is gone")
        return await get(*arguments, options=options)

    monkeypatch.setattr(obstore, "get_async", count)
    with pytest.raises(StoreUnavailable, match="the network is gone"):
        await store.fetch("a/large", target, size=len(data))
    assert not target.exists()
    tried = len(read)
    await store.fetch("a/large", target, size=len(data))
    assert target.read_bytes() == data
    assert len(read) < tried + 6, "not all six parts again"
    assert [path.name for path in tmp_path.glob(".part*")] == []


async def test_parts_of_another_version_are_not_mixed_in(url: str, tmp_path: Path) -> None:
    store = Objects(url)
    size = 20 * MIB
    await store.put("a/large", b"1" * size)
    target = tmp_path / "target"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFile, "_finish", lambda _: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(StoreUnavailable):
            await store.fetch("a/large", target, size=size)
    await store.put("a/large", b"2" * size)
    await store.fetch("a/large", target, size=size)
    assert target.read_bytes() == b"2" * size


async def test_the_store_copies(url: str) -> None:
    store = Objects(url)
    await store.put("a/one", b"content")
    await store.copy("a/one", "b/two#")
    assert await store.get("b/two#") == b"content"
    with pytest.raises(Missing):
        await store.copy("a/none", "b/three")


async def test_an_upload_that_the_store_knows_no_more_is_no_missing_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As when the answer to the completion of an upload is lost: the client's next try finds none.
    store = Objects(url)
    (tmp_path / "file").write_bytes(b"x")

    async def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("NoSuchUpload")

    monkeypatch.setattr(obstore, "put_async", fail)
    with pytest.raises(StoreUnavailable):
        await store.put("a/b", tmp_path / "file")
