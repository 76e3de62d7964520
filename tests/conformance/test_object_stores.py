"""What every object store promises, and what is built on it: blobs and logs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from eva_master.adapters.objects import Objects, open_store
from eva_master.adapters.objects.blobs import blob_key, missing, put_blob
from eva_master.ports import ObjectStore
from eva_wire.values.errors import DigestMismatch, InvalidKey, NotFound, ObjectChanged, StorageError
from tests.fakes.aws.service import bucket_url, shared

MIB = 1024 * 1024


@pytest.fixture(params=["directory", "memory", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    match request.param:
        case "directory":
            return open_store((tmp_path / "store").as_uri())
        case "s3":
            return open_store(bucket_url(monkeypatch))
        case _:
            return Objects(MemoryStore())


async def pieces(*chunks: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_an_object_comes_back(store: ObjectStore) -> None:
    await store.put("a/b", b"hello")
    assert await store.get("a/b") == b"hello"
    assert await store.size("a/b") == 5


async def test_a_put_replaces(store: ObjectStore) -> None:
    await store.put("a", b"long before")
    await store.put("a", b"after")
    assert await store.get("a") == b"after"


@pytest.mark.parametrize("chunks", [(), (b"",), (b"abc", b"", b"de"), (b"x" * (9 * MIB),) * 3])
async def test_a_stream_is_stored_whole(store: ObjectStore, chunks: tuple[bytes, ...]) -> None:
    await store.put("a", pieces(*chunks))
    assert await store.get("a") == b"".join(chunks)


async def test_a_stream_is_never_held_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    process = psutil.Process()
    before = process.memory_info().rss
    growth = 0

    async def long() -> AsyncIterator[bytes]:
        nonlocal growth
        for _ in range(320):
            yield b"x" * MIB  # Zeros would take no memory.
            growth = max(growth, process.memory_info().rss - before)

    await store.put("a", long())
    assert await store.size("a") == 320 * MIB
    assert growth < 160 * MIB


@pytest.mark.parametrize("chunks", [(), (b"new",), (b"x" * MIB,) * 40])
@pytest.mark.parametrize("error", [ValueError("gone"), FileNotFoundError("gone")])
async def test_a_stream_that_fails_stores_nothing(
    store: ObjectStore, chunks: tuple[bytes, ...], error: Exception
) -> None:
    await store.put("old", b"old")
    for key in ("old", "new"):
        with pytest.raises(type(error), match="gone"):
            await store.put(key, pieces(*chunks, error=error))
    assert await store.get("old") == b"old"
    assert await store.list("") == ["old"]


async def test_a_failed_put_leaves_no_parts_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    url = bucket_url(monkeypatch)
    bucket = urlsplit(url).netloc
    begun: list[Any] = []

    def uploads() -> list[Any]:
        answer = shared().client("s3").list_multipart_uploads(Bucket=bucket)
        return list(answer.get("Uploads", ()))

    async def broken() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * MIB
        begun.extend(uploads())
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await open_store(url).put("a", broken())
    assert len(begun) == 1
    assert uploads() == []


async def test_readers_see_the_old_object_or_the_new_one(store: ObjectStore) -> None:
    old, new = b"o" * (3 * MIB), b"n" * (20 * MIB)
    await store.put("a", old)
    started = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        for start in range(0, len(new), MIB):
            yield new[start : start + MIB]
            started.set()
            await asyncio.sleep(0)

    writing = asyncio.create_task(store.put("a", slowly()))
    await started.wait()
    while not writing.done():
        assert await store.get("a") in (old, new)
    await writing
    assert await store.get("a") == new


@pytest.mark.parametrize(
    ("offset", "length", "part"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 4, b"0123"),
        (8, 4, b"89"),
        (10, None, b""),
        (10, 4, b""),
        (99, 4, b""),
        (3, 0, b""),
    ],
)
async def test_a_part_is_read_as_of_a_file(
    store: ObjectStore, offset: int, length: int | None, part: bytes
) -> None:
    await store.put("a", b"0123456789")
    assert await store.get("a", offset=offset, length=length) == part


async def version_of(store: ObjectStore, key: str) -> str:
    stored = await store.find(key)
    assert stored is not None
    return stored.version


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (0, 1), (3, 4), (9, 1)])
async def test_a_piece_of_a_version_is_read(store: ObjectStore, offset: int, length: int) -> None:
    await store.put("a b%", b"0123456789")
    part = b"0123456789"[offset : offset + length]
    version = await version_of(store, "a b%")
    assert version
    assert await store.piece("a b%", offset, length, version) == part
    assert await store.piece("a b%", offset, length) == part


@pytest.mark.parametrize(("offset", "length"), [(8, 4), (10, 1), (99, 4)])
async def test_a_piece_beyond_the_end_is_of_another_version(
    store: ObjectStore, offset: int, length: int
) -> None:
    await store.put("a", b"0123456789")
    for version in (await version_of(store, "a"), ""):
        with pytest.raises(ObjectChanged, match="object a"):
            await store.piece("a", offset, length, version)


async def test_a_piece_of_a_version_that_is_gone(store: ObjectStore) -> None:
    await store.put("a", b"0123456789")
    version = await version_of(store, "a")
    await store.put("a", b"9876543210")
    with pytest.raises(ObjectChanged):
        await store.piece("a", 0, 4, version)
    assert await store.piece("a", 0, 4, await version_of(store, "a")) == b"9876"
    await store.delete("a")
    for asked in (version, ""):
        with pytest.raises(ObjectChanged):
            await store.piece("a", 0, 4, asked)
    assert await store.find("a") is None


async def test_what_is_below_comes_with_its_size_and_version(store: ObjectStore) -> None:
    sizes = {f"a/b/{number}": number for number in range(1_100)} | {"a/bc": 1, "a/b#1/c": 2}
    for key, size in sizes.items():
        await store.put(key, b"x" * size)
    listed = [stored async for part in store.below("a/b") for stored in part]
    assert {stored.key: stored.size for stored in listed} == {
        key: size for key, size in sizes.items() if key.startswith("a/b/")
    }
    some = next(stored for stored in listed if stored.key == "a/b/7")
    assert await store.find("a/b/7") == some
    assert await store.piece(some.key, 0, 7, some.version) == b"x" * 7
    assert some.modified_ms == (await store.modified("a/b"))["a/b/7"]
    assert [part async for part in store.below("z")] in ([], [[]])


async def test_what_is_not_there(store: ObjectStore) -> None:
    with pytest.raises(NotFound, match="a/b"):
        await store.get("a/b")
    with pytest.raises(NotFound):
        await store.get("a/b", offset=1, length=2)
    assert await store.size("a/b") is None
    assert await store.list("a") == []
    await store.delete("a/b")


async def test_delete(store: ObjectStore) -> None:
    await store.put("a/b", b"1")
    await store.put("a/c", b"1")
    await store.delete("a/b")
    assert await store.size("a/b") is None
    assert await store.list("") == ["a/c"]


async def test_list_is_sorted_and_goes_by_whole_segments(store: ObjectStore) -> None:
    keys = ["a/b/2", "a/b/10", "a/b/1", "a/bc/1", "a/b-c", "z", "a/b/d/e"]
    for key in keys:
        await store.put(key, b"")
    assert await store.list("") == sorted(keys)
    below = ["a/b/1", "a/b/10", "a/b/2", "a/b/d/e"]
    assert await store.list("a/b") == below
    assert await store.list("a/b/") == below
    assert await store.list("a/b/1") == []


ESCAPES = ["", "/a", "a/", "a//b", "..", "../a", "a/../../b", "a/..", ".", "./a", "a/./b", "\udc80"]


@pytest.mark.parametrize("key", ESCAPES)
async def test_keys_that_name_no_object_are_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(InvalidKey):
        await store.put(key, b"")
    with pytest.raises(InvalidKey):
        await store.get(key)
    with pytest.raises(InvalidKey):
        await store.size(key)
    with pytest.raises(InvalidKey):
        await store.delete(key)
    if key not in {"", "a/"}:
        with pytest.raises(InvalidKey):
            await store.list(key)


NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name not in {".", ".."})


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(name="A|")
@example(name="C:")
@example(name="x#1")
@example(name="%2e%2e")
@example(name="\x80")
@given(name=NAMES.map(lambda name: name.replace("/", "#1")))
def test_any_file_name_makes_a_key(store: ObjectStore, name: str) -> None:
    async def check() -> None:
        key = f"jobs/a-1/0/outputs/{name}"
        await store.put(key, name.encode())
        assert key in await store.list("jobs/a-1/0/outputs")
        assert await store.get(key) == name.encode()
        await store.delete(key)

    asyncio.run(check())


async def test_blobs_are_named_by_their_content(store: ObjectStore) -> None:
    digest = digest_of(b"hello")
    await put_blob(store, digest, pieces(b"hel", b"lo"))
    assert await store.list("") == [f"blobs/{digest[:2]}/{digest}"]
    assert await store.get(blob_key(digest)) == b"hello"


@pytest.mark.parametrize("chunks", [(), (b"hell",), (b"x" * MIB,) * 20])
async def test_a_wrong_blob_is_never_left_behind(
    store: ObjectStore, chunks: tuple[bytes, ...]
) -> None:
    with pytest.raises(DigestMismatch, match=digest_of(b"hello")):
        await put_blob(store, digest_of(b"hello"), pieces(*chunks))
    assert await store.list("") == []


async def test_missing_blobs(store: ObjectStore) -> None:
    there = [digest_of(bytes([number])) for number in range(40)]
    for number, digest in enumerate(there):
        await put_blob(store, digest, pieces(bytes([number])))
    absent = [digest_of(b"b"), digest_of(b"a")]
    assert await missing(store, [absent[0], *there, absent[1], absent[0]]) == absent
    assert await missing(store, []) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
async def test_only_digests_name_blobs(store: ObjectStore, digest: str) -> None:
    with pytest.raises(InvalidKey):
        blob_key(digest)
    with pytest.raises(InvalidKey):
        await missing(store, [digest])
    with pytest.raises(InvalidKey):
        await put_blob(store, digest, pieces(b""))


@pytest.mark.parametrize(
    "url", ["s3x://bucket", "s3:///prefix", "/no/scheme", "file://host/path", "file:relative"]
)
def test_an_unknown_store_is_told(url: str) -> None:
    with pytest.raises(StorageError, match="no object store"):
        open_store(url)


def test_an_unknown_option_of_a_bucket_is_told() -> None:
    with pytest.raises(StorageError, match="'regoin'"):
        open_store("s3://bucket/prefix?regoin=us-east-1")


def test_a_place_that_cannot_hold_a_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        open_store((tmp_path / "file" / "below").as_uri())


def test_a_url_may_be_escaped(tmp_path: Path) -> None:
    open_store(f"{tmp_path.as_uri()}/a%20b")
    assert (tmp_path / "a b").is_dir()
