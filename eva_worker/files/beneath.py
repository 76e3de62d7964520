"""Opens what tasks can change, below a directory descriptor, without following any link.

A task may replace its directories and files by links, FIFOs or devices at any moment, also between
a check and a use. So a file is opened once, below a descriptor of a directory that the task cannot
replace, and from then on only its descriptor counts. The kernel refuses links and ways out
(``openat2``); where it cannot, each component is opened by itself with ``O_NOFOLLOW``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from eva_worker.descriptors import Descriptor
from eva_worker.errors import Missing, UnstorableFile

MOST_ENTRIES = 100_000
"""Files and directories of one tree that are stored."""
MOST_DEPTH = 64
"""Directories above one another in a tree that is stored."""
_MOST_PATHS = 32 << 20
"""Characters of all paths of such a tree together: that of one file may have 16,000."""
_UNREADABLE = "cannot be read"
_MOST_HOLES = 1 << 30
_LEAST_FILLED = 4
_SYS_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RACES = 64
"""Times that an open is repeated because something was renamed meanwhile."""
CHANGED = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EXDEV,
    errno.ENXIO,
    errno.EAGAIN,
    errno.ESTALE,
}
"""Errors which say that there is no such file any more, or that a link is in its place."""

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(directory: int, path: str, flags: int, *, links: bool = False) -> int:
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_RACES):
        descriptor = _libc.syscall(
            _SYS_OPENAT2,
            directory,
            os.fsencode(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        if ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def _by_component(directory: int, path: str, flags: int) -> int:
    *parents, last = path.split("/")
    at = directory
    try:
        for name in parents:
            below = os.open(
                name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            if at != directory:
                os.close(at)
            at = below
        descriptor = os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        if at != directory:
            os.close(at)
    # With O_PATH, a link itself would be opened.
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return descriptor


def kernel_resolves() -> bool:
    """Whether the kernel itself refuses links and ways out of a directory (``openat2``)."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(root, "proc", os.O_PATH))
    except OSError:  # An old kernel, or a filter of system calls.
        return False
    finally:
        os.close(root)
    return True


_open = _openat2 if kernel_resolves() else _by_component


def open_inside(directory: int, path: str) -> int:
    """Open something below a directory for its status (``O_PATH``), following links inside.

    Links that lead out of the directory are refused (``EXDEV``, ``ELOOP``). A kernel without
    ``openat2`` refuses all.
    """
    if path == ".":
        return os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    if _open is _openat2:
        return _openat2(directory, check(path), os.O_PATH, links=True)
    return _open(directory, check(path), os.O_PATH)


def check(path: str) -> str:
    """Return a relative path if all of its components are names.

    Raises:
        OSError: The path is absolute, leads upwards or is empty.
    """
    if "\0" in path or any(name in {"", ".", ".."} for name in path.split("/")):
        raise OSError(errno.EXDEV, "not a path below a directory", path)
    return path


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file or a directory of a tree, as it was when the tree was listed.

    Attributes:
        path: Relative to the tree, with slashes.
        status: Its size, times and mode.
    """

    path: str
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class Listing:
    """All that is in a tree.

    Attributes:
        files: Its regular files.
        directories: Its directories, without the tree itself.
        links: The target of each symbolic link, by its path; none is followed.
        others: Why something else cannot be stored, by its path.
    """

    files: list[Found] = field(default_factory=list)
    directories: list[Found] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _ListingBudget:
    """How much of a tree may still be listed: entries, and characters of their paths."""

    entries: int
    characters: int

    def take(self, characters: int) -> None:
        self.entries -= 1
        self.characters -= characters
        if self.entries < 0:
            raise UnstorableFile(f"there are more than {MOST_ENTRIES} files")
        if self.characters < 0:
            raise UnstorableFile(f"their paths together have more than {_MOST_PATHS} characters")


class File(Descriptor):
    """An open regular file.

    Args:
        fd: Its descriptor, which this object closes.
        label: Where it was when it was opened, for messages and records.

    Attributes:
        status: Its size, times and mode when it was opened.
    """

    def __init__(self, fd: int, label: str) -> None:
        super().__init__(fd)
        self.label = label
        self.status = os.fstat(fd)

    @classmethod
    def at(cls, path: Path) -> File:
        """Open a file by a path that no task can change; raises `Missing`."""
        try:
            with Directory.at(path.parent) as directory:
                return directory.file(path.name)
        except FileNotFoundError as error:
            raise Missing(f"no such file: {path}") from error

    @property
    def place(self) -> Path:
        """A path of the open file itself, whatever its name leads to by now."""
        return Path(f"/proc/self/fd/{self.fd}")

    def digest(self) -> str:
        """SHA-256 of its content in hex; blocks."""
        with open(self.fd, "rb", closefd=False) as file:
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def require_dense(self) -> None:
        """Refuse a file that is mostly holes: to read and store it costs what it claims to hold.

        Raises:
            UnstorableFile: The file claims to hold much more than it has on the disk.
        """
        size, filled = self.status.st_size, self.status.st_blocks * 512
        if size - filled > _MOST_HOLES and size > _LEAST_FILLED * filled:
            raise UnstorableFile(
                f"it claims {size} bytes and has {filled} on the disk: files with holes of more"
                f" than {_MOST_HOLES >> 30} GiB are not stored"
            )

    def data_at(self, offset: int, length: int) -> tuple[int, bytes]:
        """Read the next data from an offset on; holes are skipped.

        Returns:
            Where the data begin, and at most `length` bytes; none at the end of the file.
        """
        try:
            offset = os.lseek(self.fd, offset, os.SEEK_DATA)
            length = min(length, os.lseek(self.fd, offset, os.SEEK_HOLE) - offset)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Nothing but a hole follows.
                return offset, b""
        return offset, os.pread(self.fd, length, offset)


class Directory(Descriptor):
    """An open directory. Nothing that is done with it leaves it.

    Args:
        fd: Its descriptor, which this object closes.
        label: Name in messages.
    """

    def __init__(self, fd: int, label: str) -> None:
        super().__init__(fd)
        self.label = label

    @classmethod
    def at(cls, path: Path, *, make: bool = False) -> Directory:
        """Open a directory by a path that no task can change.

        Args:
            path: The directory itself may not be a link.
            make: Whether to make it, and those above it, if need be.
        """
        if make:
            path.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return cls(os.open(path, flags), str(path))

    def place(self, name: str) -> Path:
        """A path of an entry for programs that take no descriptor.

        Only its last component can be a link.
        """
        check(name)
        if "/" in name:
            raise OSError(errno.EINVAL, "not a single name", name)
        return Path(f"/proc/self/fd/{self.fd}/{name}")

    def directory(self, path: str, *, make: bool = False) -> Directory:
        """Open a directory below this one; raises `OSError`, also for a link."""
        if make:
            return self._made(path)
        fd = _open(self.fd, check(path), os.O_RDONLY | os.O_DIRECTORY)
        return Directory(fd, f"{self.label}/{path}")

    def _made(self, path: str) -> Directory:
        at = self
        for name in check(path).split("/"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at.fd)
            at = at.directory(name)
        return at

    def file(self, path: str) -> File:
        """Open a regular file below this directory for reading.

        Raises:
            OSError: There is none, or a link, a FIFO, a socket or a device is in its place. The
                latter are not opened, since that may block or have effects.
        """
        return File(self._regular(path, os.O_RDONLY), f"{self.label}/{path}")

    def appended(self, path: str) -> int:
        """Open a regular file below this directory for appending; made if need be."""
        with self._parent(path) as (directory, name):
            with contextlib.suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                return os.open(name, flags | os.O_APPEND, 0o644, dir_fd=directory.fd)
            return directory._regular(name, os.O_RDWR | os.O_APPEND)

    def writable(self, path: str) -> int:
        """Open an existing regular file below this directory for reading and writing."""
        return self._regular(path, os.O_RDWR)

    def created(self, path: str, mode: int) -> int:
        """Replace a file below this directory by an empty one and open it for writing.

        Directories above it are made. A link in its place is removed.
        """
        with self._parent(path, make=True) as (directory, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory.fd)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=directory.fd)
            os.fchmod(fd, mode & 0o777)
            return fd

    @contextlib.contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[Directory, str]]:
        parent, _, name = check(path).rpartition("/")
        if not parent:
            yield self, name
            return
        with self.directory(parent, make=make) as directory:
            yield directory, name

    def _regular(self, path: str, flags: int) -> int:
        seen = _open(self.fd, check(path), os.O_PATH)
        try:
            if not stat.S_ISREG(os.fstat(seen).st_mode):
                raise OSError(errno.ENXIO, "not a regular file", path)
            return os.open(f"/proc/self/fd/{seen}", flags | os.O_CLOEXEC)
        finally:
            os.close(seen)

    def status(self, path: str) -> os.stat_result:
        """The status of what is at a path, opened without an effect; raises `OSError`."""
        seen = _open(self.fd, check(path), os.O_PATH)
        try:
            return os.fstat(seen)
        finally:
            os.close(seen)

    def chmod_socket(self, path: str, mode: int) -> None:
        """Change the mode of a socket; raises `OSError` for anything else, such as a link."""
        seen = _open(self.fd, check(path), os.O_PATH)
        try:
            if not stat.S_ISSOCK(os.fstat(seen).st_mode):
                raise OSError(errno.ENXIO, "not a socket", path)
            os.chmod(f"/proc/self/fd/{seen}", mode)  # noqa: PTH101
        finally:
            os.close(seen)

    def names(self) -> list[str]:
        """The names of its entries, `MOST_ENTRIES` at most."""
        with os.scandir(self.fd) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]

    def files(self) -> list[Found]:
        """The regular files of the tree below, sorted; links and special files are left out.

        Raises:
            UnstorableFile: The tree is too large or too deep, or a directory cannot be read.
        """
        listing = self.listing()
        for path, reason in listing.others.items():
            if reason.startswith(_UNREADABLE):
                raise UnstorableFile(f"{path!r} {reason}")
        return listing.files

    def listing(self, leave_out: Callable[[str, int], bool] = lambda _, __: False) -> Listing:
        """All that is in the tree below, each kind sorted by path.

        Args:
            leave_out: Tells by name and mode what at the top of the tree is not listed.

        Raises:
            UnstorableFile: The tree is too large or too deep.
        """
        listing = Listing()
        self._list("", listing, _ListingBudget(MOST_ENTRIES, _MOST_PATHS), MOST_DEPTH, leave_out)
        listing.files.sort(key=lambda file: file.path)
        listing.directories.sort(key=lambda directory: directory.path)
        return listing

    def _list(
        self,
        prefix: str,
        listing: Listing,
        left: _ListingBudget,
        depth: int,
        leave_out: Callable[[str, int], bool],
    ) -> None:
        if not depth:
            raise UnstorableFile(f"directories below {prefix[:80]!r} are nested too deep")
        with os.scandir(self.fd) as entries:
            for entry in entries:
                left.take(len(prefix) + len(entry.name))
                path = prefix + entry.name
                try:
                    status = os.stat(entry.name, dir_fd=self.fd, follow_symlinks=False)
                    if not prefix and leave_out(entry.name, status.st_mode):
                        continue
                    if stat.S_ISREG(status.st_mode):
                        listing.files.append(Found(path, status))
                    elif stat.S_ISLNK(status.st_mode):
                        listing.links[path] = os.readlink(entry.name, dir_fd=self.fd)
                    elif stat.S_ISDIR(status.st_mode):
                        listing.directories.append(Found(path, status))
                        with self.directory(entry.name) as below:
                            below._list(f"{path}/", listing, left, depth - 1, leave_out)
                    else:
                        listing.others[path] = "is neither a file, a directory nor a link"
                except OSError as error:
                    if error.errno not in CHANGED:
                        listing.others[path] = f"{_UNREADABLE}: {error.strerror}"


def require_own(file: File, directory: Directory) -> None:
    """Refuse a further name of a file that is not the task's own; raises `UnstorableFile`."""
    if file.status.st_nlink > 1 and file.status.st_uid != os.fstat(directory.fd).st_uid:
        raise UnstorableFile("it is a hard link to a file of another user")


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A name in an open directory, which stays open as long as anything may write there."""

    directory: Directory
    name: str

    @property
    def path(self) -> Path:
        """A path of it for programs that take no descriptor."""
        return self.directory.place(self.name)


@contextlib.contextmanager
def vanishing(label: str) -> Iterator[None]:
    """Translate errors of an open: `Missing` if a task took the file away or put a link there.

    Raises:
        Missing: There is no such file any more, or something else is in its place.
        UnstorableFile: The file is there and may not be read.
    """
    try:
        yield
    except OSError as error:
        if error.errno in CHANGED:
            raise Missing(f"no such file: {label}") from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}:
            raise UnstorableFile(f"it cannot be read: {error.strerror}") from error
        raise


def remove_tree(path: Path) -> None:
    """Remove a directory and all below it, however deep; links are removed, not followed.

    Files that cannot be removed stay.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        make_accessible(path)
        with Directory.at(path) as top:
            _empty(top)
        path.rmdir()


def _empty(top: Directory) -> None:
    """Remove all entries. Deep directories are moved up, so that two descriptors are enough."""
    stuck: set[str] = set()
    while names := [name for name in top.names() if name not in stuck]:
        for name in names:
            try:
                _remove_entry(top, name)
            except OSError:
                stuck.add(name)


def _remove_entry(top: Directory, name: str) -> None:
    status = os.stat(name, dir_fd=top.fd, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=top.fd)
        return
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):
            _make_accessible(top, name)
    with top.directory(name) as below:
        while names := below.names():
            for inner in names:
                try:
                    os.unlink(inner, dir_fd=below.fd)
                except (IsADirectoryError, PermissionError):
                    with contextlib.suppress(OSError):
                        _make_accessible(below, inner)
                    os.rename(
                        inner,
                        f".gone-{secrets.token_hex(8)}",
                        src_dir_fd=below.fd,
                        dst_dir_fd=top.fd,
                    )
    os.rmdir(name, dir_fd=top.fd)


def make_accessible(path: Path) -> None:
    """Let this user read and change a directory of its own; raises `OSError`, also for a link."""
    seen = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(seen).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{seen}", stat.S_IRWXU)  # noqa: PTH101
    finally:
        os.close(seen)


def _make_accessible(top: Directory, name: str) -> None:
    seen = _open(top.fd, name, os.O_PATH | os.O_DIRECTORY)
    try:
        os.chmod(f"/proc/self/fd/{seen}", stat.S_IRWXU)  # noqa: PTH101
    finally:
        os.close(seen)


def relative(path: str) -> bool:
    """Whether a path of a file list stays below a directory, and is written in one way only."""
    parts = PurePosixPath(path).parts
    return bool(parts) and path == "/".join(parts) and not {"..", "/", ""} & {*parts}
