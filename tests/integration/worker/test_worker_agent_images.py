"""Images as an agent's orders name them: brought ahead, told of in the log, given up by a stop."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.runtime.docker.runtime import connect
from tests.fakes.docker import dockerd, registry
from tests.fakes.docker.registry import Registry
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

pytestmark = pytest.mark.docker

RUN = "job-1/0"


def put_blob(store: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = store / "blobs" / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return digest


def put_context(store: Path, **files: str) -> str:
    entries = [
        {
            "path": path,
            "mode": 0o644,
            "sha256": put_blob(store, text.encode()),
            "size": len(text),
        }
        for path, text in sorted(files.items())
    ]
    return put_blob(store, json.dumps({"files": entries}).encode())


@pytest.fixture
async def master(docker_engine: str, tmp_path: Path) -> AsyncIterator[FakeMaster]:
    """A master whose one worker runs containers."""
    (tmp_path / "objects").mkdir()
    master = FakeMaster(tmp_path / "objects")
    await master.start()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eva_worker", "--instance-id", "i-1", "--emulated"),
        *("--instance-type", "c7i.large", "--cpus", "2", "--memory-mib", "1024"),
        *(*master.options(), "--state-dir", str(tmp_path / "state")),
        *("--runtime", "docker", "--docker-host", docker_engine),
        env=master.environment(),
    )
    try:
        await master.until(lambda: master.sessions)
        yield master
    finally:
        worker.terminate()
        assert await worker.wait() == 0
        await master.vanish()
        # Those of attempts that no master told the worker to forget.
        with contextlib.closing(connect(docker_engine)) as client:
            for container in client.containers.list(all=True):
                container.remove(force=True)


@pytest.fixture
def images() -> Iterator[Registry]:
    with registry.running(dockerd.busybox_root(secrets.token_hex(8))) as images:
        yield images


def order(run: str = "true", **more: object) -> pb.TaskOrder:
    demand = pb.Resources(milli_cpus=1000, memory_mib=64)
    options: dict[str, object] = {"attempt": 1, "grace_ms": 20_000, "demand": demand, **more}
    return pb.TaskOrder(run_id=RUN, job_id="job-1", run=run, **options)  # type: ignore[arg-type]


def stored_log(master: FakeMaster, attempt: int = 1) -> str:
    pieces = sorted((master.store / "jobs" / RUN / "logs" / f"{attempt:04d}").iterdir())
    return "".join(piece.read_text() for piece in pieces)


async def test_image_is_built_ahead_of_the_task(master: FakeMaster) -> None:
    dockerfile = (
        f"FROM {dockerd.IMAGE}\nCOPY greeting /greeting\nRUN echo making; sleep 1; touch /made\n"
    )
    build = pb.Build(
        context=put_context(master.store, Dockerfile=dockerfile, greeting="hello"),
        dockerfile="Dockerfile",
    )
    master.send(fetch=pb.FetchFiles(order=order(build=build)))
    await master.until(lambda: master.fetched)
    assert master.fetched[0].error == ""
    # For a second at least it was built, and then it was there.
    assert master.fetched[0].image_ms >= 1_000
    master.send(start=pb.StartTask(order=order("cat /greeting; ls /made", build=build)))
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.exit_code == 0
    assert report.HasField("image_ms")
    assert report.image_ms < master.fetched[0].image_ms
    # Nothing was left to be told of when the task began.
    assert stored_log(master) == "hello/made\n"


async def test_failing_build_is_told_in_message_and_log(master: FakeMaster) -> None:
    dockerfile = f"FROM {dockerd.IMAGE}\nRUN echo first && echo no such package && exit 3"
    context = put_context(master.store, Dockerfile=dockerfile)
    build = pb.Build(context=context, dockerfile="Dockerfile")
    master.send(start=pb.StartTask(order=order(build=build)))
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.never_started
    assert "image cannot be built from Dockerfile" in report.message
    assert "no such package" in report.message
    assert "\nfirst\nno such package\n" in stored_log(master)


async def test_damaged_context_builds_nothing(master: FakeMaster) -> None:
    context = put_context(master.store, Dockerfile=f"FROM {dockerd.IMAGE}")
    file = json.loads(_blob(master, context).read_bytes())["files"][0]
    _blob(master, file["sha256"]).write_text("FROM something-else")
    build = pb.Build(context=context, dockerfile="Dockerfile")
    master.send(start=pb.StartTask(order=order(build=build)))
    report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.never_started
    assert "digest" in report.message


async def test_stop_ends_a_start_that_waits_for_its_image(
    master: FakeMaster, images: Registry
) -> None:
    images.open.clear()
    master.send(start=pb.StartTask(order=order(image=images.image)))
    await master.until(images.stalled.is_set)
    master.send(stop=pb.StopTask(run_id=RUN, attempt=1, grace_ms=20_000))
    # The registry still says nothing.
    async with asyncio.timeout(DEADLINE_S):
        report = await master.phase(RUN, 1, pb.PHASE_EXITED)
    assert report.never_started
    assert report.stopped
    assert stored_log(master) == f"fetching image {images.image}\n"


def _blob(master: FakeMaster, digest: str) -> Path:
    return master.store / "blobs" / digest[:2] / digest
