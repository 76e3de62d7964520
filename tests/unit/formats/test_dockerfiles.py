"""Which Dockerfiles a worker builds: none that reaches for images by their ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_worker.errors import StartFailed
from eva_worker.runtime.docker.images import dockerfile

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
    "files that are added": "FROM debian\nADD --chown=1:1 a.tar.gz ./github.com/x b.git/c $HOME/\n",
    "files that are added, as a list": 'FROM debian\nADD ["a b.tar", "/x"]\n',
    "addresses elsewhere": "FROM debian\nRUN curl https://example.com/x\nENV A=http://127.0.0.1\n",
    "words of syntax": "# the syntax = that of a.py\nFROM debian\nRUN echo '# syntax=x'\n",
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
    "what Eva built, copied from": "FROM debian\nCOPY --from=eva-build:0123456789 / /",
    "what Eva built, mounted": "FROM debian\nRUN --mount=type=bind,from=eva-build:01,target=/x ls",
    "a quote in the name of an option": 'FROM debian\nCOPY --"from"=cafe / /',
    "a backslash in the name of an option": "FROM debian\nCOPY --fr\\om=cafe / /",
    "an option after one with a blank": 'FROM debian\nCOPY --chown="a b" --from=cafe / /',
    "a platform with a blank": 'FROM --platform="a b" cafe',
    "one name for two platforms": "FROM --platform=linux/arm64 a/b\nFROM --platform=linux/386 a/b",
    "another blank before an option": "FROM debian\nCOPY \u00a0--from=cafe / /",
    "another blank between options": "FROM debian\nCOPY --chown=1\u2003--from=cafe / /",
    "another blank before an instruction": "FROM debian\nONBUILD \u00a0COPY --from=cafe / /",
    "a capital letter of another script": "FROM debian\nONBU\u0130LD COPY --from=cafe / /",
    "the machine's network": "FROM debian\nRUN --network=host curl 127.0.0.1",
    "rights of the machine": "FROM debian\nRUN --security=insecure mount",
    "devices": "FROM debian\nRUN --device=/dev/sda cat /dev/sda",
}

FETCHES = {
    "a URL": "ADD http://169.254.169.254/latest/meta-data /x",
    "capital letters": "add HTTPS://127.0.0.1:8000/ /x",
    "many blanks": "  ADD \t http://127.0.0.1/\t/x",
    "among files": "ADD a b http://127.0.0.1/ /x/",
    "after options": "ADD --chown=1 --checksum=sha256:00 http://127.0.0.1/ /x",
    "continued": "ADD ht\\\ntp://127.0.0.1/ /x",
    "continued over a comment": "ADD \\\n# no\n\nhttp://127.0.0.1/ /x",
    "a list": 'ADD ["http://127.0.0.1/", "/x"]',
    "a list with escapes": 'ADD ["\\u0068ttp://127.0.0.1/", "/x"]',
    "a list that is none": 'ADD ["http://127.0.0.1/", /x]',
    "quotes": "ADD ht'tp'://127.0.0.1/ /x",
    "backslashes": "ADD http\\://127.0.0.1/ /x",
    "a variable": "ENV A=http://127.0.0.1/\nADD $A /x",
    "a variable in braces": "ARG A\nADD ${A:-http}//127.0.0.1/ /x",
    "on build": "ONBUILD ADD http://127.0.0.1/ /x",
    "on build, twice": "ONBUILD ONBUILD ADD http://127.0.0.1/ /x",
    "git": "ADD git://127.0.0.1/a.git /x",
    "git by ssh": "ADD git@127.0.0.1:a/b /x",
    "git without a scheme": "ADD github.com/a/b /x",
    "a repository": "ADD example.com/a.git#main /x",
    "a here-document": "ADD <<E /x\nE",
}

SYNTAXES = {
    "plain": "# syntax=docker/dockerfile:1\nFROM debian",
    "no blank": "#syntax=a/b\nFROM debian",
    "many blanks": "  #\t syntax \t= a/b\nFROM debian",
    "capital letters": "# SynTax=a/b\nFROM debian",
    "after a byte order mark": "\ufeff# syntax=a/b\nFROM debian",
    "after another": "# escape=\\\n# syntax=a/b\nFROM debian",
    "after a program's line": "#!/usr/bin/env x\n# syntax=a/b\nFROM debian",
    "with a carriage return": "# syntax=a/b\r\nFROM debian",
    "slashes": "// syntax=a/b\nFROM debian",
    "a document": '{"syntax": "a/b"}',
}


@pytest.mark.parametrize("text", FETCHES.values(), ids=FETCHES)
def test_nothing_is_fetched_by_the_engine_itself(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "Dockerfile").write_text(f"FROM debian\n{text}\n")
    with pytest.raises(StartFailed, match=r"plain path of a file in the build|here-document"):
        dockerfile.check(tmp_path, path.name)


@pytest.mark.parametrize("text", SYNTAXES.values(), ids=SYNTAXES)
def test_no_program_of_a_registry_reads_a_dockerfile(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "Dockerfile").write_bytes(text.encode())
    with pytest.raises(StartFailed, match=r"remove the line|begins with \{"):
        dockerfile.check(tmp_path, path.name)


def test_images_that_are_built_on_are_told_once_for_their_platform(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "ARG V=12\nARG P=linux/arm64\nFROM debian:$V AS a\nFROM a\nFROM scratch\n"
        "FROM --platform=$P x/y\nFROM debian:12\n"
        "COPY --from=a /a /a\nCOPY --from=0 /a /b\nCOPY --from=x/y /a /c\nCOPY --from=x/z /a /d\n"
        "RUN --mount=type=bind,from=x/v,target=/v ls\nONBUILD COPY --from=x/later /a /e\n"
    )
    sources = dockerfile.check(tmp_path, "Dockerfile")
    assert sources.stages == {"a"}
    assert sources.images == [
        dockerfile.Base("debian:12"),
        dockerfile.Base("x/y", "linux/arm64"),
        dockerfile.Base("x/z", built_on=False),
        dockerfile.Base("x/v", built_on=False),
    ]


@pytest.mark.parametrize(
    "line", ["ADD http://127.0.0.1/ /x", "COPY --from=eva-build:1 / /", "RUN --network=host ls"]
)
def test_what_an_image_has_done_in_builds_on_it_is_judged(line: str) -> None:
    none = dockerfile.Sources()
    dockerfile.check_triggers("a/b", ["COPY . /app", "RUN pip install ."], none)
    with pytest.raises(StartFailed, match="ONBUILD of image a/b"):
        dockerfile.check_triggers("a/b", ["COPY . /app", line], none)


def test_images_that_an_image_names_for_builds_on_it_are_told() -> None:
    """Stages are those of the Dockerfile; what is for builds on what is built is for these."""
    lines = [
        "COPY --from=Tools /a /a",
        "COPY --from=x/y:1 /a /b",
        "COPY --from=x/y:1 /a /c",
        "RUN --mount=type=bind,from=x/z ls",
        "ONBUILD COPY --from=x/later /a /e",
        "FROM x/hidden",
    ]
    sources = dockerfile.Sources([dockerfile.Base("a/b")], {"tools"})
    dockerfile.check_triggers("a/b", lines, sources)
    assert sources.images == [
        dockerfile.Base("a/b"),
        dockerfile.Base("x/y:1", built_on=False),
        dockerfile.Base("x/z", built_on=False),
    ]


def copies(count: int) -> list[str]:
    """Instructions that take files of as many images."""
    return [f"COPY --from=x/number{number} /a /b" for number in range(count)]


def test_a_build_uses_so_many_images_and_no_more(tmp_path: Path) -> None:
    """Images that an image names for builds on it count as well."""
    (path := tmp_path / "Dockerfile").write_text("\n".join(["FROM a/b", *copies(49)]))
    sources = dockerfile.check(tmp_path, path.name)
    dockerfile.check_triggers("a/b", copies(49), sources)
    assert len(sources.images) == dockerfile.MOST_IMAGES
    with pytest.raises(StartFailed, match=r"ONBUILD of image a/b: x/number49 .* at most 50"):
        dockerfile.check_triggers("a/b", copies(50), sources)
    path.write_text("\n".join(["FROM a/b", *copies(30_000)]))
    with pytest.raises(StartFailed, match=r"Dockerfile: x/number49 .* push an image"):
        dockerfile.check(tmp_path, path.name)


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
