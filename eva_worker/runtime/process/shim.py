"""The parent of one task: starts it, stops it, and records how it ended. Standard library only.

Run as ``python -I -S shim.py DIRECTORY`` in a session of its own. It outlives the agent, so no exit
code is lost. It is the reaper of all processes that the task starts (PR_SET_CHILD_SUBREAPER), so
none of them can escape by changing its session, group or parent.

The directory holds ``spec.json`` (what to run, from the agent), ``lock`` (held while the shim
lives), ``shim.json`` (pids with start times), ``stop.json`` (``grace_s``; from the agent, which
then sends SIGTERM) and ``exit.json`` (``code``, ``at_ms``, ``ran``, ``stopped``: the end).
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_EXECUTABLE = 126
POLL_S = 0.01
RETRY_S = 1.0


def write(name: str, document: dict[str, object]) -> None:
    """Write a JSON document atomically, safe from a power cut."""
    aside = "." + name + ".new"
    with open(aside, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms here
        json.dump(document, file)
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


def descendants() -> list[int]:
    """The pids of all descendants of this process, zombies included; parents before children."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (fields := stat(name)):
            parents[int(name)] = int(fields[1])
    found: list[int] = []
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found.extend(sorted(level))
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def halt() -> list[int]:
    """Halt every descendant of this process; returns their pids.

    Otherwise a shell could fork a program after one look at the processes and die of its signal
    before the next, and the program would never be asked to end.
    """
    held: list[int] = []
    while found := [pid for pid in descendants() if pid not in held]:
        send(found, signal.SIGSTOP)
        held += found
    return held


def spare_nobody() -> None:
    """Have the kernel choose this task when memory runs out, rather than who looks after it."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123
        if int(file.read()) < 0:
            file.seek(0)
            file.write("0")


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
        # Whoever changes their rights loses this signal, so it comes after that.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # It ended before it was seen.
            os._exit(NOT_EXECUTABLE)
        os.chdir(spec["workdir"])
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve("/bin/sh", ["/bin/sh", "-c", spec["command"]], spec["env"])  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start: {error}\n".encode())
    finally:
        os._exit(NOT_EXECUTABLE)


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
        document["how"], document["hidden"], document["kept"], harmless=document["harmless"]
    )


class Task:
    """The task's first process and all of its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.deadline: float | None = None
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
        """Carry out ``stop.json``: the first sends SIGTERM; the earliest deadline counts."""
        with open("stop.json", encoding="utf-8") as file:  # noqa: PTH123
            grace_s = json.load(file)["grace_s"]
        deadline = time.monotonic() + grace_s
        if self.deadline is None:
            held = halt()
            # It may have ended by itself before the stop came; while halted it cannot.
            self.reap()
            self.stopped = self.code is None
            send(held, signal.SIGTERM if grace_s > 0 else signal.SIGKILL)
            send(held, signal.SIGCONT)
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def terminating(self) -> bool:
        """Whether the remaining processes are to be killed."""
        if self.deadline is None:
            return self.code is not None  # Its other processes are killed then.
        return time.monotonic() >= self.deadline

    def run(self) -> None:
        """Watch the task until none of its processes is left."""
        while self.reap():
            timeout: float | None = None
            if self.terminating():
                send(descendants(), signal.SIGKILL)
                timeout = POLL_S
            elif self.deadline is not None:
                timeout = max(0.0, self.deadline - time.monotonic())
            if self.wait(timeout) == signal.SIGTERM:
                self.stop()

    @staticmethod
    def wait(timeout: float | None) -> int:
        """Wait for a signal, without end if `None`; returns its number, 0 if none came."""
        watched = {signal.SIGCHLD, signal.SIGTERM}
        if timeout is None:
            return signal.sigwait(watched)
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
    with open("spec.json", encoding="utf-8") as file:  # noqa: PTH123
        spec = json.load(file)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The pid is recorded before the task exists, so that no task is without a record.
    me = os.getpid()
    write("shim.json", {"pid": me, "started": int((stat(me) or [])[19])})
    child = os.fork()
    if child == 0:
        execute(spec, me)
    write("task.json", {"pid": child})
    os.close(1)  # Closing the pipe tells the agent that the task runs.
    task = Task(child)
    task.run()
    ended: dict[str, object] = {
        "code": task.code,
        "at_ms": int(time.time() * 1000),
        "ran": True,
        "stopped": task.stopped,
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
