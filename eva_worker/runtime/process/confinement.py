"""Keeps a task's process from files that are none of its business. Standard library only.

A process confines itself before it becomes the task. Its mount namespace has empty hidden
directories, but for the task's own below them, and a /tmp of the task's own; a worker that is not
root needs a user namespace for that. Where the machine allows neither, Landlock refuses what is
hidden.

Run as a program, it tries out what works and says so: see `tried_out`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False  # that of `typing`, which takes long to import, is known to be the same
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWIPC = 0x20000, 0x10000000, 0x8000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x4, 0x20, 0x1000
MS_REC, MS_SLAVE = 0x4000, 0x80000
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 0x1, 0x8000, -100
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
SYS_MOUNT_SETATTR, SYS_LANDLOCK = (
    442,
    444,
)  # Numbers of system calls, equal on all architectures since 2019.
LANDLOCK_READ, LANDLOCK_WRITE, LANDLOCK_TRUNCATE = 1 << 2, 1 << 1, 1 << 14
LANDLOCK_LIST = 1 << 3
LANDLOCK_REMOVE = 1 << 5 | 1 << 4
LANDLOCK_MAKE = 0b1111111 << 6  # Whatever could be made could otherwise not be removed again.
LANDLOCK_REFER = 1 << 13  # Renames and links from one directory to another.
LANDLOCK_WITH_REFER, LANDLOCK_WITH_TRUNCATE = 2, 3
LANDLOCK_WITH_SCOPES, LANDLOCK_SCOPE_SIGNAL, LANDLOCK_SCOPE_ABSTRACT = 6, 1 << 1, 1 << 0
CAPABILITY_VERSION = 0x20080522
NO_DUMPS = 1
"""With a limit of 0 the kernel still calls a program that gets dumps, with a task's environment."""
NAMESPACES, LANDLOCK, NOTHING = "namespaces", "landlock", ""
ENTERED = ("user", "ipc", "mnt")
"""Namespaces of a task, in the order in which another process enters them."""

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
TEMPORARY = "/tmp"  # noqa: S108
MEMORY_FILES, QUEUES = "/dev/shm", "/dev/mqueue"  # noqa: S108
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108

_libc = ctypes.CDLL(None, use_errno=True)


def confine(
    how: str,
    hidden: list[str],
    kept: list[str],
    *,
    harmless: bool,
    temporary: str = "",
    apart: bool = False,
) -> None:
    """Confine this process and all that it becomes.

    Args:
        how: Result of `tried_out`.
        hidden: Directories and files that it is not to see.
        kept: Directories below them, or anywhere, that the task may read and write.
        harmless: Whether it is to lose what its user may do beyond its own files: leave its control
            group, have services of the machine run programs, and all that root may.
        temporary: Directory that is to be its /tmp, where that is possible; empty for none.
        apart: Whether it shares no memory, message queues and abstract sockets with other tasks,
            where that is possible; members of a gang do.

    Raises:
        OSError: The process is not confined as it should be.
    """
    user = os.geteuid()
    root = user == 0
    written = []
    if root and harmless:
        hidden = [*hidden, *MEMORY, *_block_devices()]
        written = [*kept, *SHARED, os.path.expanduser("~/.cache")]  # noqa: PTH111
    if how == NAMESPACES:
        services = (service.format(user=user) for service in SERVICES if harmless)
        _unshare(root=root, apart=apart)
        own = {MEMORY_FILES: "tmpfs", QUEUES: "mqueue"} if apart else {}
        _hide([*hidden, *filter(os.path.exists, services)], kept, temporary, own)
        if written:
            _write_only(written)
        elif harmless and os.path.isdir(CONTROL_GROUPS):  # noqa: PTH112
            _mount(CONTROL_GROUPS, CONTROL_GROUPS, MS_BIND | MS_REC)
            _set_read_only(CONTROL_GROUPS, set_=MOUNT_ATTR_RDONLY)
    if root and harmless:
        _drop_capabilities()
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if how == LANDLOCK:
        # Services are not hidden: Landlock knows no sockets, and would refuse what is beside them.
        fixed = [CONTROL_GROUPS] if harmless else []
        _refuse(hidden, kept, [*written, "/dev"] if written else ["/"], fixed, apart=apart)
    else:
        _keep_within(apart=apart)


def join(
    pid: int,
    how: str,
    hidden: list[str],
    kept: list[str],
    *,
    harmless: bool,
    temporary: str = "",
    apart: bool = False,
) -> None:
    """Confine this process as another one is that `confine` has confined.

    Args:
        pid: The other one, which runs. Its namespaces are entered.
        how: See `confine`, like the other arguments.
        hidden: See there.
        kept: See there.
        harmless: See there.
        temporary: See there.
        apart: See there.

    Raises:
        OSError: The process is not confined as it should be.
    """
    if how != NAMESPACES:
        confine(how, hidden, kept, harmless=harmless, temporary=temporary, apart=apart)
        return
    # All are opened before the first is entered: another mount namespace has another /proc.
    spaces = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ENTERED}
    own = {name: os.stat(f"/proc/self/ns/{name}") for name in ENTERED}  # noqa: PTH116
    others = [name for name in ENTERED if not os.path.samestat(os.fstat(spaces[name]), own[name])]
    if "mnt" not in others:
        raise OSError(errno.ESRCH, "the task has ended")
    for name in others:
        _check(_libc.setns(spaces[name], 0))
    for descriptor in spaces.values():
        os.close(descriptor)
    if os.geteuid() == 0 and harmless:
        _drop_capabilities()
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _keep_within(apart=apart)


def limit(open_files: int) -> None:
    """Limit what each process may open, and leave no dumps of its memory."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = open_files if most == resource.RLIM_INFINITY else min(open_files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    most = NO_DUMPS if most == resource.RLIM_INFINITY else min(NO_DUMPS, most)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def tried_out(
    hidden: list[str],
    kept: list[str],
    *,
    harmless: bool,
    temporary: str = "",
    ways: tuple[str, ...] = (NAMESPACES, LANDLOCK),
    apart: bool = True,
) -> tuple[str, str]:
    """Find out how processes can be confined here.

    Args:
        hidden: See `confine`, like the other arguments.
        kept: Directories that are to be there all the same.
        harmless: Whether rights are given up.
        temporary: An empty directory, to try out a /tmp of its own.
        ways: The ways to try, the best one first.
        apart: Whether memory and queues are a task's own.

    Returns:
        The best way, and why those before it do not work.
    """
    import json
    import subprocess

    reasons: list[str] = []
    for how in ways:
        document = {
            "how": how,
            "hidden": hidden,
            "kept": kept,
            "harmless": harmless,
            "temporary": temporary,
            "apart": apart,
        }
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__],
            input=json.dumps(document),
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


def _unshare(*, root: bool, apart: bool) -> None:
    """Leave the machine's mounts; what is mounted there later is seen here, not the reverse."""
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | (0 if root else CLONE_NEWUSER) | (CLONE_NEWIPC if apart else 0)
    _check(_libc.unshare(flags))
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
    texts = (os.fsencode(text) or None for text in (source, target, kind))
    where, place, what = texts
    _check(_libc.mount(where, place, what, ctypes.c_ulong(flags), data.encode() or None))


def _hide(hidden: Iterable[str], kept: Iterable[str], temporary: str, own: dict[str, str]) -> None:
    """Put emptiness over what is hidden and a directory over /tmp; what is kept stays in both.

    Args:
        hidden: Directories to hide.
        kept: Directories that stay all the same.
        temporary: Directory put over /tmp; empty for none.
        own: File systems of the task's own, by where they are.
    """
    places = {place: os.open(place, os.O_PATH) for place in sorted(map(os.path.realpath, kept))}
    tops = {os.path.realpath(place) for place in hidden}
    own_tmp = os.path.realpath(TEMPORARY) if temporary else ""
    source = os.open(temporary or "/", os.O_PATH)
    for top in sorted({*tops, *own, own_tmp} - {""}):
        if not os.path.exists(top):  # noqa: PTH110 - below one that is hidden already
            continue
        if not os.path.isdir(top):  # noqa: PTH112
            _mount("/dev/null", top, MS_BIND)
            continue
        if top == own_tmp:
            _mount(f"/proc/self/fd/{source}", top, MS_BIND | MS_REC)
        elif top in own:
            _mount("none", top, MS_NOSUID | MS_NODEV, own[top])
        else:
            _mount("none", top, MS_NOSUID | MS_NODEV, "tmpfs", "size=1m,mode=0755")
        for place, descriptor in places.items():
            if place.startswith(top + "/"):
                _put_back(place, descriptor)
        if top != own_tmp and top not in own:
            _mount("none", top, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for descriptor in (source, *places.values()):
        os.close(descriptor)


def _put_back(place: str, descriptor: int) -> None:
    """Mount what a descriptor is of where it was, in a directory that is empty or has it."""
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):  # noqa: PTH112
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o600))
    _mount(source, place, MS_BIND | MS_REC)


def _write_only(places: Iterable[str]) -> None:
    """Make everything read-only but some directories: the machine's files are mostly root's."""
    _set_read_only("/", set_=MOUNT_ATTR_RDONLY)
    for place in sorted({os.path.realpath(path) for path in places if os.path.isdir(path)}):  # noqa: PTH112
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
    hidden: Iterable[str],
    kept: Iterable[str],
    written: Iterable[str],
    fixed: Iterable[str],
    *,
    apart: bool,
) -> None:
    """Allow the files of all directories but those that are hidden, and of what is kept.

    A directory above a hidden one cannot be allowed as a whole. Its present entries are allowed,
    but it cannot be listed itself, nor can anything be made or removed right in it.

    Args:
        hidden: Directories to refuse.
        kept: Directories that are allowed, even below these.
        written: Where files may be changed, too, unless they are refused.
        fixed: Where they may be read alone, all the same.
        apart: See `confine`.
    """
    version = _landlock_version()
    of_files = LANDLOCK_READ | LANDLOCK_WRITE
    if version >= LANDLOCK_WITH_TRUNCATE:
        of_files |= LANDLOCK_TRUNCATE
    handled = of_files | LANDLOCK_LIST | LANDLOCK_REMOVE | LANDLOCK_MAKE
    if version >= LANDLOCK_WITH_REFER:  # Before it, the kernel refuses these everywhere.
        handled |= LANDLOCK_REFER
    # Signals as well: any further ruleset would refuse renames to other directories.
    ruleset = _ruleset(handled, _scopes(apart) if version >= LANDLOCK_WITH_SCOPES else 0)
    tops = [os.path.realpath(place) for place in (*hidden, *fixed)]
    changeable = [os.path.realpath(place) for place in written]
    whole = [place for place in changeable if not _meets(place, tops)]
    for place in (*_beside(tops, "/"), *whole, *map(os.path.realpath, kept), *fixed):
        directory = os.path.isdir(place)  # noqa: PTH112
        rights = LANDLOCK_READ | (LANDLOCK_LIST if directory else 0)
        if place not in fixed and _within(place, changeable):
            rights = handled if directory else of_files
        try:
            descriptor = os.open(place, os.O_PATH)
        except OSError:
            continue
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc.syscall(SYS_LANDLOCK + 1, ruleset, 1, rule, 0))
        os.close(descriptor)
    _enter(ruleset)


def _within(place: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of `tops` or below one."""
    return any(f"{place}/".startswith(os.path.join(top, "")) for top in tops)  # noqa: PTH118


def _meets(place: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of `tops`, below one or above one."""
    return _within(place, tops) or any(_within(top, [place]) for top in tops)


def _keep_within(*, apart: bool) -> None:
    """Let signals and traces reach the task's own processes alone, as far as the kernel can tell.

    Traces are refused from any process that obeys a ruleset, whatever that says.
    """
    version = _landlock_version()
    if version >= LANDLOCK_WITH_SCOPES:
        _enter(_ruleset(0, _scopes(apart)))
    elif version >= LANDLOCK_WITH_REFER:
        ruleset = _ruleset(LANDLOCK_REFER, 0)
        top = os.open("/", os.O_PATH)
        rule = struct.pack("=Qi", LANDLOCK_REFER, top)
        _check(_libc.syscall(SYS_LANDLOCK + 1, ruleset, 1, rule, 0))
        os.close(top)
        _enter(ruleset)


def _scopes(apart: bool) -> int:
    return LANDLOCK_SCOPE_SIGNAL | (LANDLOCK_SCOPE_ABSTRACT if apart else 0)


def _landlock_version() -> int:
    """Of the kernel's; negative if it has none."""
    return int(_libc.syscall(SYS_LANDLOCK, None, ctypes.c_size_t(0), 1))


def _ruleset(files: int, scopes: int) -> int:
    """Make a ruleset that handles rights on files, and scopes; raises `OSError`."""
    attributes = struct.pack("QQQ", files, 0, scopes) if scopes else struct.pack("Q", files)
    size = ctypes.c_size_t(len(attributes))
    return _check(_libc.syscall(SYS_LANDLOCK, attributes, size, 0))


def _enter(ruleset: int) -> None:
    """Obey a ruleset from now on; raises `OSError`."""
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
        # A link's target is allowed where it lies, or it is hidden.
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
    how, temporary = given["how"], given["temporary"]
    confine(
        how,
        given["hidden"],
        given["kept"],
        harmless=given["harmless"],
        temporary=temporary,
        apart=given["apart"],
    )
    if how != NAMESPACES:
        return
    for top in map(os.path.realpath, given["hidden"]):
        if seen := _seen(top, given["kept"]):
            raise OSError(f"{seen} is still seen")
    if temporary:
        place = os.path.join(TEMPORARY, "trial")  # noqa: PTH118
        os.mkdir(place)  # noqa: PTH102
        os.rmdir(place)  # noqa: PTH106


def _seen(top: str, kept: Iterable[str]) -> str:
    """Path of what is seen of something hidden, besides what is kept; empty for nothing."""
    if not os.path.isdir(top):  # noqa: PTH112
        # A file is hidden by the null device, or with the directory that it is in.
        return top if os.path.exists(top) and not os.path.samefile(top, "/dev/null") else ""  # noqa: PTH110, PTH121
    for name in os.listdir(top):  # noqa: PTH208
        place = os.path.realpath(os.path.join(top, name))  # noqa: PTH118
        if not any(_within(os.path.realpath(own), [place]) for own in kept):
            return place
    return ""


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(error.strerror or str(error))
