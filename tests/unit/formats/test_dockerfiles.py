"""Which Dockerfiles a worker builds: none that reaches for images by their ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_worker.errors import StartFailed
from eva_worker.runtime.docker import dockerfile

HONEST = {
    "plain": "FROM python:3.11-slim\nRUN pip install numpy\n",
    "digest": "FROM ghcr.io/acme/base@sha256:" + "a" * 64 + "\n",
    "stages": "FROM golang AS a\nRUN x\nFROM scratch\nCOPY --from=a /x /x\nCOPY --from=0 /y /y\n",
    "stage as a base": "FROM debian AS cafe\nFROM cafe\n",
    "arguments": 'ARG V=3.11\nARG B="python:${V}"\nFROM --platform=linux/amd64 ${B}\n',
    "default of a variable": "FROM ${BASE:-debian:12}\n",
    "words that only look like it": "FROM debian\nRUN echo FROM cafe && cp --from=cafe\n",
    "a mount": "FROM debian\nRUN --mount=type=cache,target=/root/.cache pip install numpy\n",
    "a comment": "FROM debian # cafe\n# FROM cafe\nRUN a \\\n# FROM cafe\n  b\n",
    "here-strings and shifts": "FROM debian\nRUN cat <<<x; echo $((1<<20)) '1 << 2'\n",
    "continued with a carriage return": "FROM debian\r\nRUN a \\ \r\n b\r\n",
    "escape as it is": "# escape=\\\nFROM debian\n",
}

HOSTILE = {
    "an id": "FROM cafe",
    "one digit": "FROM 7",
    "a whole id": "FROM sha256:" + "a" * 64,
    "small letters": "from cafe",
    "many blanks": "\t FROM\t\v cafe  \n",
    "continued": "FROM \\\n\n# no\n ca\\\nfe\n",
    "continued at the end": "FROM cafe\\",
    "byte order mark": "\ufeffFROM cafe",
    "after a carriage return": "FROM debian\r\nFROM cafe\r\n",
    "platform first": "FROM --platform=linux/amd64 cafe",
    "copy": "FROM debian\nCOPY --chown=1 --from=cafe /secret /",
    "mount": "FROM debian\nRUN --mount=type=bind,from=cafe,target=/x cat /x/secret",
    "quoted mount": 'FROM debian\nRUN --mount="type=bind,from=cafe" cat /x/secret',
    "on build": "FROM debian\nONBUILD COPY --from=cafe / /",
    "argument": "ARG X=cafe\nFROM $X",
    "argument in braces": "ARG X=ca\nARG Y=${X}fe\nFROM ${Y}",
    "default": "FROM ${X:-cafe}",
    "empty argument": "ARG X=\nFROM ca${X}fe",
    "unknown variable": "FROM ca${X}fe",
    "other forms of variables": "ARG X=1\nFROM ${X:+cafe}",
    "quotes": 'FROM "cafe"',
    "quotes within": "FROM ca''fe",
    "backslash": "FROM c\\afe",
    "another escape": "# escape=`\nFROM debian",
    "a stage of that name later": "FROM cafe AS cafe",
    "a stage in a here-document": "FROM debian\nRUN <<E\nFROM debian AS cafe\nE\n"
    "COPY --from=cafe / /",
    "the end of a here-document taken for a comment": "FROM debian\nRUN <<#E\necho \\\n#E\n"
    "COPY --from=cafe / /",
    "the end of a here-document taken for a beginning": "FROM debian\nRUN <<-'E\\'\nE\\\n"
    "COPY --from=cafe / /",
    "two backslashes continue nothing": "FROM debian\nRUN a \\\\\nCOPY --from=cafe / /",
    "a backslash before a blank": "FROM debian\nRUN a \\\v\nCOPY --from=cafe / /",
    "a control character that is no blank": "FROM debian\nRUN a \\\n\x1c#\nCOPY --from=cafe / /",
    "a number is no stage in FROM": "FROM debian\nFROM 0",
    "what Eva built": "FROM eva-build:0123456789",
    "what Eva built, in full": "FROM docker.io/library/eva-build:0123456789",
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST)
def test_a_dockerfile_that_names_its_images_is_built(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "Dockerfile").write_text(text)
    dockerfile.check(tmp_path, path.name)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_dockerfile_that_may_reach_for_an_image_by_its_id_is_refused(
    text: str, tmp_path: Path
) -> None:
    (path := tmp_path / "Dockerfile").write_bytes(text.encode())
    with pytest.raises(StartFailed, match="Dockerfile"):
        dockerfile.check(tmp_path, path.name)


def test_a_dockerfile_without_end_is_refused(tmp_path: Path) -> None:
    with (path := tmp_path / "Dockerfile").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StartFailed, match="larger than"):
        dockerfile.check(tmp_path, path.name)


@pytest.mark.parametrize("target", ["/other", "../context/other", "other"])
def test_a_dockerfile_that_an_engine_may_find_elsewhere_is_refused(
    target: str, tmp_path: Path
) -> None:
    (context := tmp_path / "context").mkdir()
    (context / "other").write_text("FROM debian\n")
    (context / "Dockerfile").symlink_to(target)
    with pytest.raises(StartFailed, match="Dockerfile is no plain file"):
        dockerfile.check(context, "Dockerfile")
    (context / "here").symlink_to(".")
    with pytest.raises(StartFailed, match="here/other is no plain file"):
        dockerfile.check(context, "here/other")
    with pytest.raises(StartFailed, match="other is no plain file"):
        dockerfile.check(context, str(context.parent / "context" / ".." / "other"))
    dockerfile.check(context, "other")


def test_no_other_file_is_built_from_for_one_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "dockerfile").write_text("FROM cafe\n")  # An engine takes it for Dockerfile.
    with pytest.raises(StartFailed, match="Dockerfile is no plain file of the build context"):
        dockerfile.check(tmp_path, "Dockerfile")
