"""The parent of one task: starts it, stops it, and records how it ended. Standard library only.

Run as ``python -I -S shim.py DIRECTORY`` in a session of its own. Every start of a task waits for
 that, so it imports little: `json`, `signal`, `typing` and the like take longer than all the rest.
 The shim outlives the agent, so no exit code is lost. As the reaper of all processes that the task
 starts (PR_SET_CHILD_SUBREAPER) it sees those that change their session, group or parent, too.

The directory holds ``spec.json`` (what to run, from the agent), ``lock`` (held while the shim
lives), ``shim.json`` (pids with start times), ``stop.json`` (``grace_s``; from the agent, which
then sends SIGTERM) and ``exit.json`` (``code``, ``at_ms``, ``ran``, ``stopped``, ``ran_ms``: the
end).

On an owned node the task runs under a lease. When that has run out this process kills the task,
whatever has become of the agent: it has a timer of the kernel's for that.
"""

from __future__ import annotations

import _json
import _signal as signal  # type: ignore[import-not-found]
import ctypes
import fcntl
import os
import sys
import time

TYPE_CHECKING = False  # that of `typing` is known to be the same
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_EXECUTABLE, NOT_FOUND = 126, 127
E2BIG = 7
PF_EXITING = 0x4
"""Of the flags in ``/proc/PID/stat``."""
POLL_S = 0.01
RETRY_S = 1.0
SECRETS = 3
"""Descriptor of the task's secrets, if it has some: a file in memory, which no other process has.
"""


class Strict:
    """How JSON is read; `json` itself reads it by this function of the interpreter."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


def read(name: str) -> Any:
    """Read the JSON document of a file."""
    with open(name, encoding="utf-8") as file:  # noqa: PTH123
        return parsed(file.read())


def parsed(text: str) -> Any:
    """Read a JSON document from its text."""
    scan: Any = _json.make_scanner(Strict)  # type: ignore[arg-type]
    return scan(text, 0)[0]


def word(value: int | None) -> str:
    """A number or a constant as JSON has it."""
    if value is None:
        return "null"
    return str(value).lower()


def write(name: str, document: dict[str, int | None]) -> None:
    """Write a JSON document of numbers and constants atomically, safe from a power cut."""
    aside = "." + name + ".new"
    with open(aside, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms here
        file.write(
            "{" + ", ".join(f'"{key}": {word(value)}' for key, value in document.items()) + "}"
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, name)  # noqa: PTH105


def stat(pid: int | str) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the third (the state) on; `None` if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def leaving(pid: int) -> bool:
    """Whether a process has called exit, or is gone: no signal changes its exit code any more."""
    fields = stat(pid)
    return fields is None or bool(int(fields[6]) & PF_EXITING)


def descendants() -> list[int]:
    """The pids of all descendants of this process, zombies included; parents before children."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (fields := stat(name)):
            parents[int(name)] = int(fields[1])
    pids: list[int] = []
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        pids.extend(sorted(level))
    return pids


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        try:  # noqa: SIM105 - as in all of this file: `contextlib` takes long to import
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def halt() -> list[int]:
    """Halt every descendant of this process; returns their pids.

    Otherwise a shell could fork a program after one look at the processes and die of its signal
    before the next, and the program would never be asked to end.
    """
    held: list[int] = []
    while pids := [pid for pid in descendants() if pid not in held]:
        send(pids, signal.SIGSTOP)
        held += pids
    return held


def spare_nobody() -> None:
    """Have the kernel choose this task when memory runs out, rather than who looks after it."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123
            if int(file.read()) < 0:
                file.seek(0)
                file.write("0")
    except OSError:
        pass


def execute(spec: dict[str, Any], parent: int) -> NoReturn:
    """Become the task, in the child; never returns."""
    libc = ctypes.CDLL(None)
    try:
        os.setsid()
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        spare_nobody()  # Later its own entry in /proc may be out of reach.
        if confined := spec.get("confinement"):
            confine(confined)
        # A change of rights clears this signal, so the call comes after it.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # The parent ended before it was seen.
            os._exit(NOT_EXECUTABLE)
        os.umask(0o022)  # As in a container, whatever its agent has.
        os.chdir(spec["workdir"])
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if spec.get("secrets"):
            spec["env"].update(secrets())
        interpret(spec)
    except OSError as error:
        os.write(2, f"cannot start: {error}\n".encode())
    finally:
        os._exit(NOT_EXECUTABLE)


def secrets() -> dict[str, str]:
    """Take the task's secrets, which only the child does; the file is gone then."""
    with open(SECRETS, encoding="utf-8") as file:
        values: dict[str, str] = parsed(file.read())
    return values


def interpret(spec: dict[str, Any]) -> NoReturn:
    """Become the interpreter of the task's script; never returns if there is one.

    Raises:
        OSError: The program cannot be run; the message says why.
    """
    if "command" in spec:  # Of an agent that had begun before it was upgraded.
        command = ["/bin/sh", "-c", spec["command"]]
    else:
        command = [*(spec["interpreter"] or [shell(spec["env"])]), spec["script"]]
    program = command[0]
    try:
        os.execve(program, command, spec["env"])  # noqa: S606
    except FileNotFoundError:
        why = f"{program}, which the first line of `run` names, is not on this machine"
        if os.path.lexists(program):
            why = f"{program}, which the first line of `run` names, needs a file that is not here"
        os.write(2, f"cannot start: {why}\n".encode())
        os._exit(NOT_FOUND)
    except OSError as error:
        if error.errno == E2BIG:
            raise OSError("its environment is larger than this machine allows") from error
        raise OSError(f"{program} cannot be run: {error.strerror}") from error


def shell(env: dict[str, str]) -> str:
    """The shell for a script that names no interpreter: bash where there is one."""
    path = env.get("PATH", os.defpath).split(os.pathsep)
    for directory in (*path, "/bin", "/usr/bin"):
        place = f"{directory}/bash"
        if directory.startswith("/") and os.access(place, os.X_OK) and os.path.isfile(place):  # noqa: PTH113
            return place
    return "/bin/sh"


def confine(document: dict[str, Any]) -> None:
    """Enter the task's control groups and keep it from what is none of its business."""
    for entrance in document["groups"]:
        with open(entrance, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    # The module is beside this file, where an isolated interpreter does not look.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import confinement  # type: ignore[import-not-found]

    confinement.limit(document["open_files"])
    confinement.confine(
        document["how"],
        document["hidden"],
        document["kept"],
        harmless=document["harmless"],
        temporary=document.get("temporary", ""),
        apart=document.get("apart", False),
    )


def leases() -> Any:
    """The module `eva_worker.process.lease`, which an isolated interpreter does not find."""
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    path = os.path.join(here, "..", "..", "process", "lease.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("lease", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fence:
    """Tells when the lease of the task has run out; it never comes back.

    Args:
        lease: The file, and the epoch that the task was started in.
    """

    def __init__(self, lease: tuple[str, int]) -> None:
        self._path, self._epoch = lease
        self._leases = leases()
        self._timer = self._leases.Timer()
        self._over = False

    def over(self) -> bool:
        """Whether it has run out; otherwise the timer is set to when it would."""
        left_ms = 0 if self._over else self._leases.left_ms(self._path, self._epoch)
        self._over = left_ms == 0
        if not self._over:
            self._timer.after(left_ms)
        return self._over


class Task:
    """The task's first process and all of its descendants."""

    def __init__(self, pid: int, fence: Fence | None = None) -> None:
        self.pid = pid
        self.fence = fence
        self.code: int | None = None
        self.expiry: float | None = None
        self.stopped = False

    def reap(self) -> bool:
        """Collect dead children; returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def stop(self) -> None:
        """Carry out ``stop.json``: the first sends SIGTERM; the earliest end counts."""
        grace_s = read("stop.json")["grace_s"]
        expiry = time.monotonic() + grace_s
        if self.expiry is None:
            held = halt()
            # The task may have ended by itself before the stop; while halted it cannot. One that is
            # on its way out, which takes long where there is much memory to free, has ended too.
            self.reap()
            self.stopped = self.code is None and not leaving(self.pid)
            send(held, signal.SIGTERM if grace_s > 0 else signal.SIGKILL)
            send(held, signal.SIGCONT)
        self.expiry = expiry if self.expiry is None else min(self.expiry, expiry)

    def terminating(self) -> bool:
        """Whether the remaining processes are to be killed."""
        if self.expiry is None:
            return self.code is not None  # Its other processes are killed then.
        return time.monotonic() >= self.expiry

    def run(self) -> None:
        """Watch the task until none of its processes is left."""
        while self.reap():
            timeout: float | None = None
            self.heed_fence()
            if self.terminating():
                send(descendants(), signal.SIGKILL)
                timeout = POLL_S
            elif self.expiry is not None:
                timeout = max(0.0, self.expiry - time.monotonic())
            if self.wait(timeout) == signal.SIGTERM:
                self.stop()

    def heed_fence(self) -> None:
        """Have everything killed once the lease has run out."""
        if self.fence is not None and self.fence.over():
            self.fence = None
            self.stopped = self.stopped or self.code is None
            self.expiry = time.monotonic()

    @staticmethod
    def wait(timeout: float | None) -> int:
        """Wait for a signal, without end if `None`; returns its number, 0 if none came."""
        watched = {signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM}
        if timeout is None:
            number: int = signal.sigwait(watched)
            return number
        info = signal.sigtimedwait(watched, timeout)
        return info.si_signo if info else 0


def main() -> int:
    """Run the task of the given directory. The exit code is the shim's, not the task's."""
    os.chdir(sys.argv[1])
    # SIGCHLD must have a handler, or the kernel would drop a blocked one.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3  # Another shim runs, or an agent has given this one up.
    if os.path.exists("exit.json") or os.path.exists("shim.json"):  # noqa: PTH110
        return 3
    spec = read("spec.json")
    if spec.get("short"):
        # Agents that do not see the task's files take its short name for a leftover otherwise.
        fcntl.flock(os.open(os.path.dirname(spec["short"]), os.O_RDONLY), fcntl.LOCK_SH)  # noqa: PTH120
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    fence = Fence(tuple(spec["lease"])) if spec.get("lease") else None
    if fence is not None and fence.over():
        at_ms = int(time.time() * 1000)
        write("exit.json", {"code": 0, "at_ms": at_ms, "ran": False, "stopped": True})
        return 3
    # The pid is recorded before the task exists, so that no task is without a record.
    me = os.getpid()
    write("shim.json", {"pid": me, "started": int((stat(me) or [])[19])})
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        execute(spec, me)
    if spec.get("secrets"):
        os.close(SECRETS)
    write("task.json", {"pid": child})
    os.close(1)  # Closing the pipe tells the agent that the task runs.
    task = Task(child, fence)
    task.run()
    ended: dict[str, int | None] = {
        "code": task.code,
        "at_ms": int(time.time() * 1000),
        "ran": True,
        "stopped": task.stopped,
        "ran_ms": int((time.monotonic() - began) * 1000),
    }
    while True:
        try:
            write("exit.json", ended)
        except OSError:  # The disk is full; try again later.
            time.sleep(RETRY_S)
        else:
            return 0


if __name__ == "__main__":
    sys.exit(main())
