"""Brings a task's inputs to its instance, from where the operator allows them to come from.

The master has checked the same when the job was submitted; the agent, which has rights that users
have not, does not rely on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eva_worker.errors import InputRefused, Missing, UnsupportedInput
from eva_worker.files.beneath import CHANGED, MOST_DEPTH, Directory, check, open_inside
from eva_worker.files.room import require_room

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
# The region becomes part of a host's name.
_REGION = re.compile(r"region=[a-z0-9-]{1,40}")
_SETTING = "the operator decides with the master's setting input_roots"
_MOST_COPIED = 2_000_000
"""Files and directories of one input from a directory."""
_COPIERS = 64
"""Inputs that are copied at a time: many, so that a large one holds up no other task."""


class Roots:
    """The places that inputs may come from.

    Args:
        roots: URLs such as ``s3://``, ``s3://bucket/prefix`` and ``file:///data``.
        store: URL of the cluster's object store, which has other users' files: inputs come from it
            only if a root itself lies in it.
    """

    def __init__(self, roots: Collection[str], store: str) -> None:
        self._roots = [place for root in roots if (place := _known(root))]
        self._store = _known(store)
        self._shown = ", ".join(roots) or "nowhere"
        self._options = {*urlsplit(store).query.split("&")}

    def place(self, url: str) -> tuple[_Place, _Place]:
        """The root that allows an input, and the place of the input.

        Raises:
            UnsupportedInput: The text is no URL of a kind that inputs can have.
            InputRefused: The operator does not allow it.
        """
        wanted = _Place.of(url, f"input {url[:200]}")
        if wanted.scheme == "s3" and not wanted.bucket:
            raise UnsupportedInput(f"input {url}: it names no bucket")
        self._check_options(url)
        for root in self._roots:
            if root.covers(wanted) and self._is_public(root, wanted):
                return root, wanted
        raise InputRefused(
            f"inputs are not allowed from {url[:200]}, only from {self._shown}; {_SETTING}"
        )

    def _is_public(self, root: _Place, wanted: _Place) -> bool:
        """Whether a place does not touch the object store, or its root means a part of that."""
        store = self._store
        if store is None or store.covers(root):
            return True
        return not (store.covers(wanted) or wanted.covers(store))

    def _check_options(self, url: str) -> None:
        """Refuse options that would send this instance's credentials elsewhere."""
        query = urlsplit(url).query
        for option in query.split("&") if query else ():
            if not _REGION.fullmatch(option) and option not in self._options:
                raise InputRefused(f"input {url[:200]}: only the option region is allowed")


def _known(url: str) -> _Place | None:
    try:
        return _Place.of(url, "")
    except UnsupportedInput:
        return None  # The master refuses such a setting.


class _Place:
    """A scheme, a bucket or nothing, and names below it."""

    def __init__(self, scheme: str, bucket: str, names: tuple[str, ...]) -> None:
        self.scheme, self.bucket, self.names = scheme, bucket, names

    @classmethod
    def of(cls, url: str, what: str) -> _Place:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise UnsupportedInput(f"{what}: {error}") from error
        scheme, bucket, path = parts.scheme, parts.netloc, unquote(parts.path)
        if not scheme and url.startswith("/"):
            scheme, path = "file", url
        if scheme == "file":
            if bucket not in {"", "localhost"} or not path.startswith("/"):
                raise UnsupportedInput(f"{what}: not the path of a file of the instance")
            bucket = ""
        elif scheme != "s3" or (bucket and not _BUCKET.fullmatch(bucket)):
            raise UnsupportedInput(f"{what}: only s3:// and file:// URLs are supported")
        names = tuple(name for name in path.split("/") if name)
        if parts.fragment or "\0" in path or {".", ".."} & {*names}:
            raise UnsupportedInput(f"{what}: neither '#', '.' nor '..' may be in its path")
        if scheme == "s3" and names and not bucket:
            raise UnsupportedInput(f"{what}: it names no bucket")
        return cls(scheme, bucket, names)

    def covers(self, other: _Place) -> bool:
        """Whether another place is this one or below it."""
        return (
            self.scheme == other.scheme
            and self.bucket in {"", other.bucket}
            and self.names == other.names[: len(self.names)]
        )

    @property
    def path(self) -> Path:
        return Path("/", *self.names)


class Copier:
    """Copies inputs that are files of the instance.

    Args:
        roots: Roots that the operator allows.
        private: Directories that no input may come from, such as the agent's own.
        hidden: Files and directories, such as a master's on this machine, that inputs may come
            from only if a root itself lies there.
    """

    def __init__(
        self, roots: Roots, private: Collection[Path] = (), hidden: Collection[Path] = ()
    ) -> None:
        self._roots = roots
        self._private = [path.resolve() for path in private]
        self._hidden = [path.resolve() for path in hidden]
        self.threads = ThreadPoolExecutor(_COPIERS, thread_name_prefix="inputs")

    def copy(self, url: str, target: Directory, name: str) -> None:
        """Copy a file or a tree, read-only; blocks.

        Links are followed as long as they do not leave the root that allows the input.

        Args:
            url: Of the input.
            target: The directory of the task's inputs.
            name: Name of the copy there.

        Raises:
            UnsupportedInput: The input may not be copied.
            Missing: There is no such file.
            TooLarge, InstanceFailed: The disk has no room for it.
        """
        root, wanted = self._roots.place(url)
        relative = "/".join(wanted.names[len(root.names) :])
        meant = root.path.resolve()
        hidden = [path for path in self._hidden if not meant.is_relative_to(path)]
        try:
            with _root(root.path) as top:
                _Copy(top, url, [*self._private, *hidden]).entry(relative or ".", target, name)
        except OSError as error:
            if error.errno in CHANGED:
                raise Missing(f"no such input: {url}") from error
            raise


@contextlib.contextmanager
def _root(path: Path) -> Iterator[Directory]:
    """Open a root, which the operator has named and which may be a link."""
    with Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(path)) as top:
        yield top


class _Copy:
    """One copy of a file or tree."""

    def __init__(self, top: Directory, url: str, private: Collection[Path]) -> None:
        self._top, self._url, self._private = top, url, private
        self._left = _MOST_COPIED

    def entry(
        self, path: str, target: Directory, name: str, above: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Copy what is at a path below the root to a name in a directory."""
        self._left -= 1
        if self._left < 0:
            raise InputRefused(f"input {self._url}: more than {_MOST_COPIED} files")
        try:
            seen = open_inside(self._top.fd, path)
        except OSError as error:
            if error.errno in {errno.EXDEV, errno.ELOOP}:
                raise InputRefused(
                    f"input {self._url}: {path!r} is a link that leaves the place that is allowed"
                    f" ({self._top.label}); {_SETTING}"
                ) from error
            raise
        try:
            self._refuse_private(Path(f"/proc/self/fd/{seen}").readlink())
            status = os.fstat(seen)
            if stat.S_ISREG(status.st_mode):
                self._file(seen, target, name)
            elif stat.S_ISDIR(status.st_mode):
                me = (status.st_dev, status.st_ino)
                if me in above or len(above) >= MOST_DEPTH:
                    raise InputRefused(f"input {self._url}: {path!r} leads in a circle")
                self._tree(seen, path, target.directory(check(name), make=True), (*above, me))
        finally:
            os.close(seen)

    def _refuse_private(self, real: Path) -> None:
        if any(real.is_relative_to(private) for private in self._private):
            raise InputRefused(f"input {self._url}: files of the worker or of a master are there")

    def _file(self, seen: int, target: Directory, name: str) -> None:
        require_room(target, os.fstat(seen).st_size)
        with (
            open(f"/proc/self/fd/{seen}", "rb") as source,  # noqa: PTH123
            os.fdopen(target.created(name, 0o444), "wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)

    def _tree(
        self, seen: int, path: str, target: Directory, above: tuple[tuple[int, int], ...]
    ) -> None:
        again = os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with target, Directory(again, path) as source, os.scandir(source.fd) as entries:
            for entry in entries:
                below = entry.name if path == "." else f"{path}/{entry.name}"
                self.entry(below, target, entry.name, above)
