"""What a worker needs of every object store, and that it finds there what the master left."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.adapters.objects import open_store
from eva_worker.errors import Missing, StoreUnavailable, UnstorableName
from eva_worker.objects import Objects
from tests.fakes.aws import bucket_url

MIB = 1024 * 1024


@pytest.fixture(params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return f"file://{tmp_path}/store"
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
