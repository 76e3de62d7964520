"""A job that brings a Dockerfile, from the command line to its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import SETTINGS
from tests.e2e.conftest import Clusters
from tests.fakes.docker import dockerd

pytestmark = pytest.mark.docker

JOB = """\
name: built
build: {context: docker}
run: cat /greeting /made
resources: {cpus: 1, memory: 64MiB}
kind: array
retries: 0
tasks:
  - {name: one}
  - {name: two, build: {dockerfile: two.Dockerfile}, run: cat /two}
"""


@pytest.mark.long
def test_images_are_built_where_the_tasks_run(
    make_cluster: Clusters, docker_engine: str, tmp_path: Path
) -> None:
    local = {"runtime": "docker", "docker_host": docker_engine, "docker_image": dockerd.IMAGE}
    cluster = make_cluster(settings={"local": {**SETTINGS["local"], **local}})
    context = tmp_path / "docker"
    context.mkdir()
    (tmp_path / "job.yaml").write_text(JOB)
    (context / "greeting").write_text("hello\n")
    (context / "left-out").write_text("")
    (context / ".dockerignore").write_text("left-*\n")
    (context / "Dockerfile").write_text(
        f"FROM {dockerd.IMAGE}\nCOPY . /\nRUN test ! -e /left-out && echo making && date > /made\n"
    )
    (context / "two.Dockerfile").write_text(f"FROM {dockerd.IMAGE}\nRUN echo two > /two\n")
    result = cluster.eva("submit", "--wait", str(tmp_path / "job.yaml"))
    assert result.returncode == 0, result.stderr
    job = result.stdout.split()[0]
    log = b"".join(cluster.client.logs(job)).decode().splitlines()
    # The user saw the build go by, then the task.
    assert "making" in log
    assert "hello" in log[log.index("making") :]
    assert b"".join(cluster.client.logs(job, task=1)).decode().splitlines()[-1] == "two"
