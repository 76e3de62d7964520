"""$EVA_STORAGE: inputs from S3, and a directory that all instances share in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.errors import Missing
from eva_worker.files.download import Fetcher
from eva_worker.files.inputs import Roots
from eva_worker.files.objects import Objects
from tests.fakes.aws.service import bucket_url, shared
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.master import FakeMaster
from tests.integration.worker.test_worker_agent import RUN, Worker


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of somebody's, with a data set and a file in it."""
    bucket = bucket_url(monkeypatch).removeprefix("s3://").partition("/")[0]
    for name in ("data/a.txt", "data/deep/b#1.txt", "data-other/c.txt", "one.bin"):
        shared().client("s3").put_object(Bucket=bucket, Key=name, Body=name.encode())
    return bucket


@pytest.fixture
def fetcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fetcher:
    objects = Objects(bucket_url(monkeypatch))
    return Fetcher(objects, tmp_path / "cache", Roots(["s3://"], objects.url))


async def test_inputs_come_from_s3(bucket: str, fetcher: Fetcher, tmp_path: Path) -> None:
    target = tmp_path / "inputs"
    wanted = {"set": f"s3://{bucket}/data", "file": f"s3://{bucket}/one.bin"}
    await fetcher.inputs(wanted, target)
    found = {
        path.relative_to(target).as_posix(): path.read_text()
        for path in target.rglob("*")
        if path.is_file()
    }
    assert found == {
        "set/a.txt": "data/a.txt",
        "set/deep/b#1.txt": "data/deep/b#1.txt",
        "file": "one.bin",
    }
    assert (target / "file").stat().st_mode & 0o777 == 0o444


async def test_a_whole_bucket_is_an_input(bucket: str, fetcher: Fetcher, tmp_path: Path) -> None:
    await fetcher.inputs({"all": f"s3://{bucket}/"}, tmp_path)
    assert len([path for path in (tmp_path / "all").rglob("*") if path.is_file()]) == 4


async def test_nothing_at_a_place_in_s3_is_missing(
    bucket: str, fetcher: Fetcher, tmp_path: Path
) -> None:
    with pytest.raises(Missing, match="no such input: s3://"):
        await fetcher.inputs({"none": f"s3://{bucket}/dat"}, tmp_path)


async def test_what_has_come_already_is_not_fetched_again(
    bucket: str, fetcher: Fetcher, tmp_path: Path
) -> None:
    wanted = {"set": f"s3://{bucket}/data"}
    await fetcher.inputs(wanted, tmp_path)
    before = (tmp_path / "set" / "a.txt").stat().st_mtime_ns
    await fetcher.inputs(wanted, tmp_path)
    assert (tmp_path / "set" / "a.txt").stat().st_mtime_ns == before


@pytest.mark.parametrize("mounted", [False, True])
async def test_a_task_reads_what_an_earlier_job_has_written(
    master: FakeMaster, tmp_path: Path, mounted: bool
) -> None:
    mount = tmp_path / "mount"
    place = (mount if mounted else master.store) / "jobs" / "prep-1" / "2" / "outputs" / "deep"
    place.mkdir(parents=True)
    (place / "x").write_text("handed over")
    worker = Worker(master, tmp_path)
    await worker.start(*(("--storage-mount", str(mount)) if mounted else ()))
    outputs = {"data": pb.JobOutputs(job_id="prep-1", tasks=3, path="deep")}
    # As a URL the same names nothing.
    worker.order('cat "$EVA_STORAGE/inputs/data/2/x"', outputs=outputs, inputs={"data": "job:x"})
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code == 0, report
    worker.order("true", run="job-2/0", inputs={"data": "job:prep-1/outputs"})
    report = await master.phase("job-2/0", 1, pb.PHASE_EXITED)
    assert report.never_started
    assert "only s3:// and file://" in report.message
    assert await worker.stop() == 0


async def test_a_mount_takes_the_place_of_uploads_and_copies(
    master: FakeMaster, tmp_path: Path
) -> None:
    mount = tmp_path / "mount"
    (mount / "sets" / "large").mkdir(parents=True)
    (mount / "sets" / "large" / "data").write_text("much of it")
    master.input_roots = [mount.as_uri()]
    worker = Worker(master, tmp_path)
    await worker.start("--storage-mount", str(mount))
    run = """
        cat "$EVA_STORAGE/inputs/set/data" >"$EVA_STORAGE/outputs/read"
        echo $EVA_TASK_ID >"$EVA_STORAGE/shared/word"
    """
    worker.order(run, inputs={"set": (mount / "sets" / "large").as_uri()})
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code == 0, report
    assert (mount / "jobs" / RUN / "outputs" / "read").read_text() == "much of it"
    assert (mount / "jobs" / "job-1" / "shared" / "word").read_text() == f"{RUN}\n"
    assert not (master.store / "jobs" / RUN / "outputs").exists()
    master.send(forget=pb.ForgetTask(run_id=RUN, attempt=1))
    async with asyncio.timeout(DEADLINE_S):
        while worker.path().exists():
            await asyncio.sleep(0.02)
    assert (mount / "sets" / "large" / "data").exists(), "what was linked stays"
    assert (mount / "jobs" / RUN / "outputs" / "read").exists()
    assert await worker.stop() == 0


async def test_outputs_that_the_master_may_put_elsewhere_are_uploaded_beside_a_mount(
    master: FakeMaster, tmp_path: Path
) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    worker = Worker(master, tmp_path)
    await worker.start("--storage-mount", str(mount))
    run = """
        echo found >"$EVA_STORAGE/outputs/answer"
        echo $EVA_TASK_ID >"$EVA_STORAGE/shared/word"
    """
    worker.order(run, outputs_stored=True)
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code == 0, report
    assert (master.store / "jobs" / RUN / "outputs" / "answer").read_text() == "found\n"
    assert not (mount / "jobs" / RUN).exists()
    assert (mount / "jobs" / "job-1" / "shared" / "word").read_text() == f"{RUN}\n"
    assert await worker.stop() == 0
