"""Refuses Dockerfiles that reach for more than their context and images of registries.

An engine takes the beginning of an image's id where an image's name may stand, and every image that
any user had fetched or built on the instance has an id. The engine itself fetches a URL that
``ADD`` names, as root on the network of its machine. And it may have a program of any registry read
the file. The lines are read as the engine's builder does. Lines that the engine might read
otherwise than this module are refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eva_worker.errors import StartFailed

MOST_IMAGES = 50
"""Images of registries that a build may use."""
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
_SYNTAX = re.compile(r"(?:#|//)\s*syntax\s*=", re.IGNORECASE)
_OPTION = re.compile(r"\s*(--\S*)\s*")
_RIGHTS = {"--network", "--security", "--device"}
_REMOTE = re.compile(r"(?:www\.)?github\.com/|git@|.*\.git(?:$|[#?])", re.IGNORECASE)
"""Sources that some builders take for repositories, though they have no scheme."""
_UNCLEAR = re.compile("[\\\\$\"'`:]")
"""Characters of schemes, and characters that a builder removes or replaces."""
_NOTHING = "scratch"
_MOUNT_FROM = re.compile(r"(?:^|,)\s*from\s*=([^,]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Base:
    """An image of a registry that a Dockerfile builds on, or takes files of.

    Attributes:
        name: Its name.
        platform: The platform that it is fetched for; empty for the machine's.
        built_on: Whether its own instructions for builds are carried out.
    """

    name: str
    platform: str = ""
    built_on: bool = True


@dataclass(frozen=True, slots=True)
class Sources:
    """The images and stages of a build.

    Attributes:
        images: The images of registries that it uses.
        stages: Names of its stages, in small letters.
    """

    images: list[Base] = field(default_factory=list)
    stages: set[str] = field(default_factory=set)

    def use(self, base: Base, where: str) -> None:
        """Add an image; raises `StartFailed` where there are too many.

        Args:
            base: The image.
            where: Names what uses it, for messages.
        """
        same_name = (other for other in self.images if other.name == base.name)
        if any(other.built_on or not base.built_on for other in same_name):
            return
        if len(self.images) == MOST_IMAGES:
            raise StartFailed(
                f"{where}: {base.name[:100]} is one image too many, as a build uses at most "
                f"{MOST_IMAGES} of registries; push an image that has their files, and use that"
            )
        self.images.append(base)


def like_id(reference: str) -> bool:
    """Return whether an engine may take a reference to an image for the beginning of its id."""
    return _LIKE_ID.fullmatch(reference) is not None


def built_by_eva(reference: str) -> bool:
    """Return whether a reference is a name of what Eva builds for jobs."""
    return re.split("[:@]", reference.rpartition("/")[2])[0].lower() == _BUILT


def check(context: Path, name: str) -> Sources:
    """Check that a Dockerfile uses its context, and images by names that only registries give.

    Args:
        context: The directory of the build context.
        name: The Dockerfile's path in it.

    Returns:
        Its images and stages. `check_triggers` judges the own instructions of the images that it
        builds on.

    Raises:
        StartFailed: The file is too large, names an image by an id, by a name that builds have, or
            in a way that cannot be judged, has the engine fetch something, asks for rights, or
            names a syntax. Or it is no plain file: then an engine may build from another one than
            is read here, since it follows links in its own way and takes ``dockerfile`` for a
            missing ``Dockerfile``.
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
    reader = _Reader(path.name, Sources())
    reader.read(content.decode(errors="replace"))
    return reader.sources


def check_triggers(base: str, lines: Iterable[str], sources: Sources) -> None:
    """Check the instructions that an image has for builds on it (``ONBUILD``).

    Args:
        base: The image's name.
        lines: Its instructions.
        sources: Of the Dockerfile that builds on it; gets the images that they take files of.

    Raises:
        StartFailed: One of them would be refused in a Dockerfile, or there are too many images.
    """
    name = f"ONBUILD of image {base}"
    reader = _Reader(name, Sources(stages=set(sources.stages)))
    for line in lines:
        reader.trigger(line)
    for image in reader.sources.images:
        if not image.built_on:  # No trigger may have a FROM.
            sources.use(image, name)


class _Reader:
    """Follows a Dockerfile from top to bottom.

    Args:
        name: The file's name, for messages.
        sources: Gets its images and stages.
    """

    def __init__(self, name: str, sources: Sources) -> None:
        self._name = name
        self._arguments: dict[str, str] = {}
        self._began = False
        self.sources = sources

    def read(self, text: str) -> None:
        if _CONTROL.search(text):
            raise StartFailed(f"{self._name} has control characters; remove them")
        if text.lstrip("\ufeff \t\r\n").startswith("{"):
            raise StartFailed(f"{self._name} begins with {{, which no instruction does")
        for line in text.split("\n"):
            cut = line.rstrip(_SPACE)
            if cut.endswith("\\") and not _CONTINUED.search(line):
                raise StartFailed(
                    f"{self._name}: whether {cut[-80:]!r} goes on in the next line is not clear; "
                    "end it with one \\ if it does, and with something else if it does not"
                )
            if _SYNTAX.match(line.strip("\ufeff" + _SPACE)):
                raise StartFailed(
                    f"{self._name}: {line.strip()[:80]!r} would have a program of a registry read "
                    "the file; remove the line"
                )
            if (escape := _ESCAPE.match(line.strip())) and escape[1] != "\\":
                raise StartFailed(f"{self._name}: the escape character of a Dockerfile must be \\")
        for line in _instructions(text):
            self._instruction(line)

    def _instruction(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if not name.isascii():  # Builders drop blanks, and make small letters, of all scripts.
            raise StartFailed(
                f"{self._name}: {name[:100]!r} is no instruction; write it with plain letters, and "
                "plain blanks around it"
            )
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
                used = len(self.sources.images)
                self._instruction(rest.strip(_SPACE))
                del self.sources.images[used:]  # By builds on what is built here.
            case "COPY":
                self._options("COPY", rest)
            case "ADD":
                self._sources(self._options("ADD", rest))
            case "RUN":
                self._options("RUN", rest)

    def trigger(self, line: str) -> None:
        """Judge an instruction that an image has for builds on it."""
        for instruction in _instructions(line):
            self._instruction(instruction)

    def _argument(self, rest: str) -> None:
        for word in rest.split(" "):
            name, stated, value = word.partition("=")
            if stated:
                self._arguments[name] = self._filled_in(value.strip("\"'"))

    def _base(self, rest: str) -> None:
        words = self._options("FROM", rest).split(" ")
        platform = dict(word.partition("=")[::2] for word in rest.split(" ")).get("--platform", "")
        name = self._judge(words[0], "FROM")
        if len(words) > 2 and words[1].upper() == "AS":
            self.sources.stages.add(words[2].lower())
        self._began = True
        if not name or name == _NOTHING:
            return
        base = Base(name, self._filled_in(platform))
        same_name = [other for other in self.sources.images if other.name == name]
        if any(other.platform != base.platform for other in same_name):
            raise StartFailed(
                f"{self._name}: FROM {name[:100]!r} stands for several platforms; name each by "
                "its digest"
            )
        self.sources.use(base, self._name)

    def _options(self, instruction: str, rest: str) -> str:
        """Judge the options of an instruction; returns what follows them."""
        # Blanks of all scripts separate options.
        while option := _OPTION.match(rest):
            word, rest = option[1], rest[option.end() :]
            if re.search("[\\\\\"']", word):
                raise StartFailed(
                    f"{self._name}: {instruction} {word[:100]!r} has a quote or a backslash; "
                    "write options without"
                )
            flag, _, value = word.partition("=")
            if flag.lower() in _RIGHTS:
                raise StartFailed(
                    f"{self._name}: {instruction} {word[:100]!r} asks for rights that builds have "
                    "not; remove the option"
                )
            sources = [value] if flag.lower() == "--from" else []
            if flag.lower() == "--mount":
                sources = _MOUNT_FROM.findall(value)
            for source in sources:
                if source.isdecimal():  # The number of a stage.
                    continue
                name = self._judge(source, flag)
                if name:
                    self.sources.use(Base(name, built_on=False), self._name)
        return rest

    def _sources(self, rest: str) -> None:
        """Refuse what ADD would have the engine fetch."""
        words = rest.split(" ")
        if rest.startswith("["):
            try:
                words = [str(word) for word in json.loads(rest)]
            except ValueError:
                words = rest.split(" ")
        for source in words[:-1] or words:
            here = source.startswith(("./", "../", "/"))
            if _UNCLEAR.search(source) or (_REMOTE.match(source) and not here):
                raise StartFailed(
                    f"{self._name}: ADD {source[:100]!r} is not the plain path of a file in the "
                    "build context; fetch in a RUN, which has the task's network, or declare an "
                    "input of the job"
                )

    def _judge(self, word: str, where: str) -> str:
        """Judge a name of an image; returns it, empty for that of a stage."""
        name = self._filled_in(word)
        if name.lower() in self.sources.stages:
            return ""
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
        if built_by_eva(name):
            raise StartFailed(
                f"{self._name}: {where} {name[:100]!r} is the name of what Eva builds for jobs; "
                "a job builds on images of registries only"
            )
        return name

    def _filled_in(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            argument = self._arguments.get(match[1] or match[2])
            return argument or match[3] or ("" if argument is not None else match[0])

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
