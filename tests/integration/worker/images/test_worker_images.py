"""Images: fetched from a registry, built from a context, once, and given up when nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eva_worker.errors import StartFailed
from eva_worker.isolation import Isolation
from eva_worker.orders import Build, TaskKey
from eva_worker.runtime import Image, TaskSpec
from eva_worker.runtime.docker.confinement import network_of_builds
from eva_worker.runtime.docker.images.making import by_name
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from eva_worker.runtime.process.runtime import ProcessRuntime
from tests.fakes.docker import dockerd, registry
from tests.fakes.docker.registry import Registry
from tests.fakes.patience import DEADLINE_S

KEY = TaskKey("job-1/0", 1)
CONTEXT = "c" * 64


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(connect(docker_engine)) as client:
        yield client
        assert not client.containers.list(all=True, ignore_removed=True)
        for image in client.images.list():
            if dockerd.IMAGE not in image.tags:
                client.images.remove(image.id, force=True)


@pytest.fixture
async def runtime(client: Any, docker_engine: str, tmp_path: Path) -> AsyncIterator[DockerRuntime]:
    runtime = DockerRuntime(
        tmp_path / "runtime", connect(docker_engine), instance="i-1", default_image=dockerd.IMAGE
    )
    yield runtime
    runtime.close()
    assert not list((tmp_path / "contexts").iterdir())


@pytest.fixture
def images() -> Iterator[Registry]:
    with registry.running(dockerd.busybox_root(secrets.token_hex(8))) as images:
        yield images


class Context:
    """A build context, and how often it was wanted."""

    def __init__(self, **files: str) -> None:
        self.files = files
        self.fetched = 0

    async def lay_out(self, digest: str, target: Path) -> None:
        assert digest == CONTEXT
        self.fetched += 1
        target.mkdir()
        for name, text in self.files.items():
            (target / name).write_text(text)

    def image(self, dockerfile: str = "Dockerfile", context: str = CONTEXT) -> Image:
        return Image("", Build(context, dockerfile), self.lay_out)


def named(reference: str) -> Image:
    return Image(reference, None, Context().lay_out)


async def output(runtime: DockerRuntime, image: str, command: str, home: Path) -> str:
    """What a task prints in an image."""
    (home / "work").mkdir()
    await runtime.start(TaskSpec(KEY, command, {}, home / "work", home / "log", image=image))
    async with asyncio.timeout(DEADLINE_S):
        assert (await runtime.wait(KEY)).code == 0
    await runtime.cleanup(KEY)
    return (home / "log").read_text()


@pytest.mark.docker
async def test_image_comes_from_its_registry(
    runtime: DockerRuntime, images: Registry, tmp_path: Path
) -> None:
    told: list[str] = []
    reference = await runtime.prepare(named(images.image), told.append)
    assert told[0] == f"fetching image {images.image}"
    assert told[-1].startswith("Status: Downloaded")
    assert await output(runtime, reference, "echo $OF_REGISTRY", tmp_path) == "1\n"
    # What is here is not asked for again.
    assert await runtime.prepare(named(images.image), told.append) == reference
    assert images.pulls == 1


@pytest.mark.parametrize("name", ["eva-build:0123", "docker.io/library/eva-build@sha256:00"])
def test_what_was_built_for_another_job_is_not_named(name: str) -> None:
    with pytest.raises(StartFailed, match="name an image of a registry"):
        by_name(name)


@pytest.mark.docker
async def test_an_image_has_the_engine_fetch_nothing_in_builds_on_it(
    runtime: DockerRuntime, client: Any
) -> None:
    """Images of registries have them too: Dockerfiles of jobs are read before."""
    text = f"FROM {dockerd.IMAGE}\nONBUILD ADD http://127.0.0.1:1/ /x\n"
    client.images.build(fileobj=io.BytesIO(text.encode()), tag="acme/base:1", rm=True)
    context = Context(Dockerfile="FROM acme/base:1\n")
    with pytest.raises(StartFailed, match="ONBUILD of image acme/base:1: ADD"):
        await runtime.prepare(context.image(), print)


@pytest.mark.docker
async def test_an_image_that_is_built_on_is_fetched_once_for_its_platform(
    runtime: DockerRuntime, client: Any, images: Registry
) -> None:
    await runtime.prepare(named(images.image), print)
    found = client.api.inspect_image(images.image)
    ours = f"{found['Os']}/{found['Architecture']}"
    context = Context(Dockerfile=f"FROM --platform={ours} {images.image}\nENV A=1\n")
    await runtime.prepare(context.image(), print)
    assert images.pulls == 1


@pytest.mark.docker
async def test_tasks_that_want_one_image_at_once_fetch_it_once(
    runtime: DockerRuntime, images: Registry
) -> None:
    images.open.clear()
    first = asyncio.create_task(runtime.prepare(named(images.image), print))
    await until(images.stalled.is_set)
    second = asyncio.create_task(runtime.prepare(named(images.image), print))
    await asyncio.sleep(0)
    # The second goes on when the first is not interested any more.
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    images.open.set()
    assert await second == images.image
    assert images.pulls == 1


@pytest.mark.docker
async def test_fetch_that_nobody_waits_for_is_given_up(
    runtime: DockerRuntime, images: Registry
) -> None:
    images.open.clear()
    waiting = asyncio.create_task(runtime.prepare(named(images.image), print))
    await until(images.stalled.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # The agent listens no more; the registry still stalls.
    await until(lambda: not [one for one in threading.enumerate() if one.name == "image"])
    images.open.set()
    assert await runtime.prepare(named(images.image), print) == images.image


@pytest.mark.docker
@pytest.mark.parametrize("length", [1, 12, 64])
@pytest.mark.parametrize("prefix", ["", "sha256:"])
async def test_an_image_of_the_instance_cannot_be_had_by_its_id(
    runtime: DockerRuntime, client: Any, prefix: str, length: int
) -> None:
    """It may be another user's, with what they have copied into it."""
    wanted = prefix + client.images.get(dockerd.IMAGE).id.removeprefix("sha256:")[:length]
    with pytest.raises(StartFailed, match=f"image docker.io/library/{wanted}"):
        await runtime.prepare(named(wanted), print)


@pytest.mark.docker
@pytest.mark.parametrize("place", ["registry", "nowhere"])
async def test_image_that_cannot_be_had_is_named(
    runtime: DockerRuntime, images: Registry, place: str
) -> None:
    host = images.image.partition("/")[0] if place == "registry" else "127.0.0.1:1"
    wanted = f"{host}/no-such:2"
    with pytest.raises(StartFailed, match=f"image {wanted} cannot be fetched: .*(404|refused)"):
        await runtime.prepare(named(wanted), print)


@pytest.mark.docker
async def test_image_is_built_from_its_context(
    runtime: DockerRuntime, client: Any, tmp_path: Path
) -> None:
    dockerfile = f"FROM {dockerd.IMAGE}\nCOPY greeting /greeting\nRUN tr a-z A-Z </greeting >/loud"
    context = Context(Dockerfile=dockerfile, greeting="hello", other="FROM scratch\nCOPY other /")
    told: list[str] = []
    reference = await runtime.prepare(context.image(), told.append)
    assert f"Step 1/3 : FROM {dockerd.IMAGE}" in told
    assert await output(runtime, reference, "cat /greeting /loud", tmp_path) == "helloHELLO"
    # The same build has been made; another Dockerfile of the context is another image.
    assert await runtime.prepare(context.image(), told.append) == reference
    assert context.fetched == 1
    other = await runtime.prepare(context.image("other"), told.append)
    assert other != reference
    assert len(client.images.list("eva-build")) == 2


@pytest.mark.docker
async def test_patterns_of_a_build_context_do_not_hold_up_the_agent(
    runtime: DockerRuntime, tmp_path: Path
) -> None:
    """The library for Docker matches each name with them, and no other thread runs meanwhile."""
    patient = "a" * 60
    files = {
        ".dockerignore": "*a" * 30 + "*b",
        patient: "here",
        "Dockerfile": f"FROM {dockerd.IMAGE}\nCOPY {patient} /file",
    }
    reference = await runtime.prepare(Context(**files).image(), print)
    assert await output(runtime, reference, "cat /file", tmp_path) == "here"


@pytest.mark.docker
async def test_a_build_has_the_memory_of_its_task(runtime: DockerRuntime, client: Any) -> None:
    told: list[str] = []
    context = Context(Dockerfile=f"FROM {dockerd.IMAGE}\nRUN echo begun && sleep 3600")
    wanted = replace(context.image(), memory_mib=64)
    waiting = asyncio.create_task(runtime.prepare(wanted, told.append))
    # An engine may hand on what a container says before it says that the container runs.
    await until(lambda: "begun" in told and client.containers.list(ignore_removed=True))
    (step,) = client.containers.list(ignore_removed=True)
    limits = step.attrs["HostConfig"]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not client.containers.list(all=True, ignore_removed=True))
    assert limits["Memory"] == limits["MemorySwap"] == 64 << 20


@pytest.mark.parametrize(
    ("network", "user", "builds"),
    [
        ("own", "unprivileged", "bridge"),
        ("host", "unprivileged", "bridge"),
        ("own", "worker", "bridge"),
        ("host", "worker", "host"),
    ],
)
def test_builds_run_as_root_and_so_have_the_machines_network_only_where_tasks_are_root(
    network: str, user: str, builds: str
) -> None:
    assert network_of_builds(Isolation(network=network, user=user)) == builds


@pytest.mark.docker
async def test_failing_build_says_its_last_words(runtime: DockerRuntime, client: Any) -> None:
    dockerfile = f"FROM {dockerd.IMAGE}\nRUN echo no such package; exit 3"
    with pytest.raises(StartFailed, match=r"built from Dockerfile: .*code: 3.*no such package"):
        await runtime.prepare(Context(Dockerfile=dockerfile).image(), print)
    with pytest.raises(StartFailed, match=r"nowhere is no plain file"):
        await runtime.prepare(Context(Dockerfile=dockerfile).image("nowhere"), print)
    assert not client.containers.list(all=True)


@pytest.mark.docker
async def test_build_that_nobody_waits_for_is_given_up(runtime: DockerRuntime, client: Any) -> None:
    told: list[str] = []
    context = Context(Dockerfile=f"FROM {dockerd.IMAGE}\nRUN echo begun && sleep 3600")
    waiting = asyncio.create_task(runtime.prepare(context.image(), told.append))
    await until(lambda: "begun" in told)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: not client.containers.list(all=True, ignore_removed=True))


@pytest.mark.parametrize("image", [named("busybox"), Context().image()])
async def test_plain_processes_have_no_images(tmp_path: Path, image: Image) -> None:
    runtime = ProcessRuntime(tmp_path)
    with pytest.raises(StartFailed, match="--runtime process"):
        await runtime.prepare(image, print)
    assert await runtime.prepare(named(""), print) == ""
