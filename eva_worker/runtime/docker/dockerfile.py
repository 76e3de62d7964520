"""Refuses Dockerfiles that reach for images of the instance by their ids.

An engine takes the beginning of an image's id where an image's name may stand, and all that any
user had fetched or built on the instance has one. The lines are read as the engine's builder does.
What it might read otherwise than this module is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from eva_worker.errors import StartFailed

_LARGEST = 1 << 20
_BUILT = "eva-build"
_SPACE = "\t\v\f\r "

_LIKE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{1,64}")
_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S+)", re.IGNORECASE)
_WORDS = re.compile(r"[\t\v\f\r ]+")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}$]*))?\})")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
"""Some readers take some of them for blanks, and so what follows for a comment."""
_CONTINUED = re.compile(r"(?:^|[^\\])\\[ \t]*\r*$")
_HERE_DOCUMENT = re.compile(r"(?:^|\s)\d*<<-?(?!<)\S")
_MOUNT_FROM = re.compile(r"(?:^|,)\s*from\s*=([^,]*)", re.IGNORECASE)


def like_id(reference: str) -> bool:
    """Return whether an engine may take a reference to an image for the beginning of its id."""
    return _LIKE_ID.fullmatch(reference) is not None


def check(context: Path, name: str) -> None:
    """Check that a Dockerfile names images by names that only registries give.

    Args:
        context: The directory of the build context.
        name: The Dockerfile's path in it.

    Raises:
        StartFailed: It is too large, or names an image by an id, by a name that builds have, or in
            a way that cannot be judged. Or it is no plain file: then an engine may build from
            another one than is read here, since it follows links in its own way and takes
            ``dockerfile`` for a missing ``Dockerfile``.
    """
    root = context.resolve()
    path = root / os.path.normpath(name)
    if path.resolve() != path or not path.is_relative_to(root) or not path.is_file():
        raise StartFailed(
            f"{name} is no plain file of the build context; name the Dockerfile as it is spelled "
            "there, by a path without symbolic links"
        )
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise StartFailed(f"{path.name} is larger than {_LARGEST >> 20} MiB")
    _Reader(path.name).read(content.decode(errors="replace"))


class _Reader:
    """Follows a Dockerfile from top to bottom.

    Args:
        name: The file's name, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._arguments: dict[str, str] = {}
        self._stages: set[str] = set()
        self._began = False

    def read(self, text: str) -> None:
        if _CONTROL.search(text):
            raise StartFailed(f"{self._name} has control characters; remove them")
        for line in text.split("\n"):
            cut = line.rstrip(_SPACE)
            if cut.endswith("\\") and not _CONTINUED.search(line):
                raise StartFailed(
                    f"{self._name}: whether {cut[-80:]!r} goes on in the next line is not clear; "
                    "end it with one \\ if it does, and with something else if it does not"
                )
            if (escape := _ESCAPE.match(line.strip())) and escape[1] != "\\":
                raise StartFailed(f"{self._name}: the escape character of a Dockerfile must be \\")
        for line in _instructions(text):
            self._instruction(line)

    def _instruction(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if _HERE_DOCUMENT.search(rest):
            raise StartFailed(
                f"{self._name}: {name} {rest[:100]!r} begins a here-document, which is not built; "
                "put its text into a file of the build context"
            )
        match name.upper():
            case "ARG" if not self._began:
                self._argument(rest)
            case "FROM":
                self._base(rest)
            case "ONBUILD":
                self._instruction(rest.strip(_SPACE))
            case "COPY" | "ADD" | "RUN":
                self._flags(rest)

    def _argument(self, rest: str) -> None:
        for word in rest.split(" "):
            name, stated, value = word.partition("=")
            if stated:
                self._arguments[name] = self._filled_in(value.strip("\"'"))

    def _base(self, rest: str) -> None:
        words = rest.split(" ")
        while words and words[0].startswith("--"):
            words.pop(0)
        self._judge(words[0] if words else "", "FROM")
        if len(words) > 2 and words[1].upper() == "AS":
            self._stages.add(words[2].lower())
        self._began = True

    def _flags(self, rest: str) -> None:
        for word in rest.split(" "):
            if not word.startswith("--"):
                return
            flag, _, value = word.partition("=")
            sources = [value] if flag.lower() == "--from" else []
            if flag.lower() == "--mount":
                sources = _MOUNT_FROM.findall(value.replace('"', ""))
            for source in sources:
                if not source.isdecimal():  # The number of a stage.
                    self._judge(source, flag)

    def _judge(self, word: str, where: str) -> None:
        name = self._filled_in(word)
        if name.lower() in self._stages:
            return
        if not _NAME.fullmatch(name):
            raise StartFailed(
                f"{self._name}: {where} {word[:100]!r} is not the plain name of an image; "
                "variables are those that an ARG before the first FROM gives a value"
            )
        if like_id(name):
            raise StartFailed(
                f"{self._name}: {where} {name[:100]!r} may be the id of an image of the instance; "
                "write its name with its registry, such as docker.io/library/NAME"
            )
        if re.split("[:@]", name.rpartition("/")[2])[0] == _BUILT:
            raise StartFailed(
                f"{self._name}: {where} {name[:100]!r} is the name of what Eva builds for jobs; "
                "a job builds on images of registries only"
            )

    def _filled_in(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            known = self._arguments.get(match[1] or match[2])
            return known or match[3] or ("" if known is not None else match[0])

        return _VARIABLE.sub(value, text)


def _instructions(text: str) -> Iterator[str]:
    """Join continued lines and drop comments; words are separated by single spaces."""
    joined = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        stripped = line.strip()
        if stripped.startswith("#") or (joined and not stripped):
            continue
        body = line if joined else line.lstrip()
        cut = body.rstrip(_SPACE)
        if cut.endswith("\\"):
            joined += cut[:-1] or " "
            continue
        yield _WORDS.sub(" ", (joined + body).strip())
        joined = ""
    if joined.strip():
        yield _WORDS.sub(" ", joined.strip())
