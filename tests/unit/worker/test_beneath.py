"""What a task puts in the way of the agent: links, FIFOs, devices, depth, races."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eva_worker.errors import Missing, UnstorableFile
from eva_worker.files import beneath
from eva_worker.files.beneath import Directory, File, remove_tree, vanishing
from eva_worker.files.trash import Trash
from tests.fakes.patience import DEADLINE_S

SECRET = "the host's own"
REFUSED = "symbolic links|Not a directory|cross-device|not a regular file|not a socket"


@pytest.fixture(params=["kernel", "components"], autouse=True)
def resolver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to open: the kernel's own check, and the one for kernels without it."""
    if request.param == "components":
        monkeypatch.setattr(beneath, "_open", beneath._by_component)
    elif not beneath.kernel_resolves():
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory of the host with a secret, outside of the task's."""
    host = tmp_path / "host"
    (host / "deep").mkdir(parents=True)
    (host / "secret").write_text(SECRET)
    (host / "deep" / "secret").write_text(SECRET)
    return host


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "a" / "b").mkdir(parents=True)
    (home / "a" / "b" / "file").write_text("ours")
    return home


def test_files_below_are_opened(home: Path) -> None:
    with Directory.at(home) as directory, directory.file("a/b/file") as file:
        assert os.pread(file.fd, 9, 0) == b"ours"
        assert file.place.read_text() == "ours"
        assert file.status.st_size == 4


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("out", "out"),
        ("out", "out/secret"),
        ("a/out", "a/out/deep/secret"),
        ("a/b/out", "a/b/out"),
    ],
)
@pytest.mark.parametrize("target", ["host", "../host", "host/secret", "/proc/self/root/etc/passwd"])
def test_no_link_is_followed(home: Path, host: Path, link: str, path: str, target: str) -> None:
    leads = {"host": str(host), "host/secret": str(host / "secret")}.get(target, target)
    (home / link).symlink_to(leads)
    with Directory.at(home) as directory:
        for opened in (directory.file, directory.directory, directory.status, directory.writable):
            with pytest.raises(OSError, match=REFUSED):
                opened(path)
        with pytest.raises(OSError, match=REFUSED):
            directory.chmod_socket(path, 0o666)
    assert stat.S_IMODE((host / "secret").stat().st_mode) != 0o666


@pytest.mark.parametrize(
    "path", ["..", "../host/secret", "a/../../host", "/etc/passwd", "", "a//b"]
)
def test_no_path_leads_out(home: Path, host: Path, path: str) -> None:
    with Directory.at(home) as directory, pytest.raises(OSError, match="not a path below"):
        directory.file(path)


def test_a_directory_that_is_a_link_is_not_opened(home: Path, host: Path) -> None:
    (home / "outputs").symlink_to(host)
    with pytest.raises(OSError, match=REFUSED):
        Directory.at(home / "outputs")


def test_special_files_are_not_opened(home: Path) -> None:
    """A FIFO would block the agent for ever, and a device may do anything."""
    os.mkfifo(home / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.fsencode(f"/proc/self/fd/{os.open(home, os.O_PATH)}/sock"))
    with Directory.at(home) as directory:
        for name in ("fifo", "sock", "a"):
            with pytest.raises(OSError, match=REFUSED) as caught:
                directory.file(name)
            assert caught.value.errno == errno.ENXIO
    server.close()


def test_a_tree_has_its_regular_files_only(home: Path, host: Path) -> None:
    (home / "out").symlink_to(host)
    (home / "one").symlink_to(host / "secret")
    os.mkfifo(home / "fifo")
    (home / os.fsdecode(b"\xff\n\x1b[31m")).write_text("odd")
    with Directory.at(home) as directory:
        assert [file.path for file in directory.files()] == [
            "a/b/file",
            os.fsdecode(b"\xff\n\x1b[31m"),
        ]


def test_a_tree_that_is_too_large_or_too_deep_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneath, "MOST_ENTRIES", 100)
    for number in range(101):
        (home / f"f{number}").touch()
    with Directory.at(home) as directory, pytest.raises(UnstorableFile, match="more than 100"):
        directory.files()
    deep = home.parent / "deep"
    nest(deep, beneath.MOST_DEPTH + 1)
    with Directory.at(deep) as directory, pytest.raises(UnstorableFile, match="too deep"):
        directory.files()


def nest(top: Path, depth: int) -> None:
    """Make directories inside each other, deeper than a path can be long."""
    top.mkdir(exist_ok=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_the_deepest_tree_is_removed(home: Path, host: Path) -> None:
    nest(home, 1_500)
    (home / "out").symlink_to(host)
    (home / "a" / "out").symlink_to(host / "deep")
    os.mkfifo(home / "a" / "fifo")
    (home / "a" / "b").chmod(0)
    remove_tree(home)
    assert not home.exists()
    assert (host / "deep" / "secret").read_text() == SECRET


def test_a_link_is_removed_instead_of_what_it_leads_to(home: Path, host: Path) -> None:
    (home / "link").symlink_to(host)
    remove_tree(home / "link")
    assert not (home / "link").is_symlink()
    assert (host / "secret").exists()
    remove_tree(home / "never")


def test_appending_does_not_follow_either(home: Path, host: Path) -> None:
    (home / "log").symlink_to(host / "secret")
    with Directory.at(home) as directory:
        with pytest.raises(OSError, match=REFUSED):
            directory.appended("log")
        (home / "log").unlink()
        os.mkfifo(home / "log")
        with pytest.raises(OSError, match=REFUSED):
            directory.appended("log")
        os.close(directory.appended("new"))
    assert (host / "secret").read_text() == SECRET


def test_a_new_file_replaces_a_link(home: Path, host: Path) -> None:
    (home / "a" / "x").symlink_to(host / "secret")
    with Directory.at(home) as directory:
        with os.fdopen(directory.created("a/x", 0o4755), "w") as file:
            file.write("new")
        (home / "a" / "up").symlink_to(host)
        with pytest.raises(OSError, match=REFUSED):
            directory.created("a/up/x", 0o644)
    assert (home / "a" / "x").read_text() == "new"
    assert stat.S_IMODE((home / "a" / "x").stat().st_mode) == 0o755
    assert (host / "secret").read_text() == SECRET
    assert not (host / "x").exists()


def test_holes_are_not_stored(home: Path) -> None:
    with (home / "giant").open("wb") as file:
        file.truncate(1 << 43)
    with File.at(home / "giant") as file, pytest.raises(UnstorableFile, match="holes"):
        file.require_dense()
    with File.at(home / "a" / "b" / "file") as file:
        file.require_dense()


def test_data_is_found_behind_a_hole(home: Path) -> None:
    with (home / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 40)
        file.write(b"end")
    with File.at(home / "sparse") as file:
        offset, data = file.data_at(0, 1 << 22)
        assert (offset, data[:5]) == (0, b"begin")
        assert len(data) < 1 << 20, "up to the hole"
        assert file.data_at(len(data), 1 << 22) == (1 << 40, b"end")
        assert file.data_at((1 << 40) + 3, 9)[1] == b""


def test_what_has_changed_is_missing_and_what_cannot_be_read_says_so(home: Path) -> None:
    with pytest.raises(Missing), vanishing("x"):
        raise OSError(errno.ELOOP, "")
    with pytest.raises(UnstorableFile, match="cannot be read"), vanishing("x"):
        raise OSError(errno.EACCES, "Permission denied")
    with pytest.raises(OSError, match="input/output"), vanishing("x"):
        raise OSError(errno.EIO, "input/output")


SWAPS: list[Callable[[Path, Path], None]] = [
    lambda place, host: place.symlink_to(host),
    lambda place, host: place.symlink_to(host / "secret"),
    lambda place, host: place.mkdir(),
    lambda place, host: os.mkfifo(place),
    lambda place, host: None,
]


async def test_swaps_at_any_moment_never_reveal_the_host(home: Path, host: Path) -> None:
    """One thread swaps a path between a file, links out, a FIFO and nothing; another reads."""
    place, over = home / "a" / "swapped", threading.Event()

    def swap() -> None:
        number = 0
        while not over.is_set():
            remove_tree(place)
            if number % 2:
                place.mkdir()
                (place / "secret").write_text("ours")
            else:
                SWAPS[number // 2 % len(SWAPS)](place, host)
            number += 1

    thread = threading.Thread(target=swap)
    thread.start()
    read: set[bytes] = set()

    def look() -> None:
        for _ in range(500):
            with Directory.at(home) as directory:
                for path in ("a/swapped/secret", "a/swapped"):
                    try:
                        with directory.file(path) as file:
                            read.add(os.pread(file.fd, 99, 0))
                    except OSError:
                        continue
                try:
                    with directory.directory("a/swapped") as below:
                        for found in below.files():
                            with vanishing("x"), below.file(found.path) as file:
                                read.add(os.pread(file.fd, 99, 0))
                except (OSError, Missing):
                    continue

    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.to_thread(look)
    finally:
        over.set()
        thread.join()
    assert read <= {b"", b"ours"}


def test_paths_of_a_tree_take_little_memory_however_long_they_are(home: Path) -> None:
    """100,000 files below 60 directories with long names would be 1.6 GB of paths."""
    with Directory.at(home) as at:
        directory = at
        for _ in range(60):
            directory = directory.directory("d" * 250, make=True)
        for number in range(2_300):
            os.mknod(f"{number}", dir_fd=directory.fd)
        with pytest.raises(UnstorableFile, match="paths together"):
            at.files()


def test_trash_goes_at_once_and_what_an_earlier_agent_left_goes_too(
    home: Path, host: Path, tmp_path: Path
) -> None:
    gone: queue.SimpleQueue[None] = queue.SimpleQueue()
    (tmp_path / "trash" / "old" / "deep").mkdir(parents=True)
    (tmp_path / "trash" / "link").symlink_to(host)
    trash = Trash(tmp_path / "trash", lambda: gone.put(None))
    trash.throw_away(home)
    trash.throw_away(home)
    assert not home.exists()
    for _ in range(3):
        gone.get(timeout=DEADLINE_S)
    assert list((tmp_path / "trash").iterdir()) == []
    assert (host / "secret").read_text() == SECRET
