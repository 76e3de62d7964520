"""The directory that files are fetched to: nothing outside of it is touched, no link followed.

Files are written aside, below `_ASIDE`, and appear under their names once they are whole. A file
that was interrupted stays there, so that it can be gone on with.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

from eva_wire.text.escapes import visible
from eva_wire.values.errors import EvaError

_ASIDE = ".eva-get"
"""Directory of files that are not whole yet."""
_LONGEST_NAME = 255
_LONGEST_PATH = 4_096
_DEEPEST = 128
_MILLISECOND = 1_000_000
_SAME = 1 << 20
"""Bytes at the end of an interrupted file that are fetched again."""
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _NO_LINK
_COMPARED = 1 << 20


class UnusableName(EvaError):
    """A file has a name that it cannot have on this machine."""


class InTheWay(EvaError):
    """Something else has the name of a file that is to be written."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A file as it is to be.

    Attributes:
        path: Below the directory.
        size: In bytes.
        modified_ms: When the cluster stored it.
        identity: Tells its content apart from every other content.
    """

    path: str
    size: int
    modified_ms: int
    identity: str

    @property
    def stamp_ns(self) -> int:
        """Time of modification that a fetched file has: it tells versions of one time apart."""
        return self.modified_ms * _MILLISECOND + int(_short(self.identity), 16) % _MILLISECOND

    @property
    def aside(self) -> str:
        """Name of the part that has been fetched."""
        return f"{_short(self.path)}-{_short(f'{self.identity} {self.size}')}"


class Present(Enum):
    """Contents of a directory under the name of a file."""

    NOTHING = "nothing"
    FETCHED = "fetched"
    """The file, fetched before."""
    ALIKE = "alike"
    """A file of the same size."""
    OTHER = "other"
    """A file with another content, or a link."""


class Destination:
    """A directory of this machine. Any thread may write files; each file has one thread.

    Args:
        root: The directory, which is made if it is absent; a link to one will do.

    Raises:
        EvaError: The path cannot be a directory, or another command fetches files to it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: list[Path] = []
        """Directories above and at the root that were made, the topmost first."""
        self._below: list[str] = []
        try:
            self._make(root)
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileExistsError, NotADirectoryError) as error:
            raise EvaError(
                f"{root} is not a directory, or something above it is a file",
                hint="name another one with --to",
            ) from error
        try:
            self._aside = self._opened_aside()
        except BaseException:
            os.close(self._root)
            self._clear()
            raise
        umask = os.umask(0)
        os.umask(umask)
        self._mode = 0o666 & ~umask

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # Parts are kept there.
            os.rmdir(_ASIDE, dir_fd=self._root)
        os.close(self._aside)
        for path in reversed(self._below):
            with suppress(OSError):
                os.rmdir(path, dir_fd=self._root)
        os.close(self._root)
        self._clear()

    def _make(self, path: Path) -> None:
        if path.is_dir():
            return
        if path.parent != path:
            self._make(path.parent)
        path.mkdir()
        self._made.append(path)

    def _clear(self) -> None:
        """Remove the directories that were made, as far as they are empty."""
        for path in reversed(self._made):
            with suppress(OSError):
                path.rmdir()

    def _opened_aside(self) -> int:
        with suppress(FileExistsError):
            os.mkdir(_ASIDE, 0o700, dir_fd=self._root)
        try:
            aside = os.open(_ASIDE, _DIRECTORY, dir_fd=self._root)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise InTheWay(
                f"{self.root / _ASIDE} is not a directory",
                hint="move it away, or name another --to",
            ) from error
        try:
            fcntl.flock(aside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(aside)
            raise EvaError(
                f"another command fetches files to {self.root} at this moment",
                hint="wait for it, or name another directory with --to",
            ) from error
        return aside

    def room(self) -> int:
        """Bytes that its disk has left for this user."""
        disk = os.fstatvfs(self._root)
        return disk.f_bavail * disk.f_frsize

    def present(self, goal: Goal) -> Present:
        """State of the name of a file.

        Raises:
            InTheWay: A directory has the name, or something above it is none.
        """
        try:
            with self._parent(goal.path) as (directory, name):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return Present.NOTHING
        if stat.S_ISDIR(status.st_mode):
            raise _in_the_way(self.root, goal.path, "a directory")
        if not stat.S_ISREG(status.st_mode) or status.st_size != goal.size:
            return Present.OTHER
        return Present.FETCHED if status.st_mtime_ns == goal.stamp_ns else Present.ALIKE

    def kept(self, goal: Goal, *, sure: bool = False) -> int:
        """Bytes of a file that an interrupted call has left.

        Args:
            goal: The file.
            sure: Whether this command wrote them; otherwise this machine may have crashed since,
                and the last ones do not count.
        """
        try:
            size = os.stat(goal.aside, dir_fd=self._aside, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0
        return 0 if size > goal.size else size if sure else max(0, size - _SAME)

    def open(self, goal: Goal, kept: int) -> PartialFile:
        """Begin a file, or go on with so many bytes of it."""
        flags = os.O_RDWR | os.O_CREAT | _NO_LINK
        descriptor = os.open(goal.aside, flags, 0o600, dir_fd=self._aside)
        os.truncate(descriptor, kept)
        return PartialFile(descriptor, kept)

    def finish(self, goal: Goal, part: PartialFile, *, replace: bool) -> bool:
        """Give a whole file its name.

        Args:
            goal: The file.
            part: All of its content; it is closed.
            replace: Whether another file of the name, or a link, is replaced.

        Returns:
            Whether the name was free, or its file was replaced, or has the same content.

        Raises:
            InTheWay: A directory has the name, or something above it is none.
        """
        os.fchmod(part.descriptor, self._mode)
        os.utime(part.descriptor, ns=(goal.stamp_ns, goal.stamp_ns))
        with self._parent(goal.path, make=True) as (directory, name):
            try:
                if replace:
                    os.replace(goal.aside, name, src_dir_fd=self._aside, dst_dir_fd=directory)
                else:
                    self._place(goal.aside, name, directory)
            except IsADirectoryError as error:
                raise _in_the_way(self.root, goal.path, "a directory") from error
            except FileExistsError:
                same = _has(directory, name, part.descriptor)
                os.unlink(goal.aside, dir_fd=self._aside)
                return same
            finally:
                part.close()
        return True

    def _place(self, aside: str, name: str, directory: int) -> None:
        """Give a file a name that nothing has; raises `FileExistsError`."""
        try:
            os.link(aside, name, src_dir_fd=self._aside, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            # The disk knows no second names. No other command fetches files to this directory.
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
            os.rename(aside, name, src_dir_fd=self._aside, dst_dir_fd=directory)
        else:
            os.unlink(aside, dir_fd=self._aside)

    def remove(self, path: str) -> None:
        """Remove a file that was fetched."""
        with suppress(FileNotFoundError), self._parent(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def discard(self, goals: Iterable[Goal]) -> None:
        """Remove what there is of files that are not whole, and of their earlier versions."""
        own = {_short(goal.path) for goal in goals}
        with os.scandir(self._aside) as parts:
            for part in list(parts):
                if part.name.partition("-")[0] in own:
                    os.unlink(part.name, dir_fd=self._aside)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that a file is in, opened from the root name by name, and its own name.

        Raises:
            FileNotFoundError: The directory is absent, and not to be made.
            InTheWay: A link or a file is in its place.
        """
        *above, name = path.split("/")
        directory = os.dup(self._root)
        try:
            for depth, step in enumerate(above):
                inner = self._step(directory, step, "/".join(above[: depth + 1]), make=make)
                os.close(directory)
                directory = inner
            yield directory, name
        finally:
            os.close(directory)

    def _step(self, directory: int, name: str, path: str, *, make: bool) -> int:
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=directory)
                    self._below.append(path)
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise _in_the_way(self.root, path, "a link or a file") from error


class PartialFile:
    """The bytes of a file so far.

    Attributes:
        descriptor: The open file.
        size: Bytes that it has.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, data: bytes) -> None:
        """Write bytes at its end."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.descriptor, view, self.size)
            self.size += written
            view = view[written:]

    def close(self) -> None:
        """Close the file; twice is once."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def require_usable(path: str) -> None:
    """Check a path from a listing, which may be anyone's; raises `UnusableName`."""
    names = path.split("/")
    for name in names:
        if name in ("", ".", "..") or "\0" in name or len(_encoded(name)) > _LONGEST_NAME:
            raise UnusableName(
                f"the cluster lists a file named {visible(path[:300])}, which is no name of a file"
                " below a directory",
                hint="nothing was fetched; name a directory without that file",
            )
    if names[0] == _ASIDE or len(names) > _DEEPEST or len(_encoded(path)) > _LONGEST_PATH:
        raise UnusableName(
            f"the file {visible(path[:300])} cannot have that name here",
            hint=f"nothing was fetched; {_ASIDE} is Eva's own directory, and paths have at most "
            f"{_LONGEST_PATH:,} bytes",
        )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _short(text: str) -> str:
    return hashlib.sha256(_encoded(text)).hexdigest()[:20]


def _has(directory: int, name: str, content: int) -> bool:
    """Whether a regular file has the content of another one."""
    try:
        other = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=directory)
    except OSError:
        return False
    try:
        status = os.fstat(other)
        size = os.fstat(content).st_size
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        return all(
            os.pread(other, _COMPARED, at) == os.pread(content, _COMPARED, at)
            for at in range(0, size, _COMPARED)
        )
    finally:
        os.close(other)


def _in_the_way(root: Path, path: str, what: str) -> InTheWay:
    return InTheWay(
        f"{visible(str(root / path))} is {what}", hint="move it away, or name another --to"
    )
