"""Checkpoints of programs without the SDK: what is stored of their files, and restored."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from eva_worker.errors import BadOrder
from eva_worker.files.download import Fetcher
from eva_worker.files.objects import Objects
from eva_worker.files.plain import copies
from eva_worker.files.plain import uploads as plain_uploads
from eva_worker.files.plain.copies import How
from eva_worker.files.plain.restoring import restore, restore_earlier
from eva_worker.files.plain.uploads import NOTHING
from eva_worker.files.upload import Uploader
from eva_worker.orders import TaskKey
from eva_worker.tasks.endings import ended_how

RUN = "job-1/0"
SECRET = "the host's own"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri())


async def itself(generation: int) -> int:
    return generation


class Attempt:
    """An attempt of a task run, from the restored checkpoint to its end."""

    def __init__(
        self, objects: Objects, root: Path, number: int, rank: int, members: int | None
    ) -> None:
        self.objects = objects
        self.key = TaskKey(f"job-1/{rank}", number)
        self.alone = members is None
        runs = [f"job-1/{it}" for it in range(members or 0)]
        self.gang = tuple(it for it in runs if it != self.key.run)
        self.home = root / f"{rank}-{number}"
        self.directory = self.home / "checkpoints"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.steps = 0
        self.told: list[str] = []
        self.uploader = self.agent()

    def agent(self) -> Uploader:
        """Uploader of its files, of the first agent or of the next one."""
        self.uploader = Uploader(
            self.objects,
            self.key,
            gang=self.gang,
            home=self.home,
            outputs=None,
            memory=self.home / "uploads.json",
            steps_kept=itself,
            steps=lambda: self.steps,
            count=lambda _: None,
            tell=self.told.append,
        )
        return self.uploader

    async def begin(self) -> Attempt:
        """Restore what the attempt begins from."""
        fetcher = Fetcher(self.objects, self.home / "cache")
        generation, _ = await fetcher.checkpoint(self.key.run, None, self.directory)
        gang = None if self.alone else self.gang
        plain = await restore(self.objects, self.key, self.key.run, gang, self.directory)
        self.steps = plain.steps
        await self.uploader.began_from(generation, plain)
        return self

    def write(self, path: str, text: str) -> None:
        """Write a file at once, as programs do: aside, then renamed."""
        place = self.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f"{place.name}.part")
        aside.write_text(text)
        aside.rename(place)

    def tree(self) -> dict[str, str | None]:
        """Contents: the text of files, the target of links, `None` for directories."""
        found: dict[str, str | None] = {}
        for path in sorted(self.directory.rglob("*")):
            name = str(path.relative_to(self.directory))
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            else:
                found[name] = None if path.is_dir() else path.read_text()
        return found


@pytest.fixture
def attempt(objects: Objects, tmp_path: Path) -> Callable[..., Attempt]:
    def make(number: int, rank: int = 0, members: int | None = None) -> Attempt:
        return Attempt(objects, tmp_path / "attempts", number, rank, members)

    return make


Make = Callable[..., Attempt]


async def test_a_stopped_program_finds_its_files_as_they_stood(attempt: Make) -> None:
    first = await attempt(1).begin()
    assert first.tree() == {}
    first.write("last.ckpt", "epoch 3")
    first.write("checkpoint-5/model.bin", "w5")
    first.write("10/weights", "w10")
    first.write("lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt", "w20")
    first.write("99999999999999999999", "no number")
    (first.directory / "empty").mkdir()
    (first.directory / "nothing").touch()
    (first.directory / "best.ckpt").symlink_to("checkpoint-5/model.bin")
    (first.directory / "latest").symlink_to(first.directory / "10")
    (first.directory / "10" / "self").symlink_to("/eva/checkpoints/10/weights")
    (first.directory / "10" / "top").symlink_to("/eva/checkpoints")
    (first.directory / "half.tmp").write_text("not renamed yet")
    (first.directory / "10" / "weights").chmod(0o640)
    (first.directory / "empty").chmod(0o700)
    os.utime(first.directory / "last.ckpt", ns=(10**18 + 5, 10**18 + 5))
    os.utime(first.directory / "empty", ns=(10**18, 10**18))
    before = first.tree()
    await first.uploader.all(How.STOPPED)
    assert (first.uploader.kept, first.told) == (1, [])

    second = await attempt(2).begin()
    assert second.tree() == before | {
        "latest": "-> 10",
        "10/self": "-> weights",
        "10/top": "-> ..",
    }
    assert (second.directory / "10" / "weights").stat().st_mode & 0o777 == 0o640
    assert (second.directory / "empty").stat().st_mode & 0o777 == 0o700
    assert (second.directory / "last.ckpt").stat().st_mtime_ns == 10**18 + 5
    assert (second.directory / "empty").stat().st_mtime_ns == 10**18
    assert second.uploader.kept == 1


async def test_what_is_gone_stays_gone_and_what_is_the_same_is_stored_once(
    attempt: Make, objects: Objects
) -> None:
    first = await attempt(1).begin()
    for step in (5, 10, 15):
        first.write(f"checkpoint-{step}/model.bin", f"w{step}")
        first.write(f"checkpoint-{step}/config.json", "always the same")
        (first.directory / f"checkpoint-{step - 10}").exists()
        if step == 15:
            for path in (first.directory / "checkpoint-5").iterdir():
                path.unlink()
            (first.directory / "checkpoint-5").rmdir()
        await first.uploader.all()
    second = await attempt(2).begin()
    assert {path for path, text in second.tree().items() if text is None} == {
        "checkpoint-10",
        "checkpoint-15",
    }
    blobs = [key async for key in objects.list(f"{copies.plain_prefix(RUN)}/files")]
    assert len(blobs) == 4, "three models and one configuration, in the last two copies"


async def test_a_killed_program_finds_the_last_quiet_copy(attempt: Make) -> None:
    first = await attempt(1).begin()
    first.write("last.ckpt", "epoch 1")
    await first.uploader.all()
    (first.directory / "last.ckpt").write_text("epoch 2, half writ")
    await first.uploader.all(None)
    second = await attempt(2).begin()
    assert second.tree() == {"last.ckpt": "epoch 1"}


@pytest.mark.parametrize("part", [1, 8 << 20], ids=["large files", "small files"])
async def test_a_copy_counts_only_if_nothing_changed_meanwhile(
    attempt: Make, objects: Objects, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(plain_uploads, "PART", part)
    monkeypatch.setattr(plain_uploads, "_SETTLE_S", 0.0)
    first = await attempt(1).begin()
    first.write("a", "good")
    await first.uploader.all()
    first.write("a", "newer")
    put, writes = objects.put, iter(range(100))

    async def writing(key: str, data: object) -> int:
        if "/plain/" in key:
            (first.directory / "b").write_text("x" * next(writes))
        return await put(key, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(objects, "put", writing)
        await first.uploader.all()
    assert first.uploader.kept == 1
    assert (await attempt(2).begin()).tree() == {"a": "good"}
    await first.uploader.all()
    assert first.uploader.kept == 2
    assert (await attempt(3).begin()).tree() == {"a": "newer", "b": "x" * (next(writes) - 1)}


async def test_a_program_that_is_killed_while_a_copy_is_made_leaves_none(attempt: Make) -> None:
    """Its last file may be half written, though nothing changes any more."""
    first = await attempt(1).begin()
    first.write("last.ckpt", "epoch 1")
    await first.uploader.all()
    (first.directory / "last.ckpt").write_text("epoch 2, half writ")
    await first.uploader.all(goes_on=lambda: False)
    assert (await attempt(2).begin()).tree() == {"last.ckpt": "epoch 1"}


async def test_a_list_that_is_not_there_yet_leaves_the_copy_before(
    attempt: Make, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await attempt(1).begin()
    first.write("last.ckpt", "epoch 1")
    await first.uploader.all()
    first.write("last.ckpt", "epoch 2")
    put = objects.put

    async def cut_off(key: str, data: object) -> int:
        if key.endswith(".json"):
            raise ConnectionError
        return await put(key, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(objects, "put", cut_off)
        with pytest.raises(ConnectionError):
            await first.uploader.all()
    assert (await attempt(2).begin()).tree() == {"last.ckpt": "epoch 1"}
    await first.agent().all(How.STOPPED)
    assert (await attempt(2).begin()).tree() == {"last.ckpt": "epoch 2"}


async def test_a_program_that_never_rests_is_told_and_kept_at_its_stop(
    attempt: Make, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await attempt(1).begin()
    put, writes = objects.put, iter(range(100))

    async def writing(key: str, data: object) -> int:
        first.write("log", "x" * next(writes))
        return await put(key, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(objects, "put", writing)
        for number in range(10):
            first.write("log", f"{number}")
            assert first.told == []
            await first.uploader.all()
    assert "change all the time" in first.told[0]
    assert first.uploader.kept == 0
    await first.uploader.all(How.STOPPED)
    assert list((await attempt(2).begin()).tree()) == ["log"]


async def test_generations_keep_their_meaning_beside_plain_files(
    attempt: Make, objects: Objects
) -> None:
    first = await attempt(1).begin()
    first.write("00000001/weights", "of the SDK")
    first.write(f".tmp-17-{'0' * 32}/weights", "half written by the SDK")
    first.write("tensorboard/events", "plain")
    await first.uploader.all()
    assert (first.uploader.generation, first.uploader.kept) == (1, 1)
    first.write("tensorboard/events", "more")
    await first.uploader.all()
    assert first.uploader.kept == 1, "no newer checkpoint of the program"
    second = await attempt(2).begin()
    assert second.tree() == {
        "00000001": None,
        "00000001/weights": "of the SDK",
        "tensorboard": None,
        "tensorboard/events": "more",
    }
    second.write("00000002/weights", "newer")
    await second.uploader.all()
    assert second.uploader.kept == 2


async def test_steps_are_those_of_the_time_of_the_last_change(attempt: Make) -> None:
    first = await attempt(1).begin()
    first.steps = 100
    first.write("last.ckpt", "at 100")
    await first.uploader.all()
    first.steps = 170
    await first.uploader.all(How.STOPPED)
    assert (await attempt(2).begin()).steps == 100


async def test_an_attempt_that_writes_nothing_stores_nothing(
    attempt: Make, objects: Objects
) -> None:
    first = await attempt(1).begin()
    await first.uploader.all(How.STOPPED)
    assert [key async for key in objects.list("jobs")] == []
    first.write("last.ckpt", "1")
    await first.uploader.all(How.STOPPED)
    second = await attempt(2).begin()
    await second.uploader.all(How.STOPPED)
    assert second.uploader.kept == 1


async def test_what_cannot_be_kept_is_told_and_the_rest_is_kept(
    attempt: Make, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_text(SECRET)
    first = await attempt(1).begin()
    first.write("good", "good")
    (first.directory / "out").symlink_to(tmp_path / "host")
    (first.directory / "up").symlink_to("../log")
    (first.directory / "beside").symlink_to("/eva/checkpoints-of-others/x")
    (first.directory / os.fsdecode(b"\xff")).write_text("not UTF-8")
    os.mkfifo(first.directory / "fifo")
    with (first.directory / "giant").open("wb") as file:
        file.truncate(1 << 42)
    here = Path.cwd()
    os.chdir(first.directory)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
    finally:
        os.chdir(here)
    await first.uploader.all(How.STOPPED)
    second = await attempt(2).begin()
    assert second.tree() == {"good": "good"}
    for name in ("out", "up", "beside", "udcff", "fifo", "giant", "socket"):
        assert any(name in line and "is not stored" in line for line in first.told), name
    told = list(first.told)
    await first.uploader.all(How.STOPPED)
    assert first.told == told, "once"


async def test_a_directory_that_is_a_link_is_told_and_not_followed(
    attempt: Make, objects: Objects, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_text(SECRET)
    first = await attempt(1).begin()
    first.directory.rmdir()
    first.directory.symlink_to(tmp_path / "host")
    await first.uploader.all(How.STOPPED)
    assert [key async for key in objects.list("jobs")] == []
    assert "no directory any more" in first.told[0]


async def test_a_torn_restore_is_begun_again(
    attempt: Make, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await attempt(1).begin()
    for name in "abc":
        first.write(f"{name}/file", name)
    await first.uploader.all(How.STOPPED)
    second = attempt(2)
    fetch, calls = objects.fetch, iter(range(10))

    async def cut_off(*arguments: object, **keywords: object) -> None:
        if next(calls) == 1:
            raise ConnectionError
        await fetch(*arguments, **keywords)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(objects, "fetch", cut_off)
        with pytest.raises(ConnectionError):
            await second.begin()
    assert {path.name for path in second.directory.iterdir()} <= {".tmp-restore-plain"}
    second.write("a/left by an earlier agent", "x")
    await second.begin()
    assert second.tree() == first.tree()


async def test_a_program_may_have_the_agents_own_names(attempt: Make) -> None:
    first = await attempt(1).begin()
    for name in (".tmp-restore-plain", ".tmp-restore-plain-", "00000001.json"):
        first.write(name, name)
    await first.uploader.all(How.STOPPED)
    for _ in range(2):
        second = await attempt(2).begin()
        assert second.tree() == first.tree()


async def test_directories_that_cannot_be_written_to_are_restored_as_often_as_need_be(
    attempt: Make,
) -> None:
    """A directory that its owner may not write to cannot be moved to another one, either."""
    first = await attempt(1).begin()
    first.write("model/layers/weights", "w")
    for path in ("model/layers", "model"):
        (first.directory / path).chmod(0o555)
    await first.uploader.all(How.STOPPED)
    for _ in range(2):
        second = await attempt(2).begin()
        assert second.tree() == first.tree()
        assert stat.S_IMODE((second.directory / "model").stat().st_mode) == 0o555


async def test_a_list_of_another_shape_is_refused_with_a_message(
    attempt: Make, objects: Objects
) -> None:
    for values in ('{"files": [], "links": []}', '{"files": [], "times": {"a": null}}'):
        await objects.put(copies.list_key(RUN, copies.Copy(1, 1, 1, How.QUIET)), values.encode())
        with pytest.raises(BadOrder, match="not a list of plain files"):
            await attempt(2).begin()


async def stop(*attempts: Attempt) -> None:
    for one in attempts:
        await one.uploader.all(How.STOPPED)


async def test_members_that_stop_together_go_on_each_from_its_own(attempt: Make) -> None:
    members = [await attempt(1, rank, 3).begin() for rank in range(3)]
    for rank in (0, 1):
        members[rank].write(f"shard-{rank}", f"of {rank}")
    await members[1].uploader.all()
    assert members[1].uploader.kept == 0, "only at a joint stop"
    await stop(*members)
    again = [(await attempt(2, rank, 3).begin()).tree() for rank in range(3)]
    # A member that writes nothing has what the first one wrote.
    assert again == [{"shard-0": "of 0"}, {"shard-1": "of 1"}, {"shard-0": "of 0"}]


async def test_members_of_an_attempt_that_was_killed_go_on_from_rank_0(attempt: Make) -> None:
    members = [await attempt(1, rank, 2).begin() for rank in range(2)]
    for one in members:
        one.write("shard", f"1 of {one.key.run}")
    await stop(*members)
    members = [await attempt(2, rank, 2).begin() for rank in range(2)]
    for one in members:
        one.write("shard", f"2 of {one.key.run}")
        await one.uploader.all()
    await stop(members[1])  # The host of the other one is lost.
    again = [(await attempt(3, rank, 2).begin()).tree() for rank in range(2)]
    assert again == [{"shard": "2 of job-1/0"}] * 2


async def test_a_member_that_only_reads_has_what_rank_0_wrote_last(attempt: Make) -> None:
    for number in (1, 2, 3):
        members = [await attempt(number, rank, 2).begin() for rank in range(2)]
        if number > 1:
            assert [one.tree() for one in members] == [{"last.ckpt": f"{number - 1}"}] * 2
        members[0].write("last.ckpt", f"{number}")
        await stop(*members)


async def test_a_stop_before_anything_was_written_changes_nothing(attempt: Make) -> None:
    members = [await attempt(1, rank, 2).begin() for rank in range(2)]
    for one in members:
        one.write("shard", f"of {one.key.run}")
    await stop(*members)
    for number in (2, 3, 4):
        members = [await attempt(number, rank, 2).begin() for rank in range(2)]
        assert [one.tree()["shard"] for one in members] == ["of job-1/0", "of job-1/1"]
        await stop(*members)
        assert [one.uploader.kept for one in members] == [1, 1]


async def test_a_gang_that_writes_nothing_has_no_checkpoint(attempt: Make) -> None:
    members = [await attempt(1, rank, 2).begin() for rank in range(2)]
    await stop(*members)
    assert [one.uploader.kept for one in members] == [0, 0]


async def test_a_gang_of_another_size_goes_on_from_rank_0(attempt: Make) -> None:
    members = [await attempt(1, rank, 2).begin() for rank in range(2)]
    members[1].write("shard", "of rank 1")
    await stop(*members)
    alone = await attempt(2, 0, 1).begin()
    assert alone.tree() == {"shard": "of rank 1"}, "the only one that wrote"
    alone.write("shard", "of the gang of one")
    await stop(alone)
    members = [await attempt(3, rank, 3).begin() for rank in range(3)]
    assert [one.tree() for one in members] == [{"shard": "of the gang of one"}] * 3


async def test_a_member_that_starts_late_begins_from_what_the_others_did(attempt: Make) -> None:
    members = [await attempt(1, rank, 2).begin() for rank in range(2)]
    members[0].write("last.ckpt", "1")
    await stop(*members)
    first = await attempt(2, 0, 2).begin()
    for number in range(5):
        first.write("last.ckpt", f"2.{number}")
        await first.uploader.all()
    assert (await attempt(2, 1, 2).begin()).tree() == {"last.ckpt": "1"}


@pytest.mark.parametrize(
    ("exit_code", "stopped", "how"),
    [
        (0, True, How.STOPPED),
        (1, True, How.STOPPED),
        (143, True, How.STOPPED),
        (-15, True, How.STOPPED),
        (-9, True, None),
        (137, True, None),
        (-11, True, None),
        (0, False, How.ENDED),
        (75, False, How.ENDED),
        (-15, False, None),
        (143, False, None),
        (-9, False, None),
        (137, False, None),
    ],
)
def test_files_of_a_program_that_was_killed_are_not_taken_as_they_stand(
    exit_code: int, stopped: bool, how: How | None
) -> None:
    assert ended_how(exit_code, stopped=stopped) is how


async def test_a_job_that_is_done_again_begins_from_the_files_of_the_ended_one(
    attempt: Make, objects: Objects, tmp_path: Path
) -> None:
    first = await attempt(1).begin()
    first.write("last.ckpt", "epoch 3")
    await first.uploader.all(How.STOPPED)
    origin = await restore_earlier(objects, RUN, 1, tmp_path / "again")
    assert (tmp_path / "again" / "last.ckpt").read_text() == "epoch 3"
    assert (origin.number, origin.name) == (0, ""), "its own copies are counted anew"
    assert await restore_earlier(objects, "never-1/0", 1, tmp_path / "none") == NOTHING


async def test_a_task_of_an_array_begins_from_its_own_files(
    attempt: Make, objects: Objects, tmp_path: Path
) -> None:
    for index in (0, 3):
        task = await attempt(1, index).begin()
        task.write("state", f"task {index}")
        await task.uploader.all(How.ENDED)
    await restore_earlier(objects, "job-1/3", 1, tmp_path / "again")
    assert (tmp_path / "again" / "state").read_text() == "task 3"


async def test_a_gang_that_is_done_again_begins_from_what_each_member_had(
    attempt: Make, objects: Objects, tmp_path: Path
) -> None:
    for rank in (0, 1):
        member = await attempt(1, rank, 2).begin()
        member.write("state", f"rank {rank}")
        await member.uploader.all(How.STOPPED)
    for rank in (0, 1):
        target = tmp_path / f"again-{rank}"
        await restore_earlier(objects, f"job-1/{rank}", 2, target)
        assert (target / "state").read_text() == f"rank {rank}"
