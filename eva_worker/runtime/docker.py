"""Tasks as Docker containers, one for each attempt.

The engine outlives the agent and keeps exit codes. What the agent knows of an attempt besides is
in a directory of its own: that it was started at all, the stop that was asked for, the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import docker
import structlog
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, LogConfig, Mount

from eva_worker.durable import read_json, write_json
from eva_worker.errors import RuntimeUnavailable, StartFailed
from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit, TaskSpec

_T = TypeVar("_T")

# What the client raises: its errors, and those of `requests`, which are `OSError`s.
_FAILURES = (DockerException, OSError)
_RETRY_S = 1.0
_SIGNALLED = 128  # A shell's exit code for a signal is this much more than its number.
_MIB = 1 << 20
_INSTANCE, _HOME, _COPY, _ATTEMPT = "eva.instance", "eva.home", "eva.copy", "eva.attempt"
_WORK, _LOG, _SOCKET = "/eva/work", "/eva/log", "/eva/run"
# Variables that name a directory, and where the task finds it.
_DIRECTORIES = {"EVA_STORAGE": "/eva/storage", "EVA_CHECKPOINT_DIR": "/eva/checkpoints"}

# The parent of the program inside the container. When it ends, the init above it and with it all
# of the container do: asked to stop, it therefore stays until it is the last, so that a program
# below a shell that dies of the signal has its grace, too. -1 is every process but init and self.
_PARENT = f"""exec >>{_LOG} 2>&1
stopped=
trap stopped=1 TERM
/bin/sh -c "$1"
code=$?
until [ -z "$stopped" ] || ! kill -0 -1; do sleep 0.1; done 2>/dev/null
exit $code"""
_TERMINATE = "kill -TERM -1"

_log = structlog.get_logger()


def connect(host: str = "") -> Any:
    """Connect to a Docker engine.

    Args:
        host: Its URL; empty for the one that ``DOCKER_HOST`` or the system names.

    Returns:
        A `docker.DockerClient`.

    Raises:
        RuntimeUnavailable: It does not answer.
    """
    environment = os.environ | ({"DOCKER_HOST": host} if host else {})
    try:
        return docker.from_env(environment=environment)
    except _FAILURES as error:
        where = environment.get("DOCKER_HOST", "its usual socket")
        raise RuntimeUnavailable(f"no Docker engine at {where}: {error}") from error


class DockerRuntime:
    """The runtime whose tasks are containers; to be made in a running event loop.

    Args:
        root: Directory for its records, one directory per attempt.
        client: A `docker.DockerClient`, used from several threads.
        instance: The instance's id, for the label that its containers bear.
        default_image: For tasks that name none.
        real_gpus: Whether the engine is asked for GPUs, rather than only the environment
            naming them.
    """

    def __init__(
        self,
        root: Path,
        client: Any,
        *,
        instance: str,
        default_image: str = "",
        real_gpus: bool = True,
    ) -> None:
        self._root = root.absolute()
        self._client = client
        self._default_image = default_image
        self._real_gpus = real_gpus
        # Two clusters may call an instance the same: its state directory tells them apart.
        self._labels = {_INSTANCE: instance, _HOME: str(self._root)}
        self._watches: dict[TaskKey, asyncio.Future[Exit]] = {}
        self._kills: dict[TaskKey, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Lock()
        self._closed = threading.Event()

    async def start(self, spec: TaskSpec) -> None:
        """See `Runtime.start`; fetches the image if the engine does not have it."""
        await _in_thread(f"start {spec.key}", lambda: self._launch(spec))
        self._watch(spec.key)

    async def wait(self, key: TaskKey) -> Exit:
        """See `Runtime.wait`."""
        return await asyncio.shield(self._watches[key])

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        """See `Runtime.stop`."""
        deadline_ms = _now_ms() + int(grace_s * 1000)
        path = self._root / key.path / "stop.json"
        async with self._stopping:
            watch = self._watches.get(key)
            if watch is None or watch.done():
                return
            earlier = await asyncio.to_thread(read_json, path)
            if earlier and earlier["deadline_ms"] <= deadline_ms:
                return
            await asyncio.to_thread(write_json, path, {"deadline_ms": deadline_ms})
            if not earlier and grace_s > 0:
                self._spawn(self._ask(key))
            self._kill_at(key, deadline_ms)

    async def kill(self, key: TaskKey) -> None:
        """See `Runtime.kill`."""
        await self.stop(key, 0)

    async def adopt(self) -> Sequence[TaskKey]:
        """See `Runtime.adopt`; removes containers of this worker that no record knows.

        Raises:
            RuntimeUnavailable: The engine does not answer.
        """
        keys = [TaskKey.from_path(path) for path in sorted(self._root.glob("*/*/*"))]
        try:
            await asyncio.to_thread(self._remove_leftovers, keys)
        except _FAILURES as error:
            raise RuntimeUnavailable(f"the Docker engine fails: {_reason(error)}") from error
        for key in keys:
            if key not in self._watches:
                self._watch(key)
                await self._resume_stop(key)
        return keys

    async def cleanup(self, key: TaskKey) -> None:
        """See `Runtime.cleanup`."""
        watch = self._watches.pop(key, None)
        assert watch is None or watch.done(), f"{key} still runs"
        if timer := self._kills.pop(key, None):
            timer.cancel()
        # An engine that is away now is asked again by the next agent: no record, hence a leftover.
        with contextlib.suppress(*_FAILURES):
            await asyncio.to_thread(self._remove, key)
        await asyncio.to_thread(shutil.rmtree, self._root / key.path, ignore_errors=True)

    def close(self) -> None:
        """Stop watching; the tasks run on."""
        self._closed.set()
        futures: list[asyncio.Future[Any]] = [*self._watches.values(), *self._tasks]
        for future in futures:
            future.cancel()
        self._client.close()

    def _launch(self, spec: TaskSpec) -> None:
        directory = self._root / spec.key.path
        try:
            directory.mkdir(parents=True, exist_ok=False)
        except OSError as error:
            raise StartFailed(f"cannot start {spec.key}: {error}") from error
        try:
            spec.log.touch()
            self._create(spec).start()
            write_json(directory / "started.json", {})
        except (*_FAILURES, StartFailed) as error:
            reason = f"cannot start {spec.key}: {_reason(error)}"
            # Written first: should the removal fail, the next agent makes up for it.
            never = Exit(0, _now_ms(), ran=False, message=reason)
            write_json(directory / "exit.json", asdict(never))
            with contextlib.suppress(*_FAILURES):
                self._remove(spec.key)
            raise StartFailed(reason) from error

    def _create(self, spec: TaskSpec) -> Any:
        image = spec.image or self._default_image
        if not image:
            raise StartFailed("neither the task nor the worker (--docker-image) names an image")
        options = self._options(spec)
        try:
            return self._client.containers.create(image, **options)
        except ImageNotFound:
            _log.info("fetching image", image=image)
            self._client.images.pull(image)
            return self._client.containers.create(image, **options)

    def _options(self, spec: TaskSpec) -> dict[str, Any]:
        """What the container is made of, besides its image."""
        env, mounts = _inside(spec)
        options: dict[str, Any] = {
            "name": self._name(spec.key),
            "labels": self._labels | {_COPY: spec.key.copy, _ATTEMPT: str(spec.key.attempt)},
            "entrypoint": ["/bin/sh", "-c", _PARENT, "eva-task", spec.command],
            "environment": env,
            "mounts": mounts,
            "working_dir": _WORK,
            # Files belong to the agent, which must be able to send and remove them.
            "user": f"{os.geteuid()}:{os.getegid()}",
            "init": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "network_mode": "host",
            # The program writes to the attempt's log itself: nothing is lost between two agents.
            "log_config": LogConfig(type="none"),
        }
        if spec.cpus:
            options["cpuset_cpus"] = ",".join(map(str, spec.cpus))
        if spec.memory_mib:
            limit = spec.memory_mib * _MIB
            # The same with swap is none of it. Shared memory counts as memory anyway, and data
            # loaders need more of it than Docker's 64 MiB.
            options |= {"mem_limit": limit, "memswap_limit": limit, "shm_size": limit}
        if spec.gpus and self._real_gpus:
            request = DeviceRequest(device_ids=list(spec.gpus), capabilities=[["gpu"]])
            options["device_requests"] = [request]
        return options

    def _watch(self, key: TaskKey) -> None:
        self._watches[key] = _in_thread(f"watch {key}", lambda: self._exit(key))

    def _exit(self, key: TaskKey) -> Exit:
        """Wait for an attempt's end, however long the engine is away meanwhile."""
        path = self._root / key.path / "exit.json"
        while not (record := read_json(path)):
            try:
                ended = self._container_exit(key)
            except _FAILURES as error:
                if self._closed.wait(_RETRY_S):
                    raise
                _log.warning("engine fails", key=str(key), error=_reason(error))
                continue
            # Who comes after a closed runtime finds it out and writes it down on its own.
            if not self._closed.is_set():
                write_json(path, asdict(ended))
            return ended
        return Exit(**record)

    def _container_exit(self, key: TaskKey) -> Exit:
        try:
            container = self._client.containers.get(self._name(key))
            if container.status != "created":
                self._client.api.wait(container.id, timeout=None)
                container.reload()
                return _exit_of(container.attrs)
            container.remove(force=True)
        except NotFound:
            if (self._root / key.path / "started.json").exists():
                message = "its container was removed by somebody else"
                return Exit(-signal.SIGKILL, _now_ms(), message=message)
        return Exit(0, _now_ms(), ran=False, message="the agent died while it started the task")

    async def _ask(self, key: TaskKey) -> None:
        """Send SIGTERM to all processes of an attempt."""
        watch = self._watches[key]
        while not watch.done():
            try:
                await asyncio.to_thread(self._terminate, key)
                return
            except _FAILURES as error:
                _log.warning("stop failed", key=str(key), error=_reason(error))
                await asyncio.wait({watch}, timeout=_RETRY_S)

    def _terminate(self, key: TaskKey) -> None:
        # A signal to the container would reach the program's parent alone.
        command = ["/bin/sh", "-c", _TERMINATE]
        execution = self._client.api.exec_create(self._name(key), command)
        self._client.api.exec_start(execution["Id"])
        (self._root / key.path / "asked").touch()

    def _kill_at(self, key: TaskKey, deadline_ms: int) -> None:
        if earlier := self._kills.pop(key, None):
            earlier.cancel()
        self._kills[key] = self._spawn(self._kill_later(key, deadline_ms))

    async def _kill_later(self, key: TaskKey, deadline_ms: int) -> None:
        watch = self._watches[key]
        await asyncio.wait({watch}, timeout=max(0, deadline_ms - _now_ms()) / 1000)
        while not watch.done():
            with contextlib.suppress(*_FAILURES):
                await asyncio.to_thread(self._client.api.kill, self._name(key))
            await asyncio.wait({watch}, timeout=_RETRY_S)

    async def _resume_stop(self, key: TaskKey) -> None:
        """Go on with the stop that an earlier agent began."""
        directory = self._root / key.path
        if asked := await asyncio.to_thread(read_json, directory / "stop.json"):
            if not (directory / "asked").exists() and asked["deadline_ms"] > _now_ms():
                self._spawn(self._ask(key))
            self._kill_at(key, asked["deadline_ms"])

    def _remove_leftovers(self, keys: Sequence[TaskKey]) -> None:
        wanted = {
            self._name(key)
            for key in keys
            if (read_json(self._root / key.path / "exit.json") or {"ran": True})["ran"]
        }
        labels = [f"{name}={value}" for name, value in self._labels.items()]
        for container in self._client.containers.list(
            all=True, filters={"label": labels}, ignore_removed=True
        ):
            if container.name not in wanted:
                _log.warning("removing leftover container", name=container.name)
                with contextlib.suppress(NotFound):
                    container.remove(force=True, v=True)

    def _remove(self, key: TaskKey) -> None:
        with contextlib.suppress(NotFound):
            self._client.api.remove_container(self._name(key), force=True, v=True)

    def _name(self, key: TaskKey) -> str:
        """The name of an attempt's container, fit for people and not to be met twice."""
        digest = hashlib.sha256(f"{self._root}\0{key}".encode()).hexdigest()[:12]
        return f"eva-{re.sub('[^A-Za-z0-9_.-]', '.', key.copy)}-{key.attempt}-{digest}"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _inside(spec: TaskSpec) -> tuple[dict[str, str], list[Mount]]:
    """The environment as it is right inside the container, and the mounts that make it so."""
    env = {"HOME": _WORK, **spec.env}
    sources = {_WORK: spec.workdir.absolute(), _LOG: spec.log.absolute()}
    for name, place in _DIRECTORIES.items():
        if name in env:
            sources[place] = Path(env[name])
            env[name] = place
    if "EVA_SOCKET" in env:
        # Its directory, or the task would not see the socket that the next agent makes.
        socket = Path(env["EVA_SOCKET"])
        sources[_SOCKET] = socket.parent
        env["EVA_SOCKET"] = f"{_SOCKET}/{socket.name}"
    return env, [Mount(place, str(source), type="bind") for place, source in sources.items()]


def _exit_of(container: dict[str, Any]) -> Exit:
    """How an exited container ended."""
    state = container["State"]
    code = int(state["ExitCode"])
    if _SIGNALLED < code <= _SIGNALLED + signal.SIGRTMAX:
        code = _SIGNALLED - code
    message = ""
    if code and state["OOMKilled"]:
        limit_mib = container["HostConfig"]["Memory"] // _MIB
        message = f"out of memory: the task's limit is {limit_mib} MiB"
    at_ms = int(datetime.fromisoformat(state["FinishedAt"]).timestamp() * 1000)
    return Exit(code, at_ms, message=message)


def _reason(error: BaseException) -> str:
    return str((isinstance(error, APIError) and error.explanation) or error)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _in_thread(name: str, work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Run something in a thread of its own, which does not keep the agent from leaving.

    The pool of `asyncio.to_thread` is small and waited for at exit: not for what takes as long
    as a task runs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: _T | None = None
        trouble: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            trouble = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
            loop.call_soon_threadsafe(settle, result, trouble)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
