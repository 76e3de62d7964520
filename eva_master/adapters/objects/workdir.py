"""Describes a working directory as content-addressed files, which the client uploads."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypedDict

from eva_master.adapters.objects.ignore import IgnoreRules
from eva_master.adapters.text.unreadable import why_unreadable
from eva_master.model.errors import InvalidJob

NEVER_NEEDED = (".git/",)
IGNORE_FILE = ".evaignore"
"""File at the root of a working directory that lists what not to upload, as ``.gitignore`` does."""


class FileEntry(TypedDict):
    """A file in a manifest; `path` is relative with forward slashes, `mode` the permissions."""

    path: str
    mode: int
    sha256: str
    size: int


class Ignored(Protocol):
    """Decides which files are not uploaded."""

    def match(self, path: str) -> bool:
        """Whether to leave out a file, or a directory (which ends with a slash) and all in it."""
        ...


def scan_directory(
    path: Path, ignored: Ignored | None = None
) -> tuple[bytes, str, dict[str, Path]]:
    """Describe a directory tree; the same tree gives the same bytes on every machine.

    Symbolic links are followed, as long as they stay in the tree. Empty directories are left out.

    Args:
        path: The root of the tree.
        ignored: What to leave out; as `IGNORE_FILE` says if not given.

    Returns:
        The manifest (canonical JSON), its digest, and a file for each digest in it.

    Raises:
        InvalidJob: The tree cannot be uploaded as it is.
    """
    root = _resolved(path)
    if not root.is_dir():
        raise InvalidJob(f"{path} is not a directory")
    entries: list[FileEntry] = []
    sources: dict[str, Path] = {}
    ignored = ignored or ignore_rules(root)
    for relative, source in _files(root, root, "", ignored, (root,)):
        entry = _entry(relative, source)
        entries.append(entry)
        sources.setdefault(entry["sha256"], source)
    entries.sort(key=lambda entry: entry["path"])
    manifest = json.dumps(
        {"files": entries}, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    ).encode()
    return manifest, hashlib.sha256(manifest).hexdigest(), sources


def ignore_rules(root: Path) -> IgnoreRules:
    """Read the ignore file of a tree; raises `InvalidJob`."""
    try:
        lines = (root / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidJob(f"{root / IGNORE_FILE}: {why_unreadable(error)}") from error
    try:
        return IgnoreRules([*NEVER_NEEDED, *lines])
    except ValueError as error:
        raise InvalidJob(f"{root / IGNORE_FILE}: {error}") from error


def _files(
    root: Path, directory: Path, prefix: str, ignored: Ignored, above: tuple[Path, ...]
) -> Iterator[tuple[str, Path]]:
    """The files below `directory` with their paths in the tree, which start with `prefix`.

    `above` are the real directories on the way down, so that links cannot lead in circles.
    """
    try:
        children = sorted(os.scandir(directory), key=lambda child: child.name)
    except OSError as error:
        raise _refused(directory, error.strerror or str(error)) from error
    for child in children:
        try:
            is_directory = child.is_dir()
        except OSError:  # A link to itself is only an error if it is not ignored.
            is_directory = False
        relative = f"{prefix}{child.name}/" if is_directory else f"{prefix}{child.name}"
        if ignored.match(relative):
            continue
        place = _within(root, Path(child.path)) if child.is_symlink() else Path(child.path)
        if not is_directory:
            yield relative, place
        elif place in above:
            raise _refused(Path(child.path), "this link leads in a circle")
        else:
            yield from _files(root, place, relative, ignored, (*above, place))


def _within(root: Path, link: Path) -> Path:
    target = _resolved(link)
    if not target.is_relative_to(root):
        raise _refused(link, f"this link leaves the working directory, to {target}")
    return target


def _resolved(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError as error:
        raise _refused(path, "leads to nothing" if path.is_symlink() else "not found") from error
    except OSError as error:
        reason = "this link leads in a circle" if error.errno == errno.ELOOP else error.strerror
        raise _refused(path, reason or str(error)) from error


def _entry(relative: str, source: Path) -> FileEntry:
    try:
        relative.encode()
    except UnicodeEncodeError as error:
        raise InvalidJob(f"{relative!r}: the name is not UTF-8") from error
    try:
        # Opening a named pipe could block for ever.
        mode = source.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _refused(source, "neither a file nor a directory")
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise _refused(source, error.strerror or str(error)) from error
    return {"path": relative, "mode": stat.S_IMODE(mode) & 0o777, "sha256": digest, "size": size}


def _refused(path: Path, reason: str) -> InvalidJob:
    return InvalidJob(f"{path}: {reason}", hint=f"list it in {IGNORE_FILE} to leave it out")
