"""The parent of one command beside a task: starts it, and ends all that it started.

Run as ``python -I -S`` with the directory of the task's shim, in a session of its own. Standard
input is a socket to the agent, whose first message is a JSON document: the command, and which
descriptors are its input, output and errors. Then ``H`` sends SIGHUP to all of its processes, and
``K`` kills them, as SIGTERM does. At the end the exit code goes to the agent.

The command ends with the agent (SIGHUP, and SIGKILL after two seconds), and at once with the task:
when the task's shim is gone, no process of the task is to be left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import time

import shim  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

TIOCSCTTY = 0x540E
HANG_UP_S = 2.0
POLL_MS = 10
BEGIN_S = 10.0
"""How long a task that has just begun may take to confine itself."""
HEADER = 4
NOT_THE_TASKS = ("EVA_SOCKET", "EVA_SOCKET_SECRET")
MARKS = ("EVA_TASK_ID", "EVA_ATTEMPT")


class NotBegun(Exception):
    """The command cannot be started; the message says why."""


def request(agent: socket.socket) -> dict[str, Any]:
    """The agent's first message; raises `EOFError` if the agent has gone."""
    import json

    size = int.from_bytes(exactly(agent, HEADER), "big")
    document: dict[str, Any] = json.loads(exactly(agent, size))
    return document


def exactly(agent: socket.socket, size: int) -> bytes:
    """The next bytes from the agent; raises `EOFError` if it has gone."""
    data = b""
    while len(data) < size:
        piece = agent.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def first_process() -> int:
    """The pid of the task's first process, once it has confined itself.

    Raises:
        NotBegun: The task is over, or has not begun in time.
    """
    expiry = time.monotonic() + BEGIN_S
    while time.monotonic() < expiry:
        try:
            pid, parent = shim.read("task.json")["pid"], shim.read("shim.json")["pid"]
        except FileNotFoundError:
            pid, parent = 0, 0
        if pid:
            fields = shim.stat(pid)
            if fields is None or int(fields[1]) != parent or fields[0] in (b"Z", b"X"):
                raise NotBegun("the task has ended")
            if unprivileged(pid):
                return int(pid)
        time.sleep(POLL_MS / 1000)
    raise NotBegun("the task has not begun")


def unprivileged(pid: int) -> bool:
    """Whether a process is confined: a task gives up gaining rights once all else is done."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return any(line.split() == ["NoNewPrivs:", "1"] for line in file)
    except OSError:
        return False


def task_environment(pid: int, spec: dict[str, Any]) -> dict[str, str]:
    """The environment that the task began with, as its first process has it."""
    stated: dict[str, str] = spec["env"]
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            entries = file.read().split(b"\0")
    except OSError:
        return stated
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    variables = {name: value for name, _, value in pairs}
    # A program may write over it.
    if any(variables.get(mark) != stated.get(mark) for mark in MARKS):
        return stated
    return variables


def begin(spec: dict[str, Any], wanted: dict[str, Any]) -> int:
    """Start the command; returns its pid.

    Raises:
        NotBegun: The task is over.
    """
    task = first_process() if spec.get("confinement") else int(shim.read("task.json")["pid"])
    env = task_environment(task, spec)
    env = {name: value for name, value in env.items() if name not in NOT_THE_TASKS}
    me = os.getpid()
    child = os.fork()
    if child == 0:
        execute(spec, wanted, env | wanted["env"], task, me)
    return child


def execute(
    spec: dict[str, Any], wanted: dict[str, Any], env: dict[str, str], task: int, parent: int
) -> NoReturn:
    """Become the command, in the child; never returns."""
    try:
        os.setsid()
        streams = wanted["streams"]
        if wanted["terminal"]:
            import fcntl

            fcntl.ioctl(streams[0], TIOCSCTTY, 0)
        for target, source in enumerate(streams):
            os.dup2(source, target)
        os.closerange(3, max(streams) + 1)
        shim.spare_nobody()
        if confined := spec.get("confinement"):
            confine(confined, task)
        ctypes.CDLL(None).prctl(shim.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(shim.NOT_EXECUTABLE)
        os.umask(0o022)
        os.chdir(spec["workdir"])
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        run(wanted["arguments"] or [shim.shell(env)], env)
    except OSError as error:
        os.write(2, f"eva: the command cannot be started: {error}\n".encode())
    finally:
        os._exit(shim.NOT_EXECUTABLE)


def confine(document: dict[str, Any], task: int) -> None:
    """Enter the task's control groups and be confined as the task is."""
    for entrance in document["groups"]:
        with open(entrance, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    import confinement  # type: ignore[import-not-found]

    confinement.limit(document["open_files"])
    confinement.join(
        task,
        document["how"],
        document["hidden"],
        document["kept"],
        harmless=document["harmless"],
        temporary=document.get("temporary", ""),
        apart=document.get("apart", False),
    )


def run(arguments: list[str], env: dict[str, str]) -> NoReturn:
    """Become a program, which is looked for in the path of the environment."""
    try:
        os.execvpe(arguments[0], arguments, env)  # noqa: S606
    except (FileNotFoundError, NotADirectoryError):
        os.write(2, f"eva: {arguments[0]}: no such program in the task\n".encode())
        os._exit(shim.NOT_FOUND)
    except OSError as error:
        os.write(2, f"eva: {arguments[0]} cannot be run: {error.strerror}\n".encode())
        os._exit(shim.NOT_EXECUTABLE)


class Command:
    """The command's first process and all of its descendants.

    Args:
        pid: The first process.
        agent: The socket to the agent.
        task: Descriptor of the process of the task's shim.
        news: Becomes readable at signals.
    """

    def __init__(self, pid: int, agent: socket.socket, task: int, news: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self._agent: socket.socket | None = agent
        self._task = task
        self._news = news
        self._expiry: float | None = None

    def run(self) -> int:
        """Watch it until none of its processes is left; returns its exit code."""
        while self.reap():
            if self.code is not None or self.late():
                shim.send(shim.descendants(), signal.SIGKILL)
                time.sleep(POLL_MS / 1000)
                continue
            self.wait()
        return -signal.SIGKILL if self.code is None else self.code

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

    def late(self) -> bool:
        """Whether what is left is to be killed."""
        return self._expiry is not None and time.monotonic() >= self._expiry

    def wait(self) -> None:
        """Wait for a child's end, an order, or the end of the agent or of the task."""
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        poll.register(self._task, select.POLLIN)
        if self._agent is not None:
            poll.register(self._agent, select.POLLIN)
        timeout = None
        if self._expiry is not None:
            timeout = max(0, int((self._expiry - time.monotonic()) * 1000) + 1)
        ready = {descriptor for descriptor, _ in poll.poll(timeout)}
        if self._news in ready and signal.SIGTERM in os.read(self._news, 4096):
            self._expiry = time.monotonic()
        if self._task in ready:
            self._expiry = time.monotonic()
        if self._agent is not None and self._agent.fileno() in ready:
            self.heed(self._agent)

    def heed(self, agent: socket.socket) -> None:
        """Carry out what the agent says."""
        try:
            orders = agent.recv(16)
        except OSError:
            orders = b""
        if not orders:
            self._agent = None
        if not orders or b"H" in orders:
            held = shim.halt()
            shim.send(held, signal.SIGHUP)
            shim.send(held, signal.SIGCONT)
            if not orders:
                self._expiry = time.monotonic() + HANG_UP_S
        if b"K" in orders:
            self._expiry = time.monotonic()


def task_shim() -> int:
    """Descriptor of the process of the task's shim; raises `NotBegun` if it is gone."""
    try:
        record = shim.read("shim.json")
        descriptor = os.pidfd_open(record["pid"])
    except (FileNotFoundError, ProcessLookupError) as error:
        raise NotBegun("the task has ended") from error
    fields = shim.stat(record["pid"])
    if fields is None or int(fields[19]) != record["started"]:
        raise NotBegun("the task has ended")
    return descriptor


def main() -> int:
    """Run a command beside the task of the given directory."""
    os.chdir(sys.argv[1])
    news, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(wake)
    agent = socket.socket(fileno=0)
    ctypes.CDLL(None).prctl(shim.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        wanted = request(agent)
        spec = shim.read("spec.json")
        task = task_shim()
        pid = begin(spec, wanted)
    except EOFError:
        return 0
    except (NotBegun, OSError) as error:
        agent.sendall(f"refused {error}\n".encode())
        return 0
    for descriptor in {*wanted["streams"]}:
        os.close(descriptor)
    code = Command(pid, agent, task, news).run()
    try:  # noqa: SIM105 - as in `shim`
        agent.sendall(f"exit {code}\n".encode())
    except OSError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
