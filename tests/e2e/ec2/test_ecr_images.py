"""A job whose image is in ECR, on an instance that has its user data and its role alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_worker.runtime.docker.runtime import connect
from tests.e2e.cluster import until
from tests.e2e.conftest import Ec2s
from tests.fakes.docker import private
from tests.fakes.docker.private import PrivateRegistry

pytestmark = [pytest.mark.hosts, pytest.mark.registry, pytest.mark.long, pytest.mark.waits]


@pytest.fixture
def ecr(docker_engine: str, tmp_path: Path) -> Iterator[PrivateRegistry]:
    """Debian's registry, which gives its one image to nobody without a password."""
    (tmp_path / "registry").mkdir()
    with (
        contextlib.closing(connect(docker_engine)) as client,
        private.running(tmp_path / "registry", client, host="0.0.0.0") as registry,
    ):
        yield registry


@pytest.mark.timeout(900)
def test_an_image_of_ecr_is_fetched_with_the_instances_role(
    make_ec2: Ec2s, ecr: PrivateRegistry
) -> None:
    cluster = make_ec2()
    name = f"{cluster.site.switch.address}:{ecr.port}"
    image = ecr.image.replace(ecr.name, name)
    # The image is not there by any other way: this variable is its own.
    job = cluster.submit(
        "ecr", image=image, run='echo "of the image: $OF_IMAGE"', reports_steps=False, retries=0
    )
    until(lambda: cluster.job(job).finished_ms, "the job ends")
    said = b"".join(cluster.client.logs(job)).decode()
    assert cluster.job(job).state == "succeeded", said
    assert "of the image: 1" in said
    cluster.until_empty()
