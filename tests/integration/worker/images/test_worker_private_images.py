"""Images of a registry that wants credentials, as ECR does; Debian's own registry stands for it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from eva_worker.errors import ImageRefused, InstanceFailed, StartFailed
from eva_worker.orders import Build
from eva_worker.runtime import Image
from eva_worker.runtime.docker.images.credentials import credentials_for, refusal
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from tests.fakes.docker import dockerd, private, registry
from tests.fakes.docker.private import HELPER, PASSWORD, Helper, PrivateRegistry

NOT_FOUND = "credentials not found in native keychain"
ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Helper:
    helper = Helper(tmp_path)
    monkeypatch.setenv("PATH", f"{helper.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(helper.config))
    return helper


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(connect(docker_engine)) as client:
        yield client
        for image in client.images.list():
            for tag in image.tags:
                if tag != dockerd.IMAGE:
                    client.images.remove(tag, force=True)


@pytest.fixture
def images(client: Any, tmp_path: Path) -> Iterator[PrivateRegistry]:
    (tmp_path / "registry").mkdir()
    with private.running(tmp_path / "registry", client) as images:
        yield images


@pytest.fixture
async def runtime(
    docker_engine: str, tmp_path: Path, helper: Helper
) -> AsyncIterator[DockerRuntime]:
    helper.says(NOT_FOUND, 1)
    runtime = DockerRuntime(
        tmp_path / "runtime", connect(docker_engine), instance="i-1", default_image=dockerd.IMAGE
    )
    yield runtime
    runtime.close()


async def no_context(digest: str, target: Path) -> None:
    raise AssertionError((digest, target))


def named(reference: str) -> Image:
    return Image(reference, None, no_context)


@pytest.mark.registry
async def test_an_image_that_wants_credentials_is_fetched_with_those_of_the_helper(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper
) -> None:
    helper.knows(PASSWORD)
    told: list[str] = []
    assert await runtime.prepare(named(images.image), told.append) == images.image
    assert told[0] == f"fetching image {images.image}"
    assert helper.asked() == [f"get {images.name}"]


@pytest.mark.registry
async def test_without_credentials_or_with_wrong_ones_the_image_is_named_and_what_to_do(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper
) -> None:
    for answer in ((NOT_FOUND, 1), ('{"Username": "AWS", "Secret": "wrong"}', 0)):
        helper.says(*answer)
        with pytest.raises(ImageRefused, match="does not give image") as refused:
            await runtime.prepare(named(images.image), lambda line: None)
        assert images.image in str(refused.value)
        assert "docker login as the worker's user" in str(refused.value)
        assert "wrong" not in str(refused.value)
    # The next attempt looks again.
    helper.knows(PASSWORD)
    await runtime.prepare(named(images.image), lambda line: None)


@pytest.mark.registry
async def test_an_image_that_its_registry_lacks_is_not_refused(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper
) -> None:
    helper.knows(PASSWORD)
    with pytest.raises(StartFailed, match=r"cannot be fetched.*not found") as missing:
        await runtime.prepare(named(f"{images.name}/team/other:1"), lambda line: None)
    assert not isinstance(missing.value, ImageRefused | InstanceFailed)


@pytest.mark.docker
async def test_an_open_registry_needs_no_credentials_of_the_helper(
    runtime: DockerRuntime, helper: Helper
) -> None:
    helper.says(NOT_FOUND, 1)
    with registry.running(dockerd.busybox_root("open")) as images:
        await runtime.prepare(named(images.image), lambda line: None)
    assert len(helper.asked()) == 1


@pytest.mark.registry
@pytest.mark.parametrize("broken", ["says nonsense", "fails", "is missing"])
async def test_a_helper_that_is_broken_is_named(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper, broken: str
) -> None:
    if broken == "is missing":
        (helper.programs / HELPER).unlink()
    else:
        helper.says("nonsense", int(broken == "fails"))
    with pytest.raises(ImageRefused, match="are not to be had") as refused:
        await runtime.prepare(named(images.image), lambda line: None)
    assert images.image in str(refused.value)
    assert "config.json" in str(refused.value)


def built_by(dockerfile: str) -> Image:
    async def lay_out(digest: str, target: Path) -> None:
        target.mkdir()
        (target / "Dockerfile").write_text(dockerfile)

    return Image("", Build("c" * 64, "Dockerfile"), lay_out)


@pytest.mark.registry
@pytest.mark.parametrize(
    "dockerfile",
    [
        "FROM {0}\nENV OF_BUILD=1\n",
        "ARG BASE={0}\nFROM $BASE\nENV OF_BUILD=1\n",
        "FROM --platform=linux/amd64 {0} AS tools\nFROM tools\nENV OF_BUILD=1\n",
        f"FROM {dockerd.IMAGE}\nCOPY --from={{0}} /bin/busybox /copied\n",
    ],
)
async def test_a_build_on_a_private_image_fetches_it_and_sends_no_credentials(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper, dockerfile: str
) -> None:
    helper.knows(PASSWORD)
    told: list[str] = []
    await runtime.prepare(built_by(dockerfile.format(images.image)), told.append)
    # The engine has all that it builds on, and is told no password for the build.
    assert helper.asked() == [f"get {images.name}"]
    assert PASSWORD not in "".join(told)


@pytest.mark.registry
async def test_an_image_may_take_files_of_a_private_one_in_builds_on_it(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper, client: Any
) -> None:
    helper.knows(PASSWORD)
    base = f"FROM {dockerd.IMAGE}\nONBUILD COPY --from={images.image} /bin/busybox /copied\n"
    client.images.build(fileobj=io.BytesIO(base.encode()), tag="acme/base:1", rm=True)
    before = helper.asked()
    reference = await runtime.prepare(built_by("FROM acme/base:1\n"), lambda line: None)
    assert helper.asked() == [*before, f"get {images.name}"]
    ls = client.containers.run(reference, ["ls", "/copied"], remove=True)
    assert ls == b"/copied\n"


@pytest.mark.registry
async def test_a_build_on_a_private_image_without_credentials_says_what_to_do(
    runtime: DockerRuntime, images: PrivateRegistry, helper: Helper
) -> None:
    helper.says('{"Username": "AWS", "Secret": "wrong"}', 0)
    with pytest.raises(ImageRefused, match="docker login as the worker's user") as refused:
        await runtime.prepare(built_by(f"FROM {images.image}\n"), lambda line: None)
    assert images.image in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_a_log_in_counts_at_once(helper: Helper) -> None:
    helper.says(NOT_FOUND, 1)
    assert credentials_for("ghcr.io/me/train:1") == {}
    (helper.config / "config.json").write_text('{"auths": {"ghcr.io": {"auth": "bWU6c2VjcmV0"}}}')
    assert credentials_for("ghcr.io/me/train:1")["username"] == "me"
    (helper.config / "config.json").write_text('{"auths": 1}')
    with pytest.raises(ImageRefused, match="are not to be had"):
        credentials_for("ghcr.io/me/train:1")


@pytest.mark.parametrize(
    "words",
    [
        f"Head https://{ECR}/v2/train/manifests/1: no basic auth credentials",
        "denied: User: arn:aws:sts::123456789012:assumed-role/x/i-1 is not authorized to perform: "
        "ecr:BatchGetImage",
        "pull access denied for train, repository does not exist or may require 'docker login'",
    ],
)
def test_a_refusal_of_ecr_says_what_role_is_missing(words: str) -> None:
    refused = refusal(f"{ECR}/train:1", words)
    assert refused is not None
    assert f"{ECR} does not give image {ECR}/train:1" in str(refused)
    assert "AmazonEC2ContainerRegistryPullOnly" in str(refused)
    for other in ("no space left on device", "open /var/lib/docker/tmp/x: permission denied"):
        assert refusal(f"{ECR}/train:1", other) is None
