"""Files on their way here and back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import mmap
import os
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from eva_worker.errors import (
    BadOrder,
    Corrupt,
    InstanceFailed,
    Missing,
    StoreUnavailable,
    TooLarge,
    UnstorableName,
    UnsupportedInput,
)
from eva_worker.files import upload
from eva_worker.files.beneath import File
from eva_worker.files.download import Fetcher, FileEntry, checkpoint_manifest, read_manifest
from eva_worker.files.inputs import Roots
from eva_worker.files.objects import Objects, persistently
from eva_worker.files.parts import PART
from eva_worker.files.task_log import follow
from eva_worker.files.upload import LOG_KEPT, Uploader
from eva_worker.orders import TaskKey
from tests.fakes.patience import DEADLINE_S

KEY = TaskKey("job-1/0", 3)


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri())


@pytest.fixture
def fetcher(objects: Objects, tmp_path: Path) -> Fetcher:
    roots = Roots([(tmp_path / "data").as_uri(), "file:///does"], objects.url)
    return Fetcher(objects, tmp_path / "cache", roots)


async def put_workdir(objects: Objects, files: dict[str, bytes]) -> str:
    entries = []
    for path, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        await objects.put(f"blobs/{digest[:2]}/{digest}", data)
        entries.append(FileEntry(path, 0o640, digest, len(data)))
    manifest = checkpoint_manifest(entries, 0)
    digest = hashlib.sha256(manifest).hexdigest()
    await objects.put(f"blobs/{digest[:2]}/{digest}", manifest)
    return digest


async def a_hundred_each(generation: int) -> int:
    """A hundred steps for each generation."""
    return 100 * generation


def uploader(
    objects: Objects,
    home: Path,
    *,
    gang: tuple[str, ...] = (),
    log_kept: int = LOG_KEPT,
    told: list[str] | None = None,
) -> Uploader:
    return Uploader(
        objects,
        KEY,
        gang=gang,
        home=home,
        log_kept=log_kept,
        outputs="outputs",
        memory=home / "uploads.json",
        steps_kept=a_hundred_each,
        count=lambda _: None,
        tell=(lambda _: None) if told is None else told.append,
    )


async def keys(objects: Objects, prefix: str) -> list[str]:
    return sorted([key async for key in objects.list(prefix)])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_workdir_is_laid_out_with_modes(
    objects: Objects, fetcher: Fetcher, tmp_path: Path
) -> None:
    digest = await put_workdir(objects, {"a": b"1", "deep/b": b"2"})
    target = tmp_path / "work"
    await fetcher.workdir(digest, target)
    assert (target / "deep" / "b").read_bytes() == b"2"
    assert (target / "a").stat().st_mode & 0o777 == 0o640
    # A task that writes into its files must not change anybody else's.
    (target / "a").write_bytes(b"changed")
    await fetcher.workdir(digest, tmp_path / "other")
    assert (tmp_path / "other" / "a").read_bytes() == b"1"


async def test_prefetched_files_need_no_store(
    objects: Objects, fetcher: Fetcher, tmp_path: Path
) -> None:
    digest = await put_workdir(objects, {"a": b"1"})
    await fetcher.prefetch(digest)
    for key in await keys(objects, "blobs"):
        await objects.delete(key)
    await fetcher.workdir(digest, tmp_path / "work")
    assert (tmp_path / "work" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "./a", "", ".", "a\0b"])
def test_manifest_must_stay_inside(path: str) -> None:
    with pytest.raises(BadOrder):
        read_manifest(checkpoint_manifest([FileEntry(path, 0o644, "0" * 64, 1)], 0))


@pytest.mark.parametrize("text", ["", "[]", '{"files": [{}]}', '{"files": 1}'])
def test_manifest_must_be_one(text: str) -> None:
    with pytest.raises(BadOrder):
        read_manifest(text.encode())


@pytest.mark.parametrize("value", ["{}", "[]", "1", '"ab"', '{"path":1}'])
def test_a_list_of_files_takes_no_more_memory_than_its_files(value: str) -> None:
    """JSON of 64 MiB may stand for 1.6 GB of values, of which none is a file."""
    bomb = b'{"files":[' + b",".join([value.encode()] * 3_000_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(BadOrder, match="more than 300000 files"):
            read_manifest(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", ["/".join("a" * 65), "/".join(["b" * 250] * 20)])
def test_a_path_of_a_list_is_not_too_long(path: str) -> None:
    with pytest.raises(BadOrder, match="too long or too deep"):
        read_manifest(checkpoint_manifest([FileEntry(path, 0o644, "0" * 64, 1)], 0))


async def test_files_that_the_disk_cannot_hold_are_not_brought_to_it(
    objects: Objects, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One blob, listed again and again; its true size counts, not what the list says."""
    data = bytes(64 << 10)
    digest = hashlib.sha256(data).hexdigest()
    await objects.put(f"blobs/{digest[:2]}/{digest}", data)
    manifest = checkpoint_manifest([FileEntry(f"{n}", 0o644, digest, 1) for n in range(100)], 0)
    listed = hashlib.sha256(manifest).hexdigest()
    await objects.put(f"blobs/{listed[:2]}/{listed}", manifest)
    disk = SimpleNamespace(f_frsize=1, f_blocks=10 << 20, f_bavail=7 << 20)
    monkeypatch.setattr(os, "fstatvfs", lambda _: disk)
    with pytest.raises(TooLarge, match=r"disk of 0\.0 GiB"):
        await fetcher.workdir(listed, tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())
    # On a larger disk, it is the others who have filled it.
    disk.f_blocks = 100 << 20
    with pytest.raises(InstanceFailed, match="are free"):
        await fetcher.workdir(listed, tmp_path / "work")
    disk.f_bavail = 50 << 20
    await fetcher.workdir(listed, tmp_path / "work")
    disk.f_bavail = 12 << 20
    await fetcher.workdir(listed, tmp_path / "work")  # they are there already


async def test_a_large_object_does_not_hold_up_others_by_the_size_that_it_is_said_to_have(
    objects: Objects, tmp_path: Path
) -> None:
    data = os.urandom(PART + 1)
    await objects.put("large", data)
    asked: list[int] = []
    await objects.fetch("large", tmp_path / "here", size=1, admit=asked.append)
    assert (tmp_path / "here").read_bytes() == data
    assert asked == [len(data)]


async def test_damaged_blob_is_refused(objects: Objects, fetcher: Fetcher, tmp_path: Path) -> None:
    digest = await put_workdir(objects, {"a": b"1"})
    blob = hashlib.sha256(b"1").hexdigest()
    await objects.put(f"blobs/{blob[:2]}/{blob}", b"2")
    with pytest.raises(Corrupt):
        await fetcher.workdir(digest, tmp_path / "work")
    assert not (tmp_path / "cache" / blob[:2] / blob).exists()


async def test_inputs_are_copied_read_only(fetcher: Fetcher, tmp_path: Path) -> None:
    write(tmp_path / "data" / "deep" / "x", "x")
    inputs = {"dir": (tmp_path / "data").as_uri(), "file": str(tmp_path / "data" / "deep" / "x")}
    for _ in range(2):  # Again after an agent's restart.
        await fetcher.inputs(inputs, tmp_path / "inputs")
    run = tmp_path / "inputs" / "dir" / "deep" / "x"
    assert run.read_text() == (tmp_path / "inputs" / "file").read_text() == "x"
    assert run.stat().st_mode & 0o222 == 0


@pytest.mark.parametrize(
    ("name", "url", "error"),
    [
        ("d", "ftp://bucket/x", UnsupportedInput),
        ("d", "file://elsewhere/x", UnsupportedInput),
        ("d", "relative/x", UnsupportedInput),
        ("../d", "/etc/hostname", UnsupportedInput),
        ("d", "/does/not/exist", Missing),
    ],
)
async def test_inputs_that_cannot_be(
    fetcher: Fetcher, tmp_path: Path, name: str, url: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await fetcher.inputs({name: url}, tmp_path / "inputs")


async def test_newest_complete_generation_goes_up_and_down(
    objects: Objects, fetcher: Fetcher, tmp_path: Path
) -> None:
    for generation in (1, 2):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "deep" / "m", str(generation))
    write(tmp_path / "checkpoints" / ".tmp-3" / "m", "unfinished")
    up = uploader(objects, tmp_path)
    await up.all()
    assert up.generation == 2
    # Begun by an attempt that lost its instance: no list, hence no generation.
    await objects.put("jobs/job-1/0/checkpoints/00000009/files/m", b"half")
    assert await fetcher.checkpoint("job-1/0", None, tmp_path / "restored") == (2, 200)
    assert (tmp_path / "restored" / "00000002" / "deep" / "m").read_text() == "2"
    assert [path.name for path in (tmp_path / "restored").iterdir()] == ["00000002"]
    with pytest.raises(Missing):
        await fetcher.checkpoint("job-1/0", 1, tmp_path / "restored")
    assert await fetcher.checkpoint("job-2/0", None, tmp_path / "none") == (0, 0)


async def test_old_generations_are_deleted_from_the_store(
    objects: Objects, fetcher: Fetcher, tmp_path: Path
) -> None:
    up = uploader(objects, tmp_path)
    for generation in (1, 2, 3, 4):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "deep" / "m", str(generation))
        await up.all()
    stored = {key.split("/")[4] for key in await keys(objects, "jobs/job-1/0/checkpoints")}
    assert stored == {"00000003", "00000004"}
    assert await fetcher.checkpoint("job-1/0", 3, tmp_path / "restored") == (3, 300)


async def test_a_member_of_a_gang_stores_every_generation_and_keeps_what_others_need(
    objects: Objects, tmp_path: Path
) -> None:
    await objects.put("jobs/job-1/1/checkpoints/00000002/manifest.json", b"{}")
    up = uploader(objects, tmp_path, gang=("job-1/1", "job-1/2"))
    await up.began_from(1)
    write(tmp_path / "checkpoints" / "00000001" / "m", "1")
    for generation in (2, 3):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "m", str(generation))
    await up.all()
    assert up.generation == 3
    for generation in (4, 5):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "m", str(generation))
        # Whatever it knew is on disk.
        await uploader(objects, tmp_path, gang=("job-1/1", "job-1/2")).all()
    stored = {key.split("/")[4] for key in await keys(objects, "jobs/job-1/0/checkpoints")}
    assert stored == {"00000002", "00000004", "00000005"}


async def test_a_file_that_the_store_does_not_copy_is_stored_again(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each later checkpoint would wait for the same copy."""
    copies = []

    async def copy(source: str, key: str) -> None:
        copies.append((source, key))
        raise StoreUnavailable("a copy took longer than ten minutes")

    monkeypatch.setattr(upload, "PART", 4)
    monkeypatch.setattr(objects, "copy", copy)
    up = uploader(objects, tmp_path)
    for generation in (1, 2):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "m", "unchanged")
        await up.all()
    assert up.generation == 2
    assert len(copies) == 1
    assert await objects.get("jobs/job-1/0/checkpoints/00000002/files/m") == b"unchanged"


async def test_what_a_gang_began_from_stays(objects: Objects, tmp_path: Path) -> None:
    await objects.put("jobs/job-1/0/checkpoints/00000001/manifest.json", b"{}")
    up = uploader(objects, tmp_path, gang=("job-1/1",))
    await up.began_from(1)
    for generation in (2, 3, 4):
        write(tmp_path / "checkpoints" / f"{generation:08d}" / "m", str(generation))
    await up.all()
    stored = {key.split("/")[4] for key in await keys(objects, "jobs/job-1/0/checkpoints")}
    assert stored == {"00000001", "00000003", "00000004"}


async def test_restored_generation_is_not_uploaded_again(objects: Objects, tmp_path: Path) -> None:
    write(tmp_path / "checkpoints" / "00000005" / "m", "5")
    up = uploader(objects, tmp_path)
    await up.began_from(5)
    await up.all()
    assert await keys(objects, "jobs") == []


async def test_generation_that_departs_from_an_older_one_replaces(
    objects: Objects, fetcher: Fetcher, tmp_path: Path
) -> None:
    for home, text in (("first", "old"), ("second", "new")):
        write(tmp_path / home / "checkpoints" / "00000006" / "m", text)
        up = uploader(objects, tmp_path / home)
        await up.began_from(5)
        await up.all()
    await fetcher.checkpoint("job-1/0", 6, tmp_path / "restored")
    assert (tmp_path / "restored" / "00000006" / "m").read_text() == "new"


class Failing(Objects):
    """A store that fails at some keys."""

    def __init__(self, url: str, parts: Iterable[str]) -> None:
        super().__init__(url)
        self.parts = set(parts)

    async def put(self, key: str, data: bytes | Path | File) -> int:
        if any(part in key for part in self.parts):
            raise StoreUnavailable(key)
        return await super().put(key, data)


async def test_list_goes_up_last(tmp_path: Path, fetcher: Fetcher) -> None:
    failing = Failing((tmp_path / "objects").as_uri(), {"files/z"})
    for name in "az":
        write(tmp_path / "checkpoints" / "00000001" / name, name)
    up = uploader(failing, tmp_path)
    with pytest.raises(StoreUnavailable):
        await up.all()
    assert await fetcher.checkpoint("job-1/0", None, tmp_path / "restored") == (0, 0)
    failing.parts.clear()
    await up.all()
    assert await fetcher.checkpoint("job-1/0", None, tmp_path / "restored") == (1, 100)


async def test_log_goes_up_in_order_across_agents(objects: Objects, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one")
    await uploader(objects, tmp_path).all()
    log.write_bytes(b"one two")
    await uploader(objects, tmp_path).all()
    chunks = await keys(objects, "jobs/job-1/0/logs/0003")
    assert [key[-16:] for key in chunks] == [f"{0:016d}", f"{3:016d}"]
    assert b"".join([await objects.get(key) for key in chunks]) == b"one two"


async def test_stored_log_gives_its_place_on_the_disk_back(
    objects: Objects, tmp_path: Path
) -> None:
    log, kept = tmp_path / "log", 64 << 10
    text = "".join(f"line {number}\n" for number in range(200_000))
    sender = uploader(objects, tmp_path, log_kept=kept)
    for start in range(0, len(text), 500_000):
        with log.open("a") as file:
            file.write(text[start : start + 500_000])
        await sender.log()
        assert log.stat().st_blocks * 512 <= kept + 2 * mmap.PAGESIZE
    assert log.stat().st_size == len(text)
    # What is left is where it was, and says where that is.
    pieces = [piece async for piece in follow(log, 0, ended=lambda: True)]
    begin = pieces[0][0]
    assert len(text) - kept - mmap.PAGESIZE <= begin <= len(text) - kept
    assert b"".join(data for _, data in pieces).decode() == text[begin:]
    # All of it is stored, each byte once.
    stored = await keys(objects, f"jobs/{KEY.run}/logs")
    assert b"".join([await objects.get(key) for key in stored]).decode() == text


async def test_part_of_a_log_that_is_not_stored_stays(objects: Objects, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 300_000)
    await uploader(objects, tmp_path, log_kept=0).log()
    with log.open("a") as file:
        file.write("y" * 100_000)
    pieces = [piece async for piece in follow(log, 0, ended=lambda: True)]
    assert b"".join(data for _, data in pieces).endswith(b"y" * 100_000)


async def test_outputs_that_are_gone_are_not_remembered(objects: Objects, tmp_path: Path) -> None:
    """A program that makes and removes files for ever takes no memory of the agent's for them."""
    uploads = uploader(objects, tmp_path)
    for number in range(5):
        write(tmp_path / "outputs" / f"{number}", "x")
        await uploads.all()
        (tmp_path / "outputs" / f"{number}").unlink()
    assert list(json.loads((tmp_path / "uploads.json").read_text())["outputs"]) == ["3", "4"]


async def test_changed_outputs_go_up(objects: Objects, tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    write(out / "a", "1")
    write(out / "sub" / "b#1", "2")
    (out / "link").symlink_to("/etc/hostname")
    (out / os.fsdecode(b"\xff")).write_text("not UTF-8")
    up = uploader(objects, tmp_path)
    await up.all()
    prefix = "jobs/job-1/0/outputs"
    assert await keys(objects, prefix) == [f"{prefix}/a", f"{prefix}/sub/b#1"]
    await objects.delete(f"{prefix}/sub/b#1")
    write(out / "a", "changed")
    await up.all()
    assert await keys(objects, prefix) == [f"{prefix}/a"]
    assert await objects.get(f"{prefix}/a") == b"changed"


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a/", "", "a/\udcff"])
async def test_keys_that_cannot_be(objects: Objects, key: str) -> None:
    with pytest.raises(UnstorableName):
        await objects.put(key, b"")


async def test_persistently_tries_until_the_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_worker.process.backoff.FIRST_S", 0.001)
    tries = 0

    async def work() -> str:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StoreUnavailable("down")
        return "done"

    assert await persistently(work, subject="test") == "done"
    tries = 0
    with pytest.raises(StoreUnavailable):
        await persistently(work, tries=3, subject="test")
    assert tries == 3


async def test_log_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_worker.files.task_log._POLL_S", 0.001)
    log, over = tmp_path / "log", False
    pieces = aiter(follow(log, 2, ended=lambda: over))
    first = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0)
    log.write_bytes(b"abcd")
    async with asyncio.timeout(DEADLINE_S):
        assert await first == (2, b"cd")
    over = True
    with log.open("ab") as file:
        file.write(b"e" * 100_000)
    async with asyncio.timeout(DEADLINE_S):
        rest = [piece async for piece in _rest(pieces)]
    assert b"".join(data for _, data in rest) == b"e" * 100_000
    assert rest[0][0] == 4


async def _rest(pieces: AsyncIterator[tuple[int, bytes]]) -> AsyncIterator[tuple[int, bytes]]:
    async for piece in pieces:
        yield piece


def test_manifest_is_canonical() -> None:
    entries = [FileEntry("b", 1, "0" * 64, 2), FileEntry("a", 1, "0" * 64, 2)]
    text = checkpoint_manifest(entries, 0).decode()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert read_manifest(text.encode()) == entries[::-1]
