"""Contents of a copy of plain files: read from the directory, and a document in the store."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eva_worker.errors import BadOrder
from eva_worker.files.beneath import Directory, Listing, relative
from eva_worker.files.checkpoints import generation_of
from eva_worker.files.download import FileEntry, read_manifest
from eva_worker.orders import MOST_STEPS

_DRAFT = re.compile(r"\.tmp-(?:[0-9]+-[0-9a-f]{32}|restore-.*)", re.DOTALL)
"""Names of generations that the SDK writes or removes, and that the agent restores."""
_LONGEST_TARGET = 4_095
_MOST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a copy.

    Attributes:
        files: Path, mode, digest and size of each file.
        directories: The mode of each directory, by its path.
        links: The target of each symbolic link, by its path; all lead to paths inside.
        times: When files and directories were changed last, in nanoseconds, by their paths.
        steps: How many steps the program had made when the files were changed last.
    """

    files: list[FileEntry] = field(default_factory=list)
    directories: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    steps: int = 0

    @property
    def any(self) -> bool:
        """Whether it holds anything at all."""
        return bool(self.files or self.directories or self.links)

    @property
    def paths(self) -> list[str]:
        """The paths of all that it holds."""
        return [*(entry.path for entry in self.files), *self.directories, *self.links]

    @property
    def digests(self) -> set[str]:
        """The digests of all files."""
        return {entry.sha256 for entry in self.files}


def listed(directory: Directory) -> Listing:
    """The plain files in ``$EVA_CHECKPOINT_DIR``; blocks.

    Raises:
        UnstorableFile: The tree is too large or too deep.
    """
    return directory.listing(_is_of_the_sdk)


def _is_of_the_sdk(name: str, mode: int) -> bool:
    if not stat.S_ISDIR(mode):
        return False
    return generation_of(name) is not None or _DRAFT.fullmatch(name) is not None


def state_of(listing: Listing) -> str:
    """A digest of all names, sizes, modes and times: another one after any change."""
    seen = (
        [
            (
                file.path,
                file.status.st_size,
                file.status.st_mtime_ns,
                file.status.st_mode,
                file.status.st_ino,
            )
            for file in listing.files
        ],
        [(directory.path, directory.status.st_mode) for directory in listing.directories],
        sorted(listing.links.items()),
    )
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


EMPTY = state_of(Listing())
"""The state of a directory without plain files."""


def inside(path: str, target: str, roots: Sequence[str] = ()) -> str | None:
    """The relative target of a link that leads to a path in its tree, `None` for another one.

    Args:
        path: The link's, relative to the tree.
        target: Target of the link.
        roots: The absolute paths that the tree may have for the program.
    """
    above = posixpath.dirname(path)
    if posixpath.isabs(target):
        whole = f"{posixpath.normpath(target)}/"
        root = next((top for top in roots if whole.startswith(f"{top}/")), None)
        if root is None:
            return None
        below = posixpath.normpath(whole.removeprefix(f"{root}/") or ".")
        target = posixpath.relpath(below, above or ".")
    else:
        below = posixpath.normpath(posixpath.join(above, target))
    if below == ".." or below.startswith("../"):
        return None
    return target if 0 < len(os.fsencode(target)) <= _LONGEST_TARGET else None


def document(contents: Contents) -> bytes:
    """The list of a copy."""
    files = [
        {"mode": file.mode, "path": file.path, "sha256": file.sha256, "size": file.size}
        for file in sorted(contents.files, key=lambda file: file.path)
    ]
    values = {
        "files": files,
        "directories": contents.directories,
        "links": contents.links,
        "times": contents.times,
        "steps": contents.steps,
    }
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def read(data: bytes) -> Contents:
    """Read the list of a copy.

    Raises:
        BadOrder: The data is no list, too long, or a path in it leaves the directory.
    """
    files = read_manifest(data)
    values = json.loads(data)
    try:
        directories = {path: int(mode) & 0o777 for path, mode in _map(values, "directories")}
        times = {path: int(ns) for path, ns in _map(values, "times") if 0 <= ns <= _MOST_NS}
        links = {path: str(target) for path, target in _map(values, "links")}
        steps = values.get("steps", 0)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise BadOrder(f"not a list of plain files: {error!r}"[:500]) from error
    for path in (*directories, *links):
        if not relative(path) or "\0" in path:
            raise BadOrder(f"outside its directory: {path[:200]!r}")
    for path, target in links.items():
        if "\0" in target or posixpath.isabs(target) or inside(path, target) is None:
            raise BadOrder(f"a link that leaves its directory: {path[:200]!r}")
    valid = type(steps) is int and 0 <= steps <= MOST_STEPS
    return Contents(files, directories, links, times, steps if valid else 0)


def _map(values: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return list(values.get(name, {}).items())
