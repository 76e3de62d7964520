"""Judges the lists of files that users upload, before a job may name one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath
from typing import Any

from eva_master.adapters.objects.blobs import blob_key
from eva_master.ports import ObjectStore
from eva_wire.values.errors import InvalidJob

# Agents check the same of all lists that they read (eva_worker/files/download.py).
_MOST_BYTES = 64 << 20
_MOST_FILES = 300_000
_MOST_SIZE = 1 << 50
"""Bytes of all files of a list together."""
_LONGEST_PATH, _LONGEST_NAME, _DEEPEST = 4_096, 255, 64
_VALUES_OF_A_FILE = 6
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REMEMBERED = 1_000
_SHOWN = 200


class FileLists:
    """The file lists of one store. Only the asyncio thread uses it.

    Args:
        store: Where they are.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._good: dict[str, None] = {}

    async def check(self, name: str, what: str) -> None:
        """Refuse a list that no command of Eva's would have made.

        Args:
            name: The blob's name, which is there; see `reference`.
            what: Contents of the list, for messages.

        Raises:
            InvalidJob: With the first thing that is wrong, and in which file.
        """
        if name in self._good:
            return
        key = blob_key(name)
        size = await self._store.size(key)
        if size is None or size > _MOST_BYTES:
            raise _refusal(what, f"it has more than {_MOST_BYTES >> 20} MiB")
        data = await self._store.get(key)
        if problem := await asyncio.to_thread(_problem, data):
            raise _refusal(what, problem)
        self._good[name] = None
        if len(self._good) > _REMEMBERED:
            del self._good[next(iter(self._good))]


def _refusal(what: str, problem: str) -> InvalidJob:
    return InvalidJob(
        f"the list of files of the {what} cannot be used: {problem}",
        hint="submit the job with a command of this version, which makes the list anew",
    )


def _problem(data: bytes) -> str:
    """Fault of a list; empty for none."""
    if sum(map(data.count, (b"{", b"[", b","))) > _VALUES_OF_A_FILE * _MOST_FILES:
        return f"it has more than {_MOST_FILES:,} files"
    try:
        files = json.loads(data, parse_constant=_refused)["files"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "it is not a JSON document with a list `files`"
    if not isinstance(files, list):
        return "`files` is not a list"
    paths: set[str] = set()
    total = 0
    for entry in files:
        if problem := _problem_of(entry):
            return problem
        if entry["path"] in paths:
            return f"the path {_shown(entry['path'])} is in it twice"
        paths.add(entry["path"])
        total += entry["size"]
        if total > _MOST_SIZE:
            return f"its files have more than {_MOST_SIZE >> 40:,} TiB together"
    return _nested(paths)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _problem_of(entry: Any) -> str:
    if not isinstance(entry, dict):
        return "an entry of it is not an object with path, mode, sha256 and size"
    path, mode, size = entry.get("path"), entry.get("mode"), entry.get("size")
    if not isinstance(path, str):
        return f"the path {_shown(path)} is not text"
    if problem := _problem_of_path(path):
        return f"the path {_shown(path)} {problem}"
    if type(mode) is not int or not 0 <= mode <= 0o777:
        return f"the mode of {_shown(path)} is {_shown(mode)}: an integer from 0 to 511 (0o777)"
    if type(size) is not int or not 0 <= size <= _MOST_SIZE:
        return f"the size of {_shown(path)} is {_shown(size)}: an integer from 0 to 2^50"
    digest = entry.get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        return f"the sha256 of {_shown(path)} is {_shown(digest)}: 64 hexadecimal digits"
    return ""


def _problem_of_path(path: str) -> str:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not Unicode text: it has half of a surrogate pair"
    names = path.split("/")
    if "\0" in path or path != "/".join(PurePosixPath(path).parts) or {"..", ""} & {*names}:
        return "does not name a file below the directory, in the plainest way"
    if len(encoded) > _LONGEST_PATH or any(len(name.encode()) > _LONGEST_NAME for name in names):
        return f"is longer than {_LONGEST_PATH:,} bytes, or a name in it than {_LONGEST_NAME}"
    if len(names) > _DEEPEST:
        return f"has more than {_DEEPEST} names"
    return ""


def _nested(paths: AbstractSet[str]) -> str:
    """A file that is also the directory of another one; `paths` is the set of all."""
    for path in paths:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in paths:
                return f"{_shown(above)} is a file, and the directory of {_shown(path)}"
    return ""


def _shown(value: object) -> str:
    """A value as messages show it: short, and of characters that every text may have."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 1 << 70 else "too large"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
