"""Outputs: the store has what the program has, or the user is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eva_worker.files.objects import Objects
from eva_worker.files.plain.copies import How
from eva_worker.files.upload import Uploader
from eva_worker.orders import TaskKey

SECRET = "the host's own"
PREFIX = "jobs/job-1/0/outputs/"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri())


async def itself(generation: int) -> int:
    return generation


class Attempt:
    """The outputs of an attempt, and what stores them."""

    def __init__(self, objects: Objects, root: Path, number: int) -> None:
        self.objects = objects
        self.number = number
        self.home = root / f"{number}"
        self.outputs = self.home / "storage" / "outputs"
        self.work = self.home / "work"
        for directory in (self.outputs, self.work, self.home / "checkpoints"):
            directory.mkdir(parents=True)
        self.told: list[str] = []
        self.uploader = self.agent()

    def agent(self) -> Uploader:
        """Uploader of its files, of the first agent or of the next one."""
        self.uploader = Uploader(
            self.objects,
            TaskKey("job-1/0", self.number),
            home=self.home,
            outputs="storage/outputs",
            memory=self.home / "uploads.json",
            steps_kept=itself,
            count=lambda _: None,
            tell=self.told.append,
        )
        return self.uploader

    def write(self, path: str, text: str) -> None:
        place = self.outputs / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    async def stored(self) -> dict[str, str]:
        keys = [key async for key in self.objects.list(PREFIX.rstrip("/"))]
        return {
            key.removeprefix(PREFIX): (await self.objects.get(key)).decode() for key in sorted(keys)
        }


@pytest.fixture
def attempt(objects: Objects, tmp_path: Path) -> Callable[[int], Attempt]:
    return lambda number: Attempt(objects, tmp_path / "attempts", number)


Make = Callable[[int], Attempt]
ENDS = [How.ENDED, How.STOPPED, How.QUIET, None]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("again", [False, True], ids=["one agent", "another agent"])
async def test_a_file_that_becomes_a_directory_and_back(
    attempt: Make, how: How | None, again: bool
) -> None:
    one = attempt(1)
    one.write("model", "old")
    one.write("logs/today/a", "a")
    await one.uploader.all()
    (one.outputs / "model").unlink()
    one.write("model/weights.bin", "new")
    (one.outputs / "logs" / "today" / "a").unlink()
    (one.outputs / "logs" / "today").rmdir()
    one.write("logs/today", "a file now")
    await (one.agent() if again else one.uploader).all(how)
    assert await one.stored() == {"model/weights.bin": "new", "logs/today": "a file now"}
    assert one.told == []


async def test_an_earlier_attempts_file_gives_way_and_the_rest_of_it_stays(attempt: Make) -> None:
    first = attempt(1)
    first.write("model", "old")
    first.write("metrics.json", "of the first attempt")
    await first.uploader.all(How.STOPPED)
    second = attempt(2)
    await second.uploader.all()
    second.write("model/weights.bin", "new")
    await second.uploader.all(How.ENDED)
    assert await second.stored() == {
        "model/weights.bin": "new",
        "metrics.json": "of the first attempt",
    }


async def test_what_the_program_deletes_is_deleted(attempt: Make) -> None:
    one = attempt(1)
    for step in (5, 10, 15):
        one.write(f"checkpoint-{step}/model.bin", f"w{step}")
    await one.uploader.all()
    (one.outputs / "checkpoint-5" / "model.bin").unlink()
    await one.uploader.all()
    assert "checkpoint-5/model.bin" in await one.stored(), "it may be written anew"
    await one.uploader.all()
    assert sorted(await one.stored()) == ["checkpoint-10/model.bin", "checkpoint-15/model.bin"]
    (one.outputs / "checkpoint-10" / "model.bin").unlink()
    await one.uploader.all(How.ENDED)
    assert sorted(await one.stored()) == ["checkpoint-15/model.bin"]


async def test_a_file_that_is_away_while_it_is_written_anew_stays(attempt: Make) -> None:
    one = attempt(1)
    one.write("model.bin", "old")
    await one.uploader.all()
    (one.outputs / "model.bin").unlink()
    await one.uploader.all()
    await one.uploader.all(None)  # killed before it was written
    other = attempt(2)
    other.write("model.bin", "old")
    await other.uploader.all()
    (other.outputs / "model.bin").unlink()
    await other.uploader.all()
    other.write("model.bin", "new")
    await other.uploader.all()
    assert await other.stored() == {"model.bin": "new"}


async def test_links_that_stay_inside_are_stored_as_what_they_lead_to(attempt: Make) -> None:
    one = attempt(1)
    one.write("epoch3.bin", "3")
    one.write("run-7/files/config.yaml", "lr: 1")
    one.write("run-7/log", "log")
    (one.work / "model.onnx").write_text("onnx")
    (one.home / "checkpoints" / "last.ckpt").write_text("ckpt")
    (one.outputs / "last.bin").symlink_to("epoch3.bin")
    (one.outputs / "again.bin").symlink_to("last.bin")
    (one.outputs / "latest-run").symlink_to("run-7")
    (one.outputs / "run-7" / "best").symlink_to("../epoch3.bin")
    (one.outputs / "model.onnx").symlink_to(one.work / "model.onnx")
    (one.outputs / "in-a-container").symlink_to("/eva/work/model.onnx")
    (one.outputs / "last.ckpt").symlink_to("../../checkpoints/last.ckpt")
    await one.uploader.all()
    assert one.told == []
    assert await one.stored() == {
        "again.bin": "3",
        "epoch3.bin": "3",
        "in-a-container": "onnx",
        "last.bin": "3",
        "last.ckpt": "ckpt",
        "latest-run/best": "3",
        "latest-run/files/config.yaml": "lr: 1",
        "latest-run/log": "log",
        "model.onnx": "onnx",
        "run-7/best": "3",
        "run-7/files/config.yaml": "lr: 1",
        "run-7/log": "log",
    }
    one.write("epoch3.bin", "3 again")
    (one.outputs / "latest-run").unlink()
    await one.uploader.all(How.ENDED)
    stored = await one.stored()
    assert stored["last.bin"] == "3 again"
    assert not any(name.startswith("latest-run") for name in stored)


async def test_links_that_lead_elsewhere_are_told_and_not_followed(
    attempt: Make, tmp_path: Path
) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "secret").write_text(SECRET)
    one = attempt(1)
    (one.home / "record.json").write_text(SECRET)
    one.write("good", "good")
    links = {
        "absolute": host / "secret",
        "directory": host,
        "record": "../../record.json",
        "record2": one.home / "record.json",
        "container": "/eva/record.json",
        "dangling": "nothing",
        "itself": "itself",
        "circle": ".",
        "up": "../outputs",
        "null": "/dev/null",
        "proc": f"/proc/{os.getpid()}/environ",
    }
    for name, target in links.items():
        (one.outputs / name).symlink_to(target)
    (one.work / "way").symlink_to(host)
    (one.outputs / "two-steps").symlink_to("../../work/way/secret")
    os.mkfifo(one.outputs / "fifo")
    (one.outputs / "to-fifo").symlink_to("fifo")
    await one.uploader.all(How.ENDED)
    assert await one.stored() == {"good": "good"}
    for name in (*links, "two-steps", "fifo", "to-fifo"):
        assert any(f"{name!r} is not stored" in line for line in one.told), name


@pytest.mark.parametrize("to", ["a directory of the task", "the host's"])
async def test_a_directory_replaced_by_a_link(attempt: Make, tmp_path: Path, to: str) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "weights").write_text(SECRET)
    one = attempt(1)
    one.write("model/weights", "old")
    await one.uploader.all()
    (one.outputs / "model").rename(one.work / "model")
    (one.work / "model" / "weights").write_text("new")
    ours = to == "a directory of the task"
    (one.outputs / "model").symlink_to(one.work / "model" if ours else tmp_path / "host")
    await one.uploader.all(How.ENDED)
    assert await one.stored() == ({"model/weights": "new"} if ours else {})
    assert bool(one.told) != ours


async def test_outputs_that_are_a_link_themselves_are_told_and_what_is_stored_stays(
    attempt: Make, tmp_path: Path
) -> None:
    one = attempt(1)
    one.write("a", "a")
    await one.uploader.all()
    one.outputs.rename(one.work / "moved")
    one.outputs.symlink_to(one.work / "moved")
    await one.uploader.all(How.ENDED)
    assert await one.stored() == {"a": "a"}
    assert "no directory any more" in one.told[0]


async def test_odd_names_are_stored_or_told(attempt: Make) -> None:
    one = attempt(1)
    names = ["a b", "ü", "x#1%2|", "-rf", "\x1b[0m", "new\nline", ".hidden", "manifest.json"]
    for name in names:
        one.write(name, name)
    one.write("x" * 250, "too long")
    (one.outputs / os.fsdecode(b"\xff")).write_text("not UTF-8")
    await one.uploader.all()
    assert await one.stored() == {name: name for name in names}
    assert len([line for line in one.told if "is not stored" in line]) == 2
    assert all(line.isprintable() for line in one.told)
