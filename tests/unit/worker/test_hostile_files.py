"""What the agent stores of a task that plays tricks with its checkpoints, outputs and log."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from eva_worker.errors import StoreUnavailable
from eva_worker.files import objects as object_stores
from eva_worker.files.beneath import remove_tree
from eva_worker.files.checkpoints import MOST_GENERATION, checkpoint_key, generation_of, newest
from eva_worker.files.download import Fetcher, FileEntry, checkpoint_manifest, read_manifest
from eva_worker.files.objects import Objects
from eva_worker.files.task_log import follow
from eva_worker.files.upload import Uploader, append_line
from eva_worker.orders import TaskKey

KEY = TaskKey("job-1/0", 3)
SECRET = "the host's own"
POISON = "99999999999999999999999999"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri())


@pytest.fixture
def host(tmp_path: Path) -> Path:
    host = tmp_path / "host"
    (host / "deep").mkdir(parents=True)
    (host / "deep" / "secret").write_text(SECRET)
    return host


async def itself(generation: int) -> int:
    """As many steps as its number."""
    return generation


class Task:
    """A task's directories, and the agent that stores them."""

    def __init__(self, objects: Objects, home: Path, gang: tuple[str, ...] = ()) -> None:
        self.home = home
        self.outputs = home / "storage" / "outputs"
        self.checkpoints = home / "checkpoints"
        for directory in (self.outputs, self.checkpoints):
            directory.mkdir(parents=True, exist_ok=True)
        self.told: list[str] = []
        self.uploader = Uploader(
            objects,
            KEY,
            gang=gang,
            home=home,
            outputs="storage/outputs",
            memory=home / "uploads.json",
            steps_kept=itself,
            count=lambda _: None,
            tell=self.told.append,
        )


@pytest.fixture
def task(objects: Objects, tmp_path: Path) -> Task:
    return Task(objects, tmp_path / "task")


async def stored(objects: Objects) -> dict[str, bytes]:
    return {key: await objects.get(key) async for key in objects.list("jobs")}


async def assert_no_secret(objects: Objects) -> None:
    for key, data in (await stored(objects)).items():
        assert SECRET.encode() not in data, key


async def test_a_checkpoint_that_is_a_link_is_none(
    task: Task, objects: Objects, host: Path
) -> None:
    (task.checkpoints / "00000001").symlink_to(host)
    await task.uploader.all()
    assert await stored(objects) == {}
    assert task.uploader.generation == 0


async def test_outputs_that_are_a_link_are_none(task: Task, objects: Objects, host: Path) -> None:
    task.outputs.rmdir()
    task.outputs.symlink_to(host)
    await task.uploader.all()
    assert await stored(objects) == {}


async def test_checkpoints_and_storage_that_are_links_are_none(
    task: Task, objects: Objects, host: Path
) -> None:
    task.checkpoints.rmdir()
    (host / "00000001").mkdir()
    (host / "00000001" / "secret").write_text(SECRET)
    (host / "outputs").symlink_to(host / "deep")
    task.checkpoints.symlink_to(host)
    remove_tree(task.outputs.parent)
    task.outputs.parent.symlink_to(host)
    await task.uploader.all()
    assert await stored(objects) == {}


async def test_a_log_that_is_a_link_is_not_read_and_not_written(
    task: Task, objects: Objects, host: Path
) -> None:
    (task.home / "log").symlink_to(host / "deep" / "secret")
    await task.uploader.log()
    with pytest.raises(OSError, match="symbolic links"):
        append_line(task.home / "log", "more")
    pieces = [piece async for piece in follow(task.home / "log", 0, ended=lambda: True)]
    assert (await stored(objects), pieces) == ({}, [])
    assert (host / "deep" / "secret").read_text() == SECRET


async def test_a_file_that_becomes_a_link_while_it_is_stored(
    task: Task, objects: Objects, host: Path
) -> None:
    """Between the look at the tree and the read, again and again."""
    over = threading.Event()
    place = task.outputs / "x"

    def swap() -> None:
        while not over.is_set():
            for link in (False, True):
                place.unlink(missing_ok=True)
                if link:
                    place.symlink_to(host / "deep" / "secret")
                else:
                    place.write_text("ours")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(60):
            await task.uploader.all()
    finally:
        over.set()
        thread.join()
    await assert_no_secret(objects)


async def test_a_poisonous_generation_is_neither_stored_nor_restored(
    task: Task, objects: Objects, tmp_path: Path
) -> None:
    (task.checkpoints / POISON).mkdir()
    (task.checkpoints / "٣٣٣٣٣٣٣٣").mkdir()
    (task.checkpoints / "7").mkdir()
    (task.checkpoints / "00000002").mkdir()
    (task.checkpoints / "00000002" / "m").write_text("good")
    await task.uploader.all()
    assert task.uploader.generation == 2, "the others are directories like any other"
    assert task.told == []
    # What an agent of an earlier version has stored.
    await objects.put(f"jobs/{KEY.run}/checkpoints/{POISON}/manifest.json", b'{"files":[]}')
    assert await newest(objects, KEY.run) == 2
    restored = await Fetcher(objects, tmp_path / "cache").checkpoint(KEY.run, None, tmp_path / "r")
    assert restored == (2, 2)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("00000001", 1),
        ("100000000", 100_000_000),
        (f"{MOST_GENERATION}", MOST_GENERATION),
        (f"{MOST_GENERATION + 1}", None),
        ("00000000", None),
        ("000000001", None),
        ("1", None),
        ("", None),
        ("٣٣٣٣٣٣٣٣", None),
        ("0000001\n", None),
        ("-0000001", None),
    ],
)
def test_the_name_of_a_generation_is_its_number(name: str, number: int | None) -> None:
    assert generation_of(name) == number


@pytest.mark.parametrize("steps", [-1, 2**65, 1e300, "many", None, float("inf")])
async def test_a_poisonous_number_of_steps_counts_as_unknown(
    objects: Objects, tmp_path: Path, steps: object
) -> None:
    document = json.dumps({"files": [], "steps": steps}).encode()
    await objects.put(f"{checkpoint_key(KEY.run, 1)}/manifest.json", document)
    fetcher = Fetcher(objects, tmp_path / "cache")
    assert await fetcher.checkpoint(KEY.run, None, tmp_path / "restored") == (1, 0)


async def test_a_restored_file_has_no_special_rights(objects: Objects, tmp_path: Path) -> None:
    task = Task(objects, tmp_path / "task")
    (task.checkpoints / "00000001").mkdir()
    tool = task.checkpoints / "00000001" / "tool"
    tool.write_text("#!/bin/sh")
    tool.chmod(0o6755)
    await task.uploader.all()
    await Fetcher(objects, tmp_path / "cache").checkpoint(KEY.run, None, tmp_path / "restored")
    assert (tmp_path / "restored" / "00000001" / "tool").stat().st_mode & 0o7777 == 0o755
    # Nor if it is the list that says so.
    entry = FileEntry("x", 0o4755, "0" * 64, 0)
    (entry,) = read_manifest(checkpoint_manifest([entry], 0))
    assert entry.mode == 0o755


@pytest.mark.parametrize("gang", [(), ("job-1/1",)])
async def test_a_checkpoint_that_cannot_be_stored_does_not_hold_up_the_next(
    objects: Objects, tmp_path: Path, gang: tuple[str, ...]
) -> None:
    task = Task(objects, tmp_path / "task", gang)
    for number in (1, 2):
        (task.checkpoints / f"{number:08d}").mkdir()
    (task.checkpoints / "00000001" / os.fsdecode(b"\xff")).write_text("not UTF-8")
    (task.checkpoints / "00000002" / "m").write_text("good")
    await task.uploader.all()
    assert task.uploader.generation == 2
    assert gang == () or "00000001 cannot be stored" in task.told[0]
    (task.checkpoints / "00000003").mkdir()
    with (task.checkpoints / "00000003" / "giant").open("wb") as file:
        file.truncate(1 << 42)
    await task.uploader.all()
    assert task.uploader.generation == 2
    assert "00000003 cannot be stored" in task.told[-1]
    told = list(task.told)
    await task.uploader.all()
    assert task.told == told, "once"


@pytest.mark.parametrize(
    "name",
    [
        "%" * 200,
        "x" * 250,
        "/".join(["y" * 200] * 6),
        os.fsdecode(b"\xff\xfe"),
        "\x1b]0;title\x07",
        " ",
        "\\",
        '{}^[]`"<>#|~*?',
        "manifest.json",
        ".tmp-x",
    ],
)
async def test_names_of_all_kinds_end(
    task: Task, objects: Objects, tmp_path: Path, name: str
) -> None:
    """A name that the store cannot have is told, and is never tried for ever."""
    for top in (task.outputs, task.checkpoints / "00000001"):
        place = top / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name.encode(errors="replace").decode())
    await task.uploader.all()
    keys = [key async for key in objects.list(f"jobs/{KEY.run}/outputs")]
    assert bool(keys) != bool(task.told)
    if keys:
        assert keys == [f"jobs/{KEY.run}/outputs/{name}"]
        await Fetcher(objects, tmp_path / "cache").checkpoint(KEY.run, None, tmp_path / "r")
        assert (tmp_path / "r" / "00000001" / name).is_file()
    assert all(line.isprintable() for line in task.told)


async def test_a_store_that_was_away_is_asked_again(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is back by the time that somebody looks why it failed."""
    store = Path(unquote(objects.url.removeprefix("file://")))
    away = tmp_path / "away"
    store.rename(away)
    store.touch()

    async def put(*arguments: Any) -> None:
        try:
            await obstore_put(*arguments)
        finally:
            store.unlink()
            away.rename(store)

    obstore_put = object_stores._put
    monkeypatch.setattr(object_stores, "_put", put)
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        await objects.put("jobs/a/outputs/out", b"out")
    monkeypatch.undo()
    assert await objects.put("jobs/a/outputs/out", b"out") == 3


async def test_special_files_are_left_out(task: Task, objects: Objects) -> None:
    os.mkfifo(task.outputs / "fifo")
    os.mkfifo(task.checkpoints / "00000009")
    (task.checkpoints / "00000001").mkdir()
    os.mkfifo(task.checkpoints / "00000001" / "fifo")
    (task.checkpoints / "00000001" / "m").write_text("m")
    await task.uploader.all()
    assert set(await stored(objects)) == {
        f"jobs/{KEY.run}/checkpoints/00000001/files/m",
        f"jobs/{KEY.run}/checkpoints/00000001/manifest.json",
    }


@pytest.mark.root
async def test_a_hard_link_to_another_users_file_is_left_out(
    task: Task, objects: Objects, host: Path
) -> None:
    os.link(host / "deep" / "secret", task.outputs / "linked")
    os.chown(task.outputs, 65534, 65534)
    (task.outputs / "own").write_text("own")
    await task.uploader.all()
    assert [key async for key in objects.list("jobs")] == [f"jobs/{KEY.run}/outputs/own"]
    assert "hard link" in "".join(task.told)


async def test_a_giant_hole_in_a_log_costs_nothing(task: Task, objects: Objects) -> None:
    with (task.home / "log").open("wb") as log:
        log.write(b"begin\n")
        log.seek(1 << 40)
        log.write(b"no newline" * 3)
    await task.uploader.log()
    chunks = await stored(objects)
    assert sum(map(len, chunks.values())) < 1 << 20
    assert chunks[max(chunks)].endswith(b"no newline")
    pieces = [piece async for piece in follow(task.home / "log", 0, ended=lambda: True)]
    assert pieces[-1] == (1 << 40, b"no newline" * 3)
    # A log that was cut is not read again from its beginning.
    os.truncate(task.home / "log", 3)
    await task.uploader.log()
    assert await stored(objects) == chunks


async def test_many_files_are_recorded_now_and_then(
    task: Task, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record has all of them: one for each file would be the square."""
    records = 0

    async def remember() -> None:
        nonlocal records
        records += 1

    monkeypatch.setattr(task.uploader._outputs, "_remember", remember)
    monkeypatch.setattr(task.uploader._outputs, "_remembered_at", float("inf"))
    for number in range(300):
        (task.outputs / str(number)).touch()
    await task.uploader.all()
    assert records == 1
    assert len(await stored(objects)) == 300


async def test_notices_are_few(task: Task) -> None:
    for number in range(1_000):
        (task.outputs / os.fsdecode(b"\xff%d" % number)).touch()
    await task.uploader.all()
    assert len(task.told) == 20
    assert "may be more" in task.told[-1]


async def test_a_record_with_a_poisonous_generation_is_not_believed(
    objects: Objects, tmp_path: Path
) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "uploads.json").write_text(json.dumps({"generation": int(POISON)}))
    task = Task(objects, tmp_path / "task")
    (task.checkpoints / "00000001").mkdir()
    await task.uploader.all()
    assert task.uploader.generation == 1


async def test_a_checkpoint_that_changes_while_it_is_stored_is_stored_later(
    task: Task, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it old and half of it new would be refused by every attempt that begins from it."""
    place = task.checkpoints / "00000001" / "m"
    place.parent.mkdir()
    place.write_text("old")
    put = objects.put

    async def changing(key: str, data: object) -> int:
        place.write_text("newer")
        return await put(key, data)  # type: ignore[arg-type]

    monkeypatch.setattr(objects, "put", changing)
    await task.uploader.all()
    assert task.uploader.generation == 0
    assert await newest(objects, KEY.run) == 0
    monkeypatch.undo()
    await task.uploader.all()
    await Fetcher(objects, tmp_path / "cache").checkpoint(KEY.run, None, tmp_path / "r")
    assert (tmp_path / "r" / "00000001" / "m").read_text() == "newer"


async def test_a_checkpoint_whose_list_no_attempt_would_read_is_not_stored(
    task: Task, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_worker.files.upload.MOST_LISTED", 100)
    (task.checkpoints / "00000001").mkdir()
    (task.checkpoints / "00000001" / ("x" * 100)).touch()
    await task.uploader.all()
    assert await newest(objects, KEY.run) == 0
    assert "too long together" in task.told[0]
