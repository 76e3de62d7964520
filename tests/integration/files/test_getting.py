"""Files of jobs on their way to a user's machine, over a real connection and real disks."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eva_client.downloads import Fetched, fetch
from eva_client.downloads.destination import InTheWay
from eva_client.rpc.master import Client
from eva_master.adapters.objects import store as object_store
from eva_wire.values.errors import (
    EvaError,
    InvalidRequest,
    NotAuthorised,
    NotFound,
    StorageFull,
)
from eva_wire.values.users import Role
from tests.fakes.rpc.server import RpcMaster, add_job, rpc_master, spec

T = TypeVar("T")
MIB = 1 << 20


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path / "master") as running:
        yield running


@contextmanager
def connected(master: RpcMaster, owner: str = "ada", role: Role = Role.USER) -> Iterator[Client]:
    secret = master.tokens.create(owner, role)[1]
    address = f"127.0.0.1:{master.ports.users}"
    with Client(address, authorities=master.authorities, token=secret) as client:
        yield client


async def as_user(
    master: RpcMaster, call: Callable[[Client], T], owner: str = "ada", role: Role = Role.USER
) -> T:
    with connected(master, owner, role) as client:
        return await asyncio.to_thread(call, client)


async def get(
    master: RpcMaster, reference: str, *path: str, owner: str = "ada", **options: Any
) -> Fetched:
    return await as_user(master, lambda c: fetch(c, reference, *path, **options), owner)


def tree(root: Path) -> dict[str, bytes]:
    """All that is in a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


async def job(master: RpcMaster, name: str = "train", tasks: int = 1, owner: str = "ada") -> str:
    return await master.loop.change(
        lambda state: add_job(state, spec(name, tasks=tasks, owner=owner))
    )


async def test_outputs_come_below_the_directory_as_the_task_wrote_them(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)
    files = {"model.pt": b"weights" * 100_000, "logs/a b\n.txt": b"", "d/e/f": b"1"}
    for name, data in files.items():
        await master.store.put(f"jobs/train-1/0/outputs/{name}", data)
    await master.store.put("jobs/train-1/0/logs/0001/0000000000000000", b"not an output")
    await master.store.put("jobs/train-10/0/outputs/other", b"another job's")
    fetched = await get(master, "train", to=tmp_path / "to")
    assert tree(tmp_path / "to") == files
    assert (fetched.job, fetched.fetched, fetched.present) == ("train-1", 3, 0)
    assert fetched.size == sum(map(len, files.values()))


async def test_a_directory_of_outputs_and_a_single_file(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a/b/c", b"1")
    await master.store.put("jobs/train-1/0/outputs/a/b2", b"2")
    await get(master, "train", "outputs/a/b/", to=tmp_path / "below")
    assert tree(tmp_path / "below") == {"c": b"1"}
    await get(master, "train", "outputs/a/b2", to=tmp_path / "file")
    assert tree(tmp_path / "file") == {"b2": b"2"}


async def test_the_directory_that_is_not_named(
    master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a/b", b"1")
    assert (await get(master, "train")).directory == Path("train-1/outputs")
    assert (await get(master, "train", "outputs/a/b")).directory == Path("train-1/outputs/a")
    assert tree(tmp_path / "train-1") == {"outputs/a/b": b"1"}


async def test_files_of_several_tasks_lie_apart(master: RpcMaster, tmp_path: Path) -> None:
    await job(master, tasks=3)
    for index in (0, 2):
        await master.store.put(f"jobs/train-1/{index}/outputs/a", b"%d" % index)
    await get(master, "train", to=tmp_path / "all")
    assert tree(tmp_path / "all") == {"0/a": b"0", "2/a": b"2"}
    await get(master, "train", "outputs/a", task=2, to=tmp_path / "one")
    assert tree(tmp_path / "one") == {"2/a": b"2"}
    with pytest.raises(NotFound, match="train-1/1 has stored no outputs"):
        await get(master, "train", task=1, to=tmp_path / "none")
    with pytest.raises(NotFound, match="no task 3"):
        await get(master, "train", task=3, to=tmp_path / "none")
    assert not (tmp_path / "none").exists()


async def test_of_an_extra_run_the_checkpoints_and_logs_are_its_own(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)

    def extra(state: Any) -> None:
        run = state.runs["train-1/0"]
        state.put_run(replace(run, id="train-1/0+1"))
        state.put_run(replace(run, replicas=1))

    await master.loop.change(extra)
    for run in ("0", "0+1"):
        await master.store.put(f"jobs/train-1/{run}/outputs/a", run.encode())
        await master.store.put(f"jobs/train-1/{run}/logs/0001/{0:016}", run.encode())
    for task in (None, 0):
        to = tmp_path / str(task)
        await get(master, "train", "logs", task=task, to=to / "logs")
        assert tree(to / "logs") == {"0/0001.log": b"0", "0+1/0001.log": b"0+1"}
        await get(master, "train", task=task, to=to / "outputs")
        assert tree(to / "outputs") == {"a": b"0"}


async def test_logs_are_put_together_each_byte_once(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    for attempt, offset, data in (
        (1, 0, b"first " * 200_000),
        (2, 0, b"one "),
        (2, 2, b"e two "),
        (2, 8, b"three"),
        (10, 0, b""),
    ):
        await master.store.put(f"jobs/train-1/0/logs/{attempt:04}/{offset:016}", data)
    await get(master, "train", "logs", to=tmp_path / "to")
    assert tree(tmp_path / "to") == {
        "0001.log": b"first " * 200_000,
        "0002.log": b"one two three",
        "0010.log": b"",
    }


async def put_generation(master: RpcMaster, number: int, *, whole: bool = True) -> None:
    prefix = f"jobs/train-1/0/checkpoints/{number:08}"
    await master.store.put(f"{prefix}/files/a", b"a%d" % number)
    await master.store.put(f"{prefix}/files/b", b"b%d" % number)
    if whole:
        await master.store.put(f"{prefix}/manifest.json", b"{}")


async def test_only_whole_checkpoints_are_fetched(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    for number in (3, 4):
        await put_generation(master, number)
    await put_generation(master, 5, whole=False)
    await get(master, "train", "checkpoints", to=tmp_path / "to")
    assert tree(tmp_path / "to") == {
        "00000003/a": b"a3",
        "00000003/b": b"b3",
        "00000004/a": b"a4",
        "00000004/b": b"b4",
    }


async def test_of_plain_files_the_newest_copy_is_fetched(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    prefix = "jobs/train-1/0/checkpoints/plain"
    first, second, third = (str(digit) * 64 for digit in (1, 2, 3))
    for digest in (first, second, third):
        await master.store.put(f"{prefix}/files/{digest}", digest.encode())
    for name, files in (
        ("00000002-0001-1-quiet", {"d/x": first, "y": second}),
        ("00000003-0001-2-idle", {}),
        ("00000001-0001-1-stopped", {"d/x": third}),
    ):
        listed = [{"path": path, "sha256": digest} for path, digest in files.items()]
        await master.store.put(f"{prefix}/{name}.json", json.dumps({"files": listed}).encode())
    await get(master, "train", "checkpoints", to=tmp_path / "to")
    assert tree(tmp_path / "to") == {"plain/d/x": first.encode(), "plain/y": second.encode()}


@pytest.mark.parametrize(
    ("owner", "role", "path", "refused"),
    [
        ("ada", Role.VIEWER, "outputs", False),
        ("ada", Role.USER, "outputs", False),
        ("ben", Role.USER, "outputs", True),
        ("ben", Role.VIEWER, "outputs", True),
        ("ben", Role.USER, "checkpoints/00000001", True),
        ("ben", Role.USER, "", True),
        ("ben", Role.VIEWER, "logs", False),
        ("ben", Role.OPERATOR, "outputs", False),
    ],
)
async def test_files_of_other_users_are_refused_but_logs(
    master: RpcMaster, tmp_path: Path, owner: str, role: Role, path: str, refused: bool
) -> None:
    await job(master)
    await put_generation(master, 1)
    await master.store.put("jobs/train-1/0/outputs/a", b"secret")
    await master.store.put("jobs/train-1/0/logs/0001/0000000000000000", b"seen by all")
    listed = await as_user(master, lambda client: client.files.listed("train-1"))
    wanted = [(file, 0) for file in listed.files if file.path.startswith(path)]

    def ask(client: Client) -> bytes:
        assert client.files.listed("train-1", path).files
        return b""

    def send(client: Client) -> bytes:
        from eva_client.rpc.files import Calls

        return b"".join(piece.data for piece in client.files.pieces("train-1", wanted, Calls()))

    for call in (ask, send):
        if refused:
            with pytest.raises(NotAuthorised, match="belongs to ada"):
                await as_user(master, call, owner, role)
        else:
            await as_user(master, call, owner, role)


@pytest.mark.parametrize(
    "path", ["etc/passwd", "outputs/../../1/outputs", "outputs/./a", "outputs//a", "/outputs", ".."]
)
async def test_a_path_outside_of_the_job_is_refused(
    master: RpcMaster, tmp_path: Path, path: str
) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a", b"1")
    with pytest.raises(InvalidRequest, match="begin with outputs, checkpoints"):
        await as_user(master, lambda client: client.files.listed("train", path))


async def test_an_unknown_path_leaves_nothing_behind(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a", b"1")
    with pytest.raises(NotFound, match="train-1 has stored no outputs/b") as refused:
        await get(master, "train", "outputs/b", to=tmp_path / "to")
    assert "eva get train-1 --list" in refused.value.hint
    assert not (tmp_path / "to").exists()


async def test_a_job_without_files_is_not_told_to_list_them(master: RpcMaster) -> None:
    await job(master)
    with pytest.raises(NotFound, match="train-1 has stored no file") as refused:
        await as_user(master, lambda client: client.files.listed("train", ""))
    assert refused.value.hint == "files of a running task are stored after a while"


class Stop(Exception):
    """The user's interruption."""


async def test_an_interrupted_fetch_is_gone_on_with(
    master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job(master)
    small = {f"small/{number}": b"%d" % number for number in range(300)}
    large = os.urandom(12 * MIB)
    for name, data in (small | {"large": large}).items():
        await master.store.put(f"jobs/train-1/0/outputs/{name}", data)
    # The largest file comes first, then a call for so many others.
    monkeypatch.setattr("eva_client.downloads.fetching._AT_ONCE", 1)
    monkeypatch.setattr("eva_client.downloads.fetching._FILES_PER_CALL", 50)
    total = sum(map(len, small.values())) + len(large)

    def stop(done: int, of: int, files: int, files_total: int) -> None:
        assert (of, files_total) == (total, 301)
        if files == stop_at and done > 8 * MIB:
            raise Stop

    stop_at = 0
    with pytest.raises(Stop):
        await get(master, "train", to=tmp_path / "to", progress=stop)
    stop_at = 120
    with pytest.raises(Stop):
        await get(master, "train", to=tmp_path / "to", progress=stop)
    before = tree(tmp_path / "to")
    whole = {name for name in before if not name.startswith(".eva-get/")}
    assert len(whole) == 120
    assert "large" in whole

    sent: list[tuple[str, int]] = []
    original = object_store.Objects.piece

    async def counted(store: Any, key: str, offset: int, *rest: Any) -> bytes:
        sent.append((key, offset))
        return await original(store, key, offset, *rest)

    monkeypatch.setattr(object_store.Objects, "piece", counted)
    fetched = await get(master, "train", to=tmp_path / "to")
    assert tree(tmp_path / "to") == small | {"large": large}
    assert (fetched.fetched, fetched.present) == (301 - len(whole), len(whole))
    again = {key.rpartition("outputs/")[2] for key, _ in sent}
    assert again == (small | {"large": large}).keys() - whole


async def test_a_large_file_is_gone_on_with_near_its_end(
    master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job(master)
    large = os.urandom(12 * MIB)
    await master.store.put("jobs/train-1/0/outputs/large", large)

    def stop(done: int, total: int, files: int, files_total: int) -> None:
        if done >= 8 * MIB:
            raise Stop

    with pytest.raises(Stop):
        await get(master, "train", to=tmp_path / "to", progress=stop)
    ((name, part),) = tree(tmp_path / "to").items()
    assert name.startswith(".eva-get/")
    assert part == large[: 8 * MIB]
    counts: list[int] = []
    to = tmp_path / "to"
    await get(master, "train", to=to, progress=lambda done, *_: counts.append(done))
    # The last MiB is fetched again: a crash of the machine may have lost it.
    assert counts[:2] == [0, 7 * MIB]
    assert tree(to) == {"large": large}


async def test_a_file_that_was_stored_anew_is_not_gone_on_with(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)
    old, new = b"o" * (6 * MIB), b"n" * (6 * MIB)
    await master.store.put("jobs/train-1/0/outputs/a", old)

    def stop(done: int, total: int, files: int, files_total: int) -> None:
        if done > 4 * MIB:
            raise Stop

    with pytest.raises(Stop):
        await get(master, "train", to=tmp_path / "to", progress=stop)
    await master.store.put("jobs/train-1/0/outputs/a", new)
    await get(master, "train", to=tmp_path / "to")
    assert tree(tmp_path / "to") == {"a": new}


async def test_other_content_is_not_overwritten_unless_forced(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)
    for name in "abc":
        await master.store.put(f"jobs/train-1/0/outputs/{name}", name.encode() * 10)
    to = tmp_path / "to"
    to.mkdir()
    (to / "a").write_bytes(b"mine")
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (to / "b").symlink_to(tmp_path / "elsewhere")
    (to / "c").write_bytes(b"c" * 10)  # The content is the one to be fetched.
    with pytest.raises(InTheWay, match="other files of the names a, b") as refused:
        await get(master, "train", to=to)
    assert "--force" in refused.value.hint
    assert sorted(path.name for path in to.iterdir()) == ["a", "b", "c"]
    assert (to / "a").read_bytes() == b"mine"
    await get(master, "train", to=to, force=True)
    assert tree(to) == {name: name.encode() * 10 for name in "abc"}
    assert not (to / "b").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


async def test_other_content_of_the_same_size_is_kept(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    for name in "abc":
        await master.store.put(f"jobs/train-1/0/outputs/{name}", name.encode() * 10)
    to = tmp_path / "to"
    to.mkdir()
    (to / "a").write_bytes(b"mine......")
    (to / "c").write_bytes(b"c" * 10)
    with pytest.raises(InTheWay, match=r"of the names a$"):
        await get(master, "train", to=to)
    assert tree(to) == {"a": b"mine......", "b": b"b" * 10, "c": b"c" * 10}


async def test_nothing_is_written_through_a_link_or_a_file(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/d/a", b"1")
    to, outside = tmp_path / "to", tmp_path / "outside"
    to.mkdir()
    outside.mkdir()
    for link in (True, False):
        if link:
            (to / "d").symlink_to(outside)
        else:
            (to / "d").write_bytes(b"a file")
        for force in (False, True):
            with pytest.raises(InTheWay, match="to/d is a link or a file"):
                await get(master, "train", to=to, force=force)
        assert not any(outside.iterdir())
        assert list(to.iterdir()) == [to / "d"]
        (to / "d").unlink()
    (to / "d").mkdir()
    (to / "d/a").mkdir()
    with pytest.raises(InTheWay, match="to/d/a is a directory"):
        await get(master, "train", to=to, force=True)


async def test_a_directory_that_is_a_file(master: RpcMaster, tmp_path: Path) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a", b"1")
    (tmp_path / "file").write_bytes(b"mine")
    for to in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(EvaError, match="not a directory") as refused:
            await get(master, "train", to=to)
        assert "--to" in refused.value.hint
    assert tree(tmp_path)["file"] == b"mine"


async def test_two_commands_do_not_write_to_one_directory(
    master: RpcMaster, tmp_path: Path
) -> None:
    from eva_client.downloads.destination import Destination

    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a", b"1")
    with Destination(tmp_path / "to"), pytest.raises(EvaError, match="another command"):
        await get(master, "train", to=tmp_path / "to")
    assert not (tmp_path / "to").exists()


async def test_modes_are_those_of_files_that_the_user_makes(
    master: RpcMaster, tmp_path: Path
) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/d/a", b"1")
    umask = os.umask(0o027)
    try:
        await get(master, "train", to=tmp_path / "to")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "to/d/a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "to/d").stat().st_mode) == 0o750


async def test_a_disk_without_room_is_told_before_anything_is_fetched(
    master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/a", b"1234")
    monkeypatch.setattr("eva_client.downloads.destination.Destination.room", lambda _: 3)
    with pytest.raises(StorageFull, match="are to be fetched") as refused:
        await get(master, "train", to=tmp_path / "to")
    assert "make room" in refused.value.hint
    assert not (tmp_path / "to").exists()


async def test_a_disk_that_fills_up_keeps_whole_files_alone(
    master: RpcMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job(master)
    await master.store.put("jobs/train-1/0/outputs/small", b"1234")
    await master.store.put("jobs/train-1/0/outputs/large", b"5" * (3 * MIB))
    real = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) > 4 and offset > MIB:
            raise OSError(28, os.strerror(28))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(StorageFull, match="is full"):
        await get(master, "train", to=tmp_path / "to")
    assert set(tree(tmp_path / "to")) <= {"small"}
    assert not (tmp_path / "to/.eva-get").exists()


async def test_what_changes_meanwhile_is_fetched_as_it_is_then(
    master: RpcMaster, tmp_path: Path
) -> None:
    """A checkpoint gives way to a newer one while it is fetched, and an output is written anew."""
    await job(master)
    await put_generation(master, 3)
    await master.store.put("jobs/train-1/0/outputs/a", b"old")
    looks = count()

    async def change() -> None:
        await put_generation(master, 4)
        for name in ("manifest.json", "files/b"):
            await master.store.delete(f"jobs/train-1/0/checkpoints/00000003/{name}")
        await master.store.put("jobs/train-1/0/outputs/a", b"anew")

    loop = asyncio.get_running_loop()

    def before_pieces(done: int, total: int, files: int, files_total: int) -> None:
        if next(looks) == 0:
            asyncio.run_coroutine_threadsafe(change(), loop).result()

    await get(master, "train", "checkpoints", to=tmp_path / "c", progress=before_pieces)
    assert tree(tmp_path / "c") == {"00000004/a": b"a4", "00000004/b": b"b4"}
    assert not (tmp_path / "c/00000003").exists()
    await master.store.put("jobs/train-1/0/outputs/a", b"old")
    looks = count()
    await get(master, "train", to=tmp_path / "o", progress=before_pieces)
    assert tree(tmp_path / "o") == {"a": b"anew"}
