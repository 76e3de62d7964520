"""Outputs of earlier jobs, as an agent brings them to a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_worker.errors import BadOrder, Missing
from eva_worker.files.job_outputs import OutputsFetcher
from eva_worker.files.objects import Objects
from eva_worker.files.storage import SharedStorage
from eva_worker.orders import JobOutputs
from tests.fakes.aws.service import bucket_url

STORED = {
    "prep-1/0/outputs/words": b"w",
    "prep-1/0/outputs/deep/a#b:c": b"special",
    "prep-1/0/outputs/deeper": b"no part of deep",
    "prep-1/0/logs/1/0000": b"log",
    "prep-10/0/outputs/words": b"another job",
    "prep-1/0+1/outputs/words": b"an extra run",
    "sweep-2/0/outputs/r": b"0",
    "sweep-2/2/outputs/r": b"2",
    "sweep-2/10/outputs/r": b"beyond",
}


@pytest.fixture(params=["directory", "bucket"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return Objects((tmp_path / "objects").as_uri())
    return Objects(bucket_url(request.getfixturevalue("monkeypatch")))


def files_below(path: Path) -> dict[str, bytes]:
    found = (it for it in path.rglob("*") if it.is_file())
    return {it.relative_to(path).as_posix(): it.read_bytes() for it in found}


async def brought(objects: Objects, target: Path, wanted: JobOutputs) -> dict[str, bytes]:
    for key, data in STORED.items():
        await objects.put(f"jobs/{key}", data)
    await OutputsFetcher(objects).fetch({"data": wanted}, target)
    return files_below(target)


@pytest.mark.parametrize(
    ("wanted", "files"),
    [
        (
            JobOutputs("prep-1"),
            {
                "data/words": b"w",
                "data/deep/a#b:c": b"special",
                "data/deeper": b"no part of deep",
            },
        ),
        (JobOutputs("prep-1", path="deep"), {"data/a#b:c": b"special"}),
        (JobOutputs("prep-1", path="deep/a#b:c"), {"data": b"special"}),
        (JobOutputs("sweep-2", tasks=3), {"data/0/r": b"0", "data/2/r": b"2"}),
        (JobOutputs("sweep-2", tasks=3, path="r"), {"data/0": b"0", "data/2": b"2"}),
        (JobOutputs("sweep-2", index=2), {"data/r": b"2"}),
    ],
)
async def test_outputs_are_found_below_the_input(
    objects: Objects, tmp_path: Path, wanted: JobOutputs, files: dict[str, bytes]
) -> None:
    target = tmp_path / "inputs"
    assert await brought(objects, target, wanted) == files
    modes = {it.stat().st_mode & 0o777 for it in target.rglob("*") if it.is_file()}
    assert modes == {0o444}


@pytest.mark.parametrize(
    "wanted",
    [
        JobOutputs("prep-1", index=1),
        JobOutputs("prep-1", path="word"),
        JobOutputs("sweep-2", tasks=2, path="x"),
        JobOutputs("none-3", tasks=2),
    ],
)
async def test_a_task_that_would_read_nothing_is_told_which_outputs(
    objects: Objects, tmp_path: Path, wanted: JobOutputs
) -> None:
    with pytest.raises(Missing, match=r"input 'data': there is nothing in job:"):
        await brought(objects, tmp_path / "inputs", wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("..", JobOutputs("prep-1")),
        ("a/b", JobOutputs("prep-1")),
        ("data", JobOutputs("../blobs")),
        ("data", JobOutputs("..")),
        ("data", JobOutputs("prep-1/0/outputs/..")),
        ("data", JobOutputs("prep-1", path="../../1/outputs")),
        ("data", JobOutputs("prep-1", path="a//b")),
        ("data", JobOutputs("prep-1", path="a\0b")),
        ("data", JobOutputs("prep-1", tasks=2_000_000)),
    ],
)
async def test_an_order_that_would_leave_the_outputs_is_refused(
    tmp_path: Path, name: str, wanted: JobOutputs
) -> None:
    fetcher = OutputsFetcher(Objects((tmp_path / "objects").as_uri()), tmp_path)
    with pytest.raises(BadOrder):
        await fetcher.fetch({name: wanted}, tmp_path / "inputs")


async def test_what_tasks_wrote_to_a_shared_directory_is_copied_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    mount, objects = tmp_path / "mount", Objects((tmp_path / "objects").as_uri())
    outputs = mount / "jobs" / "sweep-2" / "0" / "outputs"
    (outputs / "deep").mkdir(parents=True)
    (outputs / "deep" / "r").write_text("mounted")
    (outputs / "out").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (outputs / "deep" / "s").symlink_to(tmp_path / "secret")
    # Another worker had no such directory, or the task might have had a second run.
    await objects.put("jobs/sweep-2/1/outputs/deep/r", b"stored")
    fetcher = OutputsFetcher(objects, mount)
    target = tmp_path / "inputs"
    await fetcher.fetch({"all": JobOutputs("sweep-2", tasks=2)}, target)
    await fetcher.fetch({"one": JobOutputs("sweep-2", path="deep/r")}, target)
    await fetcher.fetch({"dir": JobOutputs("sweep-2", path="deep")}, target)
    assert files_below(target) == {
        "all/0/deep/r": b"mounted",
        "all/1/deep/r": b"stored",
        "one": b"mounted",
        "dir/r": b"mounted",
    }
    (outputs / "deep" / "r").write_text("written later")
    assert (target / "one").read_text() == "mounted"


def test_an_object_store_that_is_the_shared_directory_is_read_once(tmp_path: Path) -> None:
    shared = SharedStorage(tmp_path)
    assert shared.beside(tmp_path.as_uri()) is None
    assert shared.beside((tmp_path / "objects").as_uri()) == tmp_path
    assert shared.beside("s3://bucket/prefix") == tmp_path


async def test_outputs_that_a_task_made_a_link_of_are_told_and_not_followed(
    tmp_path: Path,
) -> None:
    place = tmp_path / "mount" / "jobs" / "prep-1" / "0"
    place.mkdir(parents=True)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "secret").write_text("secret")
    (place / "outputs").symlink_to(tmp_path / "others")
    fetcher = OutputsFetcher(Objects((tmp_path / "objects").as_uri()), tmp_path / "mount")
    target = tmp_path / "inputs"
    with pytest.raises(Missing, match="there is nothing in job:prep-1/0/outputs"):
        await fetcher.fetch({"data": JobOutputs("prep-1")}, target)
    assert list(target.iterdir()) == []
