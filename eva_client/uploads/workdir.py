"""Describes a working directory as content-addressed files, which the client uploads."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypedDict, TypeVar

from eva_client.uploads.ignore import IgnoreRules
from eva_wire.text.unreadable import why_unreadable
from eva_wire.values.errors import InvalidJob

NEVER_NEEDED = (".git/",)
SECRETS = (
    *(".env", ".env.*", "!.env.example"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
)
MADE_ANEW = (".venv/", "__pycache__/", ".mypy_cache/", ".ruff_cache/", ".pytest_cache/")
LEFT_OUT = (*NEVER_NEEDED, *SECRETS, *MADE_ANEW)
"""Rules before the first line of an ignore file, which may take them back."""
IGNORE_FILE = ".evaignore"
"""File at the root of a working directory that lists what not to upload, as ``.gitignore`` does."""
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_SEARCHED = 1 << 16
"""Bytes at the beginning of a file that are searched for a private key."""
_MOST_TOLD = 20
_T = TypeVar("_T")


class FileEntry(TypedDict):
    """A file in a manifest; `path` is relative with forward slashes, `mode` the permissions."""

    path: str
    mode: int
    sha256: str
    size: int


class Ignored(Protocol):
    """Decides which files are not uploaded."""

    def decision(self, path: str) -> bool | None:
        """Whether to leave out a file, or a directory (which ends with a slash) and all in it.

        `None` if no rule says anything of it.
        """
        ...

    def by_default(self, path: str) -> bool:
        """Whether a rule decides that nobody wrote down."""
        ...


class LeftOut(NamedTuple):
    """A file or directory that rules leave out that nobody wrote down, or a private key.

    Attributes:
        path: Relative; that of a directory ends with a slash.
        size: Bytes of the file, or of all files in the directory.
    """

    path: str
    size: int


class Scanned(NamedTuple):
    """A directory tree as it is to be uploaded.

    Attributes:
        manifest: Canonical JSON.
        digest: That of the manifest.
        sources: A file for each digest in it.
        sizes: Bytes of the content of each digest.
        left_out: Files that Eva leaves out by itself.
    """

    manifest: bytes
    digest: str
    sources: dict[str, Path]
    sizes: dict[str, int]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(slots=True)
class _Walk:
    """Findings so far below a root.

    Attributes:
        root: The root, without links.
        ignored: Rules for files to leave out.
        problems: Files that cannot be uploaded, in words.
    """

    root: Path
    ignored: Ignored
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def scan_directory(path: Path, ignored: Ignored | None = None) -> Scanned:
    """Describe a directory tree; the same tree gives the same bytes on every machine.

    Symbolic links are followed, as long as they stay in the tree. Empty directories are left out,
    and so are files that hold a private key, unless a rule includes them.

    Args:
        path: The root of the tree.
        ignored: Rules for files to leave out; by default those of `IGNORE_FILE`.

    Raises:
        InvalidJob: The tree cannot be uploaded as it is; names all that is wrong.
    """
    try:
        root = _resolved(path)
    except _Refused as error:
        raise InvalidJob(str(error)) from error
    if not root.is_dir():
        raise InvalidJob(f"{path} is not a directory")
    walk = _Walk(root, ignored or ignore_rules(root))
    entries: list[FileEntry] = []
    sources: dict[str, Path] = {}
    for relative, source, wanted in _files(walk, root, "", (root,)):
        entry = _told(walk, partial(_entry, relative, source))
        if entry is None:
            continue
        if not wanted and _holds_private_key(source):
            walk.left_out.append(LeftOut(relative, entry["size"]))
            continue
        entries.append(entry)
        sources.setdefault(entry["sha256"], source)
    if walk.problems:
        raise _refusal(walk.problems)
    entries.sort(key=lambda entry: entry["path"])
    manifest = json.dumps(
        {"files": entries}, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    ).encode()
    sizes = {entry["sha256"]: entry["size"] for entry in entries}
    left_out = tuple(sorted(walk.left_out))
    return Scanned(manifest, hashlib.sha256(manifest).hexdigest(), sources, sizes, left_out)


def ignore_rules(root: Path) -> IgnoreRules:
    """Read the ignore file of a tree, after Eva's own rules; raises `InvalidJob`."""
    try:
        text = (root / IGNORE_FILE).read_bytes()
    except FileNotFoundError:
        text = b""
    except OSError as error:
        raise InvalidJob(f"{root / IGNORE_FILE}: {why_unreadable(error)}") from error
    return IgnoreRules(text, before=LEFT_OUT)


def changed(names: list[str]) -> InvalidJob:
    """Refuse an upload since files were not what they had been when they were listed."""
    return _refusal([f"{name}: it changed while it was uploaded" for name in sorted(names)])


class _Refused(Exception):
    """Why something cannot be uploaded."""


def _refusal(problems: list[str]) -> InvalidJob:
    shown = problems[:_MOST_TOLD]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown):,} more")
    them = "it" if len(problems) == 1 else "them"
    return InvalidJob("; ".join(shown), hint=f"list {them} in {IGNORE_FILE} to leave {them} out")


def _told(walk: _Walk, step: Callable[[], _T]) -> _T | None:
    """The result of a step; `None` if it was refused, which is noted."""
    try:
        return step()
    except _Refused as error:
        walk.problems.append(str(error))
        return None


def _files(
    walk: _Walk, directory: Path, prefix: str, above: tuple[Path, ...]
) -> Iterator[tuple[str, Path, bool]]:
    """The files below `directory` with their paths in the tree, which start with `prefix`.

    Last comes whether a rule includes the file. `above` are the real directories on the way down,
    so that links cannot lead in circles.
    """
    for child in _told(walk, partial(_children, directory)) or ():
        try:
            is_directory = child.is_dir()
        except OSError:  # A link to itself is only an error if it is not ignored.
            is_directory = False
        relative = f"{prefix}{child.name}/" if is_directory else f"{prefix}{child.name}"
        decision = walk.ignored.decision(relative)
        if decision:
            _note_left_out(walk, relative, Path(child.path))
            continue
        place: Path | None = Path(child.path)
        if child.is_symlink():
            place = _told(walk, partial(_within, walk.root, Path(child.path)))
        if place is None:
            continue
        if not is_directory:
            yield relative, place, decision is False
        elif place in above:
            walk.problems.append(f"{child.path}: this link leads in a circle")
        else:
            yield from _files(walk, place, relative, (*above, place))


def _children(directory: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(directory), key=lambda child: child.name)
    except OSError as error:
        raise _Refused(f"{directory}: {error.strerror or error}") from error


def _note_left_out(walk: _Walk, relative: str, path: Path) -> None:
    """Note what Eva leaves out by itself; what users list themselves is no news to them."""
    if not walk.ignored.by_default(relative) or f"{path.name}/" in NEVER_NEEDED:
        return
    if not relative.endswith("/"):
        walk.left_out.append(LeftOut(relative, path.lstat().st_size))
        return
    size = 0
    for parent, _, names in os.walk(path):
        size += sum(_size(Path(parent, name)) for name in names)
    walk.left_out.append(LeftOut(relative, size))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _holds_private_key(path: Path) -> bool:
    with path.open("rb") as file:
        return _PRIVATE_KEY.search(file.read(_SEARCHED)) is not None


def _within(root: Path, link: Path) -> Path:
    target = _resolved(link)
    if not target.is_relative_to(root):
        raise _Refused(f"{link}: this link leaves the working directory, to {target}")
    return target


def _resolved(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError as error:
        what = "leads to nothing" if path.is_symlink() else "not found"
        raise _Refused(f"{path}: {what}") from error
    except OSError as error:
        reason = "this link leads in a circle" if error.errno == errno.ELOOP else error.strerror
        raise _Refused(f"{path}: {reason or error}") from error


def _entry(relative: str, source: Path) -> FileEntry:
    try:
        relative.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
        raise _Refused(f"{shown}: the name is not UTF-8") from error
    try:
        # Opening a named pipe could block for ever.
        mode = source.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _Refused(f"{source}: neither a file nor a directory")
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise _Refused(f"{source}: {error.strerror or error}") from error
    return {"path": relative, "mode": stat.S_IMODE(mode) & 0o777, "sha256": digest, "size": size}
