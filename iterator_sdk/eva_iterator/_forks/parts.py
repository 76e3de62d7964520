"""Parts: directories that forks wrote and others read, so that nothing in them is believed."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

from eva_iterator._forks import formats, states
from eva_iterator._forks.states import Unfit

PART_FILE = "part.json"
MISSING_FILE = "missing.json"
MOST_FORKS = 64

_MOST_STEPS = 2**53
_MOST_FILES = 10_000
_DEEPEST = 8
_LARGEST_NOTE = 64 * 1024
_SPARE = 1 << 20
_ADVICE = "write weights into .npz, .npy, .pt or .pth files, or give Forked an `average`"
_NUMBER = re.compile(r"0|[1-9]\d?")


class ForkPart(NamedTuple):
    """The part that one fork gave: its files, and its account of them.

    Attributes:
        fork: Its number.
        steps: Steps that it made since the last merge: its weight.
        check: The check metric of its weights, if it has one.
        path: Directory of the files that its `save` wrote.
    """

    fork: int
    steps: int
    check: float | None
    path: Path


class LeftOut(NamedTuple):
    """A part that does not count.

    Attributes:
        fork: The fork that gave it.
        steps: Steps that it claims, 0 if that cannot be read.
        reason: Why.
    """

    fork: int
    steps: int
    reason: str


class PartForm(NamedTuple):
    """The required form of parts.

    Attributes:
        files: Their files, relative to the part, in order.
        size: The largest that a part may be, in bytes.
        samples: One state for each file of weights.
        unpacked: Bytes that may come out of each.
    """

    files: tuple[str, ...]
    size: int
    samples: dict[str, Any]
    unpacked: dict[str, int]


def found(directory: Path) -> list[ForkPart | LeftOut]:
    """The parts of an epoch, by fork, with those that the agent could not fetch.

    Raises:
        OSError: The directory cannot be read.
    """
    names = [path.name for path in directory.iterdir()]
    numbers = sorted(int(name) for name in names if _NUMBER.fullmatch(name))
    parts = [_noted(fork, directory / str(fork)) for fork in numbers if fork < MOST_FORKS]
    present = {part.fork for part in parts}
    for name, reason in _json(directory / MISSING_FILE).items():
        if _NUMBER.fullmatch(name) and int(name) < MOST_FORKS and int(name) not in present:
            parts.append(LeftOut(int(name), 0, str(reason)[:200]))
    return sorted(parts, key=lambda part: part.fork)


def weights_of(path: Path) -> list[str]:
    """The files of weights in a trusted part, the program's own, in order.

    Raises:
        Unfit: The directory has no weights, or files without a rule for averaging.
        OSError: The directory cannot be read.
    """
    files = [Path(name) for name in _files(path)]
    for name in files:
        if not formats.is_averaged(name) and name.suffix not in formats.COPIED:
            raise Unfit(f"eva_iterator cannot average {name}: {_ADVICE}")
    if weights := [name.as_posix() for name in files if formats.is_averaged(name)]:
        return weights
    raise Unfit(f"`save` of a forked program wrote no weights: {_ADVICE}")


def form_of(path: Path) -> PartForm:
    """The form of a trusted part: the program's own.

    Raises:
        Unfit: The state has something that cannot be averaged.
        OSError: The directory cannot be read.
    """
    files = _files(path)
    weights = weights_of(path)
    samples = {name: formats.read(path / name) for name in weights}
    for name, sample in samples.items():
        for _ in states.averaged(sample, name):
            pass
    unpacked = {name: 2 * formats.unpacked(path / name) + _SPARE for name in weights}
    return PartForm(tuple(files), size_limit(path), samples, unpacked)


def size_limit(path: Path) -> int:
    """Bytes that a part may have beside a trusted one: twice as many, and a megabyte.

    Raises:
        Unfit: The directory has something else than plain files.
        OSError: The directory cannot be read.
    """
    return 2 * sum((path / name).stat().st_size for name in _files(path)) + _SPARE


def examine(part: ForkPart, form: PartForm) -> None:
    """Makes sure that a part can be averaged.

    Raises:
        Unfit: The part cannot be averaged; the message says why.
        OSError: The part cannot be read.
    """
    examine_files(part, form.size)
    if tuple(_files(part.path)) != form.files:
        raise Unfit("it has other files")
    for name, sample in form.samples.items():
        try:
            state = formats.read(part.path / name, form.unpacked[name])
            states.check(sample, state)
            states.check_range(state)
        except Unfit as error:
            raise Unfit(f"{name}: {error}") from error


def examine_files(part: ForkPart, size: int) -> None:
    """Makes sure that a part has steps, plain files alone, and is not too large.

    Raises:
        Unfit: Something is amiss.
        OSError: The part cannot be read.
    """
    if part.steps == 0:
        raise Unfit("no steps")
    total = sum((part.path / name).stat().st_size for name in _files(part.path))
    if total > size:
        raise Unfit(f"too large: {total} bytes, at most {size}")


def _noted(fork: int, path: Path) -> ForkPart | LeftOut:
    note = _json(path / PART_FILE)
    steps = note.get("steps")
    check = note.get("check")
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps <= _MOST_STEPS:
        return LeftOut(fork, 0, f"{PART_FILE} cannot be read, or does not say its steps")
    if isinstance(check, bool) or not isinstance(check, (int, float)) or not math.isfinite(check):
        check = None
    return ForkPart(fork, steps, None if check is None else float(check), path)


def _json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty if that cannot be read."""
    try:
        with open(path, "rb", opener=_plain) as file:
            content = file.read(_LARGEST_NOTE + 1)
        value = json.loads(content) if len(content) <= _LARGEST_NOTE else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _plain(path: str, flags: int) -> int:
    # A pipe would otherwise keep the reader waiting for a writer.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _files(path: Path) -> list[str]:
    """The files of a part, but for its note, in order.

    Raises:
        Unfit: There is something else than plain files and directories, or too many of them.
        OSError: The directory cannot be read.
    """
    if path.is_symlink():
        raise Unfit("it is a link")
    names: list[str] = []
    folders = [(path, "", 0)]
    while folders:
        folder, prefix, depth = folders.pop()
        for entry in os.scandir(folder):
            name = prefix + entry.name
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and depth < _DEEPEST:
                folders.append((folder / entry.name, f"{name}/", depth + 1))
            elif stat.S_ISREG(mode):
                names.append(name)
            else:
                raise Unfit(f"{name[:200]} is neither a plain file nor a directory")
            if len(names) + len(folders) > _MOST_FILES:
                raise Unfit(f"more than {_MOST_FILES} files")
    return sorted(name for name in names if name != PART_FILE)
