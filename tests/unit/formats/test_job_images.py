"""What a job says of images: job file, build context, and what ``eva submit`` sends of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eva_client.cli.jobfiles import LocalJobFile, read_job_file
from eva_client.uploads.context import scan_context
from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import Build, JobSpec
from eva_master.model.resources import Resources
from eva_wire.jobfile import build_context_of, check_job, job_schema
from eva_wire.values.errors import InvalidJob, Problem
from eva_wire.values.ids import Family, Price

CATALOG = (
    Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2_000, 4_096)), Price(1)),
)
JOB = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"
DIGEST = "c" * 64


def parse(line: str, *, containers: bool = True) -> JobSpec:
    return parse_job(
        JOB + line,
        file_name="job.yaml",
        owner="ana",
        catalog=CATALOG,
        workdir=None,
        build=DIGEST,
        containers=containers,
    )


def problems_of(line: str, *, containers: bool = True) -> tuple[Problem, ...]:
    with pytest.raises(InvalidJob) as caught:
        parse(line, containers=containers)
    return caught.value.problems


def programs(line: str) -> list[tuple[str, Build | None]]:
    return [(task.program.image, task.program.build) for task in parse(line).tasks]


def test_image_and_build_reach_every_task() -> None:
    assert programs("tasks: 2") == [("", None)] * 2
    assert programs("image: repo/a:1\ntasks: 2") == [("repo/a:1", None)] * 2
    assert programs("build: {}") == [("", Build(DIGEST, "Dockerfile"))]
    assert programs("build: {context: ., dockerfile: ./gpu/Dockerfile}") == [
        ("", Build(DIGEST, "gpu/Dockerfile"))
    ]


def test_what_a_task_says_replaces_what_the_job_says() -> None:
    lines = """\
build: {context: docker}
tasks:
  - {name: plain}
  - {name: other, build: {dockerfile: other.Dockerfile}}
  - {name: ready, image: busybox}
"""
    assert programs(lines) == [
        ("", Build(DIGEST, "Dockerfile")),
        ("", Build(DIGEST, "other.Dockerfile")),
        ("busybox", None),
    ]
    context = build_context_of(JOB + lines)
    assert context
    assert context.directory == "docker"
    assert [*context.dockerfiles] == ["Dockerfile", "other.Dockerfile"]


@pytest.mark.parametrize(
    "image",
    [
        *("busybox", "repo/name:1.2", "ghcr.io/o-r_g/a.b:v1", "localhost:5000/x/y"),
        f"a@sha256:{'0' * 64}",
        f"123.dkr.ecr.us-east-1.amazonaws.com/eva/train:1@sha256:{'a' * 64}",
    ],
)
def test_references_of_images(image: str) -> None:
    assert programs(f"image: {image}") == [(image, None)]


@pytest.mark.parametrize(
    ("lines", "line", "key", "message"),
    [
        ("image: repo/A", 4, "image", "'repo/A' is not an image"),
        ("image: 'a b'", 4, "image", "is not an image"),
        ("image: 'a:'", 4, "image", "is not an image"),
        ("image: /a", 4, "image", "is not an image"),
        ("image: ''", 4, "image", "must not be empty"),
        ("image: a@sha256:12", 4, "image", "is not an image"),
        ("image: eva-build:0123", 4, "image", "what Eva builds"),
        ("image: eva-build", 4, "image", "what Eva builds"),
        ("image: docker.io/library/eva-build:0123", 4, "image", "what Eva builds"),
        ("tasks:\n- {name: a, image: 'eva-build:0'}", 5, "tasks[0].image", "what Eva builds"),
        ("build: Dockerfile", 4, "build", "must hold keys and values"),
        ("build: {args: {}}", 4, "build.args", "unknown key 'args'"),
        ("build: {dockerfile: ../x}", 4, "build.dockerfile", "inside the build context"),
        ("build: {dockerfile: /x}", 4, "build.dockerfile", "inside the build context"),
        ("build: {dockerfile: ''}", 4, "build.dockerfile", "inside the build context"),
        ("image: a\nbuild: {}", 5, "build", "exclude each other"),
        ("tasks:\n- {name: a, image: a, build: {}}", 5, "tasks[0].build", "exclude each other"),
        (
            "tasks:\n- {name: a, build: {context: a}}\n- {name: b, build: {context: b}}",
            6,
            "tasks[1].build.context",
            "a second build context beside 'a'",
        ),
    ],
)
def test_mistakes_are_told_with_line_and_key(lines: str, line: int, key: str, message: str) -> None:
    (problem,) = problems_of(lines)
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message


def test_most_mistakes_are_found_before_anything_is_sent() -> None:
    with pytest.raises(InvalidJob, match=r"job.yaml:5:1: build"):
        check_job(JOB + "image: a\nbuild: {}", file_name="job.yaml")


@pytest.mark.parametrize(("line", "key"), [("image: a", "image"), ("build: {}", "build")])
def test_cluster_of_plain_processes_has_no_images(line: str, key: str) -> None:
    (problem,) = problems_of(line, containers=False)
    assert (problem.line, problem.key) == (4, key)
    assert "plain processes" in problem.message
    parse_job(JOB, file_name="", owner="", catalog=CATALOG, workdir=None, containers=False)


def test_schema_shows_both_keys() -> None:
    schema = job_schema()
    assert {"image", "build"} <= schema["properties"].keys()
    assert {"image", "build"} <= schema["$defs"]["TaskSection"]["properties"].keys()
    assert set(schema["$defs"]["BuildSection"]["properties"]) == {"context", "dockerfile"}


def paths(root: Path, *dockerfiles: str) -> list[str]:
    manifest = scan_context(root, dockerfiles or ("Dockerfile",)).manifest
    return [file["path"] for file in json.loads(manifest)["files"]]


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_context_is_what_docker_would_send(tmp_path: Path) -> None:
    make(tmp_path, "Dockerfile", "a.py", "data/big", "data/keep/x", ".git/HEAD", "sub/b.pyc")
    assert paths(tmp_path) == ["Dockerfile", "a.py", "data/big", "data/keep/x", "sub/b.pyc"]
    (tmp_path / ".dockerignore").write_text("# not these\n**/*.pyc\ndata\n!data/keep\nDockerfile\n")
    assert paths(tmp_path) == [".dockerignore", "Dockerfile", "a.py", "data/keep/x"]


def test_context_without_docker_s_file_obeys_the_working_directory_s(tmp_path: Path) -> None:
    make(tmp_path, "docker/gpu/Dockerfile", "docker/gpu/notes", "docker/x", "a.py")
    (tmp_path / ".evaignore").write_text("docker/\n")
    assert paths(tmp_path, "docker/gpu/Dockerfile") == [
        *(".evaignore", "a.py", "docker/gpu/Dockerfile")
    ]


def test_context_is_the_same_wherever_it_is(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, "Dockerfile", "x/y")
    assert (
        scan_context(tmp_path / "one", ["Dockerfile"])[1]
        == scan_context(tmp_path / "two", ["Dockerfile"])[1]
    )


def job_with(tmp_path: Path, line: str) -> LocalJobFile:
    file = tmp_path / "job.yaml"
    file.write_text(JOB + line)
    return read_job_file(file)


def test_build_context_is_found_beside_the_job_file(tmp_path: Path) -> None:
    make(tmp_path, "docker/Dockerfile")
    context = job_with(tmp_path, "build: {context: docker}").build_context()
    assert context
    assert context.directory == tmp_path / "docker"
    assert [*context.dockerfiles] == ["Dockerfile"]
    assert job_with(tmp_path, "image: a").build_context() is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("build: {context: none}", "job.yaml:4:9: build.context: 'none' is not a directory"),
        ("build: {}", "job.yaml:4:1: build.dockerfile: there is no 'Dockerfile'"),
        ("build: {dockerfile: d}", "job.yaml:4:9: build.dockerfile: there is no 'd'"),
    ],
)
def test_dockerfile_that_is_not_in_the_context(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidJob, match=re.escape(message)):
        job_with(tmp_path, line).build_context()


def test_every_job_in_the_guide_is_accepted() -> None:
    guide = Path(__file__).parents[3] / "docs" / "howto" / "containers.md"
    blocks = re.findall(r"```yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        check_job(block, file_name="containers.md")
