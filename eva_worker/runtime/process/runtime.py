"""Tasks as plain processes, each with its own shim as parent (see `shim`)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from eva_worker.errors import AttachRefused, InstanceFailed, StartFailed
from eva_worker.files.beneath import remove_tree
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import FULL, read_json, write_json
from eva_worker.process.peers import descends
from eva_worker.process.pids import family, kill_marked, pidfd, readable
from eva_worker.runtime import Exit, Image, TaskSpec, Tell, script
from eva_worker.runtime.attaching import AttachedCommand, Execution
from eva_worker.runtime.listening import on_this_machine
from eva_worker.runtime.process import execs
from eva_worker.runtime.process.confinement import TEMPORARY
from eva_worker.runtime.process.groups import TaskControlGroups
from eva_worker.runtime.process.measures import Measures
from eva_worker.runtime.process.shim import SECRETS
from eva_worker.runtime.short_names import make_link, remove_link
from eva_worker.secret_values import SecretValues

# As a module it is compiled once, and not with each task.
_RUN_SHIM = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import shim;"
    " sys.exit(shim.main())"
)
# Together, these variables identify an attempt among all processes of the machine.
_MARKS = ("EVA_TASK_ID", "EVA_ATTEMPT", "EVA_SOCKET")
_INHERITED = ("HOME", "LANG", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
_POLL_S = 0.02
_SHIM_START_S = 10.0

_log = structlog.get_logger()


class ProcessRuntime:
    """The runtime whose tasks are processes of this machine.

    Args:
        root: Directory of the shims' records, with one directory per attempt.
        measures: How tasks are confined; `None` for not at all.
    """

    def __init__(self, root: Path, measures: Measures | None = None) -> None:
        self._root = root
        self._measures = measures
        self._watches: dict[TaskKey, asyncio.Task[Exit]] = {}
        self._stopping = asyncio.Lock()

    @property
    def confinement(self) -> str:
        """See `Runtime.confinement`."""
        return self._measures.sentence if self._measures else "nothing"

    async def prepare(self, image: Image, tell: Tell) -> str:
        """See `Runtime.prepare`. This runtime has no images."""
        del tell
        if image.reference or image.build:
            raise StartFailed(
                "the task wants a container image, and this worker runs plain processes"
                " (--runtime process)"
            )
        return ""

    async def start(self, spec: TaskSpec) -> None:
        """See `Runtime.start`."""
        directory = self._root / spec.key.path
        try:
            await asyncio.to_thread(_link, spec)
            await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=False)
            await asyncio.to_thread(_write_spec, directory, spec, self._measures)
            pid, pipe = await asyncio.to_thread(_spawn, directory, spec.secrets)
        except OSError as error:
            failure = InstanceFailed if error.errno in FULL else StartFailed
            raise failure(f"cannot start {spec.key}: {error}") from error
        try:
            # The shim closes its end of the pipe when the task runs, or when it dies.
            await asyncio.to_thread(os.read, pipe, 1)
        finally:
            os.close(pipe)
        if not (directory / "task.json").exists():
            _reap(pid)
            ended = await asyncio.to_thread(_exit_record, directory, spec.key)
            if ended.stopped and not ended.ran:
                raise InstanceFailed(f"cannot start {spec.key}: the lease of its node has run out")
            trouble = (directory / "shim.log").read_text(errors="replace").strip()
            raise StartFailed(f"cannot start {spec.key}: {trouble or 'its shim died'}")
        self._watch(spec.key, pid)

    async def wait(self, key: TaskKey) -> Exit:
        """See `Runtime.wait`."""
        return await asyncio.shield(self._watches[key])

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        """See `Runtime.stop`."""
        directory = self._root / key.path
        # An agent that leaves while it takes a task over may stop it twice at the same time.
        async with self._stopping:
            watch = self._watches.get(key)
            if watch is None or watch.done():
                return
            shim = await asyncio.to_thread(read_json, directory / "shim.json")
            await asyncio.to_thread(write_json, directory / "stop.json", {"grace_s": grace_s})
        assert shim, "a watched task has a shim"
        with contextlib.suppress(ProcessLookupError), pidfd(shim["pid"], shim["started"]) as fd:
            signal.pidfd_send_signal(fd, signal.SIGTERM)

    async def kill(self, key: TaskKey) -> None:
        """See `Runtime.kill`."""
        await self.stop(key, 0)

    async def owns(self, key: TaskKey, pid: int) -> bool:
        """See `Runtime.owns`. The shim takes over processes that have lost their parents."""
        shim = await asyncio.to_thread(read_json, self._root / key.path / "shim.json")
        if not shim:
            return False
        return await asyncio.to_thread(descends, pid, shim["pid"], shim["started"])

    async def execute(self, key: TaskKey, command: AttachedCommand) -> Execution:
        """See `Runtime.execute`."""
        self._require_running(key)
        return await execs.begin(self._root / key.path, command)

    async def address(self, key: TaskKey, port: int) -> tuple[str, int]:
        """See `Runtime.address`."""
        self._require_running(key)
        return await asyncio.to_thread(self._listens, key, port)

    def _listens(self, key: TaskKey, port: int) -> tuple[str, int]:
        directory = self._root / key.path
        parents = [read_json(directory / "shim.json") or {}, *execs.parents(directory)]
        pids = [pid for parent in parents if parent for pid in family(parent["pid"])]
        return on_this_machine(key.run, port, pids)

    def _require_running(self, key: TaskKey) -> None:
        watch = self._watches.get(key)
        if watch is None or watch.done():
            raise AttachRefused(f"{key.run} does not run any more")

    async def adopt(self) -> Sequence[TaskKey]:
        """See `Runtime.adopt`."""
        keys = [TaskKey.from_path(path) for path in sorted(self._root.glob("*/*/*"))]
        for key in keys:
            if key not in self._watches:
                await asyncio.to_thread(execs.end_recorded, self._root / key.path)
                self._watch(key, None)
        return keys

    async def cleanup(self, key: TaskKey) -> None:
        """See `Runtime.cleanup`."""
        watch = self._watches.pop(key, None)
        assert watch is None or watch.done(), f"{key} still runs"
        await asyncio.to_thread(self._remove, self._root / key.path)

    def close(self) -> None:
        """Stop watching the tasks, which keep running."""
        for watch in self._watches.values():
            watch.cancel()

    def _remove(self, directory: Path) -> None:
        spec = read_json(directory / "spec.json")
        group = _group(spec)
        if group and self._measures and self._measures.groups:
            self._measures.groups.remove(group)
        elif group:
            group.remove()
        _remove_short_name(spec)
        remove_tree(directory)

    def _watch(self, key: TaskKey, child: int | None) -> None:
        self._watches[key] = asyncio.create_task(self._exit(key, child), name=f"watch {key}")

    async def _exit(self, key: TaskKey, child: int | None) -> Exit:
        """Wait for the shim's end, then read how the task ended, or find it out for a dead shim."""
        directory = self._root / key.path
        if shim := await self._shim(directory):
            with contextlib.suppress(ProcessLookupError), pidfd(*shim) as fd:
                await readable(fd)
        if child is not None:
            _reap(child)
        await asyncio.to_thread(execs.end_recorded, directory)
        ended = await asyncio.to_thread(_exit_record, directory, key)
        await asyncio.to_thread(_remove_short_name, read_json(directory / "spec.json"))
        return ended

    @staticmethod
    async def _shim(directory: Path) -> tuple[int, int] | None:
        """Pid and start time of an attempt's shim; `None` if none lives or will start."""
        expiry = time.monotonic() + _SHIM_START_S
        while time.monotonic() < expiry:
            if record := await asyncio.to_thread(read_json, directory / "shim.json"):
                return record["pid"], record["started"]
            with _locked(directory) as free:
                if free:
                    return None
            # The shim holds its lock but has not written its pid yet: it is just starting.
            await asyncio.sleep(_POLL_S)
        return None


def environment() -> dict[str, str]:
    """The part of the agent's environment that a task inherits.

    The directory of the agent's own commands comes first in the path, with `eva-progress` and the
    Python with `eva_iterator`.
    """
    ours = str(Path(sys.executable).parent)
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "PATH": os.pathsep.join((ours, os.environ.get("PATH", os.defpath))),
    }


def _link(spec: TaskSpec) -> None:
    """Link the parts of ``$EVA_STORAGE`` that lie elsewhere into it."""
    for name, source in spec.elsewhere.items():
        place = Path(spec.env["EVA_STORAGE"], name)
        if place.is_symlink():
            continue  # A leftover of a start that was interrupted.
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            place.rmdir()  # This directory was made for it and is empty.
        place.symlink_to(source)


def _write_spec(directory: Path, spec: TaskSpec, measures: Measures | None) -> None:
    """Write down for a shim what it is to run, and the script of it."""
    temporary = spec.temporary or spec.log.with_name("tmp")
    temporary.mkdir(exist_ok=True)
    script.write(spec.command, temporary)
    # Other tasks could replace the link, which is for sockets alone: nothing is run by its name.
    link, place, run_from = None, TEMPORARY, TEMPORARY
    if not measures or not measures.own_tmp:
        run_from = str(temporary.absolute())
        link = make_link(temporary.parent) if spec.temporary else None
        place = str((link or temporary.parent.absolute()) / temporary.name)
    confined = measures.document(spec, temporary, _entrances(spec, measures)) if measures else None
    named = {"TMPDIR": place} if spec.temporary else {}
    write_json(
        directory / "spec.json",
        {
            "interpreter": script.interpreter(spec.command),
            "script": f"{run_from}/{script.PATH}",
            "short": link and str(link),
            "env": {**spec.defaults, **named, **spec.env},
            "workdir": str(spec.workdir.absolute()),
            "log": str(spec.log.absolute()),
            "cpus": list(spec.cpus),
            "memory_mib": spec.memory_mib,
            "confinement": confined,
            "lease": spec.lease,
            "secrets": bool(spec.secrets),
        },
    )


def _spawn(directory: Path, secrets: SecretValues) -> tuple[int, int]:
    """Start a shim; returns its pid, and a pipe that the shim closes when the task runs.

    The shim gets secrets by a file in memory that has no name.
    """
    handed = secrets.in_memory() if secrets else None
    try:
        return _spawned(directory, handed)
    finally:
        if handed is not None:
            os.close(handed)


def _spawned(directory: Path, handed: int | None) -> tuple[int, int]:
    ours, its = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _RUN_SHIM, str(directory.absolute())],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, its, 1),
                (os.POSIX_SPAWN_OPEN, 2, str(directory / "shim.log"), flags, 0o600),
                *([] if handed is None else [(os.POSIX_SPAWN_DUP2, handed, SECRETS)]),
            ],
            setsid=True,
            setsigmask=[],
        )
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(its)
    return pid, ours


def _entrances(spec: TaskSpec, measures: Measures) -> Sequence[str]:
    if measures.groups is None:
        return ()
    most = measures.isolation.processes
    made = measures.groups.make(spec.key, processes=most, memory_mib=spec.memory_mib)
    return made.entrances


def _group(spec: Mapping[str, Any] | None) -> TaskControlGroups | None:
    """The control groups that a task was started in; `None` if it has none."""
    confinement = spec and spec.get("confinement")
    entrances = confinement["groups"] if confinement else ()
    return (
        TaskControlGroups([Path(entrance).parent for entrance in entrances]) if entrances else None
    )


def _exit_record(directory: Path, key: TaskKey) -> Exit:
    """The exit record of an attempt whose shim is gone; a substitute if the shim wrote none.

    When a shim is killed, the task's first process dies too (PR_SET_PDEATHSIG). Other processes of
    the task are found by their environment and killed here.
    """
    expiry = time.monotonic() + _SHIM_START_S
    while not (record := read_json(directory / "exit.json")):
        with _locked(directory) as free:
            # Holding the lock keeps a shim that starts late from running the task.
            if free and not (directory / "exit.json").exists():
                ran = (directory / "shim.json").exists()
                spec = read_json(directory / "spec.json")
                kill_marked({name: spec["env"].get(name) for name in _MARKS} if spec else {})
                group = _group(spec)
                while group and not group.kill():
                    time.sleep(_POLL_S)
                code = -signal.SIGKILL if ran else 0
                made_up = {
                    "code": code,
                    "at_ms": int(time.time() * 1000),
                    "ran": ran,
                    "stopped": (directory / "stop.json").exists(),
                }
                write_json(directory / "exit.json", made_up)
                _log.warning("shim died", key=str(key), ran=ran)
        if time.monotonic() > expiry:
            raise StartFailed(f"the shim of {key} neither runs nor ends")
        time.sleep(_POLL_S)
    message = _memory_message(directory) if record["code"] else ""
    return Exit(**record, message=message)


def _remove_short_name(spec: Mapping[str, Any] | None) -> None:
    """Remove the short name of an attempt's files, now that no process of it uses it."""
    if spec and spec.get("short"):
        remove_link(Path(spec["short"]))


def _memory_message(directory: Path) -> str:
    spec = read_json(directory / "spec.json")
    group = _group(spec)
    if not spec or not group or not group.ran_out_of_memory():
        return ""
    return f"out of memory: the task's limit is {spec['memory_mib']} MiB"


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Try to take a shim's lock; yields whether it was free."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
