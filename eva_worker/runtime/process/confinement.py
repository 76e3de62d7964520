"""Keeps a task's process from files that are none of its business. Standard library only.

A process confines itself before it becomes the task. It gets a mount namespace in which hidden
directories are empty, but for the task's own below them; a worker that is not root needs a user
namespace for that. Where the machine allows neither, Landlock refuses what is hidden.

Run as a program, it tries out what works and says so: see `tried_out`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False  # that of `typing`, which takes long to import, is known to be the same
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x4, 0x20, 0x1000
MS_REC, MS_SLAVE = 0x4000, 0x80000
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 0x1, 0x8000, -100
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
SYS_MOUNT_SETATTR, SYS_LANDLOCK = 442, 444  # The same on all architectures since 2019.
LANDLOCK_READ, LANDLOCK_WRITE, LANDLOCK_REMOVE = 1 << 2, 1 << 1, 1 << 5 | 1 << 4
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_WITH_SCOPES, LANDLOCK_SCOPE_SIGNAL = 6, 1 << 1
CAPABILITY_VERSION = 0x20080522
NAMESPACES, LANDLOCK, NOTHING = "namespaces", "landlock", ""

# Services that run what a user tells them to: outside of the task, or with more rights.
SERVICES = (
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/k3s",
    "/run/libvirt",
    "/run/lxd",
    "/run/incus",
    "/var/lib/lxd",
    "/var/lib/incus",
    "/var/snap/lxd/common/lxd",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/user/{user}",
    "/tmp/tmux-{user}",  # noqa: S108
    "/tmp/emacs{user}",  # noqa: S108
    "/run/screen",
)
MEMORY = ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg")
CONTROL_GROUPS = "/sys/fs/cgroup"
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108

_libc = ctypes.CDLL(None, use_errno=True)


def confine(how: str, hidden: list[str], kept: list[str], *, harmless: bool) -> None:
    """Confine this process and all that it becomes.

    Args:
        how: What `tried_out` found.
        hidden: Directories and files that it is not to see.
        kept: Directories below them, or anywhere, that it may read and write.
        harmless: Whether it is to lose what its user may do beyond its own files: leave its control
            group, have services of the machine run programs, and all that root may.

    Raises:
        OSError: It is not confined as it should be.
    """
    user = os.geteuid()
    root = user == 0
    written = []
    if harmless:
        services = (it.format(user=user) for it in SERVICES)
        hidden = [*hidden, *(it for it in services if os.path.exists(it))]  # noqa: PTH110
    if root and harmless:
        hidden = [*hidden, *MEMORY, *_block_devices()]
        written = [*kept, *SHARED, os.path.expanduser("~/.cache")]  # noqa: PTH111
    if how == NAMESPACES:
        _unshare(root=root)
        _hide(hidden, kept)
        if written:
            _write_only(written)
        elif harmless and os.path.isdir(CONTROL_GROUPS):  # noqa: PTH112
            _mount(CONTROL_GROUPS, CONTROL_GROUPS, MS_BIND | MS_REC)
            _set_read_only(CONTROL_GROUPS, set_=MOUNT_ATTR_RDONLY)
    if root and harmless:
        _drop_capabilities()
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if how == LANDLOCK:
        fixed = [CONTROL_GROUPS] if harmless else []
        _refuse(hidden, kept, [*written, "/dev"] if written else ["/"], fixed)
    _keep_signals_within()


def limit(open_files: int) -> None:
    """Limit what each process may open, and leave no dumps of its memory."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = open_files if most == resource.RLIM_INFINITY else min(open_files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tried_out(
    hidden: list[str],
    kept: list[str],
    *,
    harmless: bool,
    ways: tuple[str, ...] = (NAMESPACES, LANDLOCK),
) -> tuple[str, str]:
    """Find out how processes can be confined here.

    Returns:
        The best way, and why those before it do not work.
    """
    import json
    import subprocess

    reasons: list[str] = []
    for how in ways:
        given = {"how": how, "hidden": hidden, "kept": kept, "harmless": harmless}
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return how, "; ".join(reasons)
        reasons.append(f"{how}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return NOTHING, "; ".join(reasons)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _unshare(*, root: bool) -> None:
    """Leave the machine's mounts; what is mounted there later is seen here, not the reverse."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(CLONE_NEWNS if root else CLONE_NEWNS | CLONE_NEWUSER))
    if not root:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(text)
    _mount("none", "/", MS_REC | MS_SLAVE)


def _mount(source: str, target: str, flags: int, kind: str = "", data: str = "") -> None:
    texts = (os.fsencode(it) or None for it in (source, target, kind))
    where, place, what = texts
    _check(_libc.mount(where, place, what, ctypes.c_ulong(flags), data.encode() or None))


def _hide(hidden: Iterable[str], kept: Iterable[str]) -> None:
    """Put emptiness over what is hidden, and what is kept back into it."""
    places = {it: os.open(it, os.O_PATH) for it in sorted(map(os.path.realpath, kept))}
    for top in sorted({os.path.realpath(it) for it in hidden}):
        if not os.path.exists(top):  # noqa: PTH110 - below one that is hidden already
            continue
        if not os.path.isdir(top):  # noqa: PTH112
            _mount("/dev/null", top, MS_BIND)
            continue
        _mount("none", top, MS_NOSUID | MS_NODEV, "tmpfs", "size=1m,mode=0755")
        for place, descriptor in places.items():
            if place.startswith(top + "/"):
                os.makedirs(place, exist_ok=True)  # noqa: PTH103
                _mount(f"/proc/self/fd/{descriptor}", place, MS_BIND | MS_REC)
        _mount("none", top, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for descriptor in places.values():
        os.close(descriptor)


def _write_only(places: Iterable[str]) -> None:
    """Make everything read-only but some directories: the machine's files are mostly root's."""
    _set_read_only("/", set_=MOUNT_ATTR_RDONLY)
    for place in sorted({os.path.realpath(it) for it in places if os.path.isdir(it)}):  # noqa: PTH112
        _mount(place, place, MS_BIND | MS_REC)
        _set_read_only(place, clear=MOUNT_ATTR_RDONLY)


def _set_read_only(place: str, *, set_: int = 0, clear: int = 0) -> None:
    attributes = struct.pack("QQQQ", set_, clear, 0, 0)
    _check(
        _libc.syscall(
            SYS_MOUNT_SETATTR,
            AT_FDCWD,
            os.fsencode(place),
            AT_RECURSIVE,
            attributes,
            ctypes.c_size_t(len(attributes)),
        )
    )


def _block_devices() -> Iterator[str]:
    for entry in os.scandir("/dev"):
        try:
            block = stat.S_ISBLK(entry.stat().st_mode)
        except OSError:
            continue
        if block:
            yield entry.path


def _drop_capabilities() -> None:
    """Give up all capabilities, for good."""
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:  # noqa: PTH123
        last = int(file.read())
    for number in range(last + 1):
        _check(_libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    _check(_libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    header, none = struct.pack("II", CAPABILITY_VERSION, 0), bytes(24)
    _check(_libc.capset(header, none))


def _refuse(
    hidden: Iterable[str], kept: Iterable[str], written: Iterable[str], fixed: Iterable[str]
) -> None:
    """Allow the files of all directories but those that are hidden, and of what is kept.

    Args:
        hidden: What is refused.
        kept: What is not, even below that.
        written: Where files may be changed, too, unless they are refused.
        fixed: Where they may be read alone, all the same.
    """
    version = _check(_libc.syscall(SYS_LANDLOCK, None, ctypes.c_size_t(0), 1))
    handled = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_REMOVE
    if version >= 3:
        handled |= LANDLOCK_TRUNCATE
    attributes = struct.pack("Q", handled)
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check(_libc.syscall(SYS_LANDLOCK, attributes, size, 0))
    tops = [os.path.realpath(it) for it in (*hidden, *fixed)]
    changeable = tuple(os.path.join(os.path.realpath(it), "") for it in written)  # noqa: PTH118
    for place in (*_beside(tops, "/"), *map(os.path.realpath, kept), *fixed):
        rights = LANDLOCK_READ
        if place not in fixed and f"{place}/".startswith(changeable):
            # A file takes no right that is for directories alone.
            rights = handled if os.path.isdir(place) else handled & ~LANDLOCK_REMOVE  # noqa: PTH112
        try:
            descriptor = os.open(place, os.O_PATH)
        except OSError:
            continue
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc.syscall(SYS_LANDLOCK + 1, ruleset, 1, rule, 0))
        os.close(descriptor)
    _check(_libc.syscall(SYS_LANDLOCK + 2, ruleset, 0))
    os.close(ruleset)


def _keep_signals_within() -> None:
    """Let signals reach the task's own processes alone, where the kernel can tell."""
    if _libc.syscall(SYS_LANDLOCK, None, ctypes.c_size_t(0), 1) < LANDLOCK_WITH_SCOPES:
        return
    attributes = struct.pack("QQQ", 0, 0, LANDLOCK_SCOPE_SIGNAL)
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check(_libc.syscall(SYS_LANDLOCK, attributes, size, 0))
    _check(_libc.syscall(SYS_LANDLOCK + 2, ruleset, 0))
    os.close(ruleset)


def _beside(tops: list[str], directory: str) -> Iterator[str]:
    """Everything below a directory but what is at or below `tops`, in as few paths as possible."""
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        place = os.path.join(directory, name)  # noqa: PTH118
        # What a link leads to is allowed where it lies, or it is hidden.
        if place in tops or os.path.islink(place):  # noqa: PTH114
            continue
        if any(top.startswith(place + "/") for top in tops):
            yield from _beside(tops, place)
        else:
            yield place


def main() -> None:
    """Confine this process as the document on standard input says; fails if that does not work."""
    import json

    given: dict[str, Any] = json.load(sys.stdin)
    confine(given["how"], given["hidden"], given["kept"], harmless=given["harmless"])
    for top in given["hidden"]:
        for name in os.listdir(top) if given["how"] == NAMESPACES else ():  # noqa: PTH208
            place = os.path.realpath(os.path.join(top, name))  # noqa: PTH118
            if not any(f"{os.path.realpath(it)}/".startswith(f"{place}/") for it in given["kept"]):
                raise OSError(f"{place} is still seen")


if __name__ == "__main__":
    main()
