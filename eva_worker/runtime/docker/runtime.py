"""Tasks as Docker containers, one for each attempt.

The engine outlives the agent and keeps exit codes. The agent records the rest in a directory per
attempt: that it was started, the stop that was requested, the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import structlog
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig, Mount

from eva_worker.errors import (
    AttachRefused,
    BadOrder,
    InstanceFailed,
    RuntimeUnavailable,
    StartFailed,
)
from eva_worker.files.beneath import remove_tree
from eva_worker.isolation import Isolation
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import FULL, read_json, write_json
from eva_worker.process.peers import descends, heads_a_namespace, in_control_group
from eva_worker.process.pids import marked
from eva_worker.runtime import Exit, Image, TaskSpec, Tell
from eva_worker.runtime.attaching import MARK, AttachedCommand, Execution
from eva_worker.runtime.docker import execs, handing, parent, places, ports, stops
from eva_worker.runtime.docker.confinement import (
    Confinement,
    confinement,
    limits,
    network_of_builds,
)
from eva_worker.runtime.docker.engine import (
    FAILURES,
    RETRY_S,
    ContainerEvents,
    connect,
    in_thread,
    now_ms,
    reason,
    unanswered,
)
from eva_worker.runtime.docker.handing import hand_in, take_back
from eva_worker.runtime.docker.images.making import Images, by_name
from eva_worker.runtime.docker.labels import ATTEMPT, COPY, labels_of

_T = TypeVar("_T")

__all__ = ["DockerRuntime", "connect"]

# Exits arrive as events; this interval catches those whose event was lost.
_LOOK_AGAIN_S = 30.0
_NOTICED_MS = 2_000  # The death of an engine is noticed a little after that of its containers.
_START_TRIES = 60
_MIB = 1 << 20
# Messages of an engine when it, or its disk, is the reason why a container does not start.
_ENGINE_FAILS = (
    os.strerror(errno.ENOSPC).lower(),
    "containerd",
    "context canceled",
    "shutting down",
    "transport is closing",
)

_log = structlog.get_logger()


class DockerRuntime:
    """The runtime whose tasks are containers. Create it in a running event loop.

    Args:
        root: Directory of its records, with one directory per attempt.
        client: A `docker.DockerClient`, used from several threads.
        instance: The instance's id, which labels its containers.
        default_image: Image for tasks that name none.
        real_gpus: Whether the engine is asked for GPUs, rather than only the environment
            naming them.
        isolation: Isolation of tasks.
    """

    def __init__(
        self,
        root: Path,
        client: Any,
        *,
        instance: str,
        default_image: str = "",
        real_gpus: bool = True,
        isolation: Isolation | None = None,
    ) -> None:
        self._root = root.absolute()
        self._client = client
        self._default_image = default_image
        self._real_gpus = real_gpus
        self._isolation = isolation or Isolation()
        self._info: dict[str, Any] | None = None
        # Two clusters may use the same instance id: the state directory tells them apart.
        self._labels = labels_of(instance, self._root)
        network = network_of_builds(self._isolation)
        self._images = Images(client, self._root.with_name("contexts"), network)
        self._events = ContainerEvents(
            client, self._labels, happened=self._happened, back=self._back
        )
        self._loop = asyncio.get_running_loop()
        self._watches: dict[TaskKey, asyncio.Task[Exit]] = {}
        self._hints: dict[TaskKey, asyncio.Event] = {}
        self._containers: dict[TaskKey, tuple[str, int]] = {}
        # Explanations of exits: signals that others sent, and when the engine was last away.
        self._killed: set[TaskKey] = set()
        self._away_ms = (0, 0)
        self._began_ms = now_ms()
        self._adopted: set[TaskKey] = set()
        self._kills: dict[TaskKey, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Lock()
        self._closed = threading.Event()

    @property
    def confinement(self) -> str:
        """See `Runtime.confinement`."""
        return "containers"

    async def prepare(self, image: Image, tell: Tell) -> str:
        """See `Runtime.prepare`."""
        if image.reference:
            image = replace(image, reference=by_name(image.reference))
        elif not image.build:
            if not self._default_image:
                raise StartFailed("neither the task nor the worker (--docker-image) names an image")
            image = replace(image, reference=self._default_image)
        return await self._images.ready(image, tell)

    async def start(self, spec: TaskSpec) -> None:
        """See `Runtime.start`."""
        self._events.start()
        await in_thread(f"start {spec.key}", lambda: self._launch(spec))
        self._watch(spec.key)

    async def wait(self, key: TaskKey) -> Exit:
        """See `Runtime.wait`."""
        return await asyncio.shield(self._watches[key])

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        """See `Runtime.stop`."""
        grace_ms = int(grace_s * 1000)
        path = self._root / key.path / "stop.json"
        async with self._stopping:
            watch = self._watches.get(key)
            if watch is None or watch.done():
                return
            earlier = await asyncio.to_thread(read_json, path)
            if earlier and stops.left_ms(earlier) <= grace_ms:
                return
            await asyncio.to_thread(write_json, path, stops.within(grace_ms))
            if not earlier and grace_s > 0:
                self._spawn(self._ask(key))
            self._kill_after(key, grace_ms)

    async def kill(self, key: TaskKey) -> None:
        """See `Runtime.kill`."""
        await self.stop(key, 0)

    async def owns(self, key: TaskKey, pid: int) -> bool:
        """See `Runtime.owns`."""
        if key not in self._containers:
            look = functools.partial(self._client.api.inspect_container, self._name(key))
            try:
                details = await in_thread(f"look at {key}", look)
            except NotFound:
                return False
            if not details["State"]["Pid"]:  # The container has not begun, or is over.
                return False
            self._containers[key] = details["Id"], details["State"]["Pid"]
        container, first = self._containers[key]
        # Engines without rights make no control groups.
        own = in_control_group(pid, container) or (
            heads_a_namespace(first) and await asyncio.to_thread(descends, pid, first)
        )
        # Commands beside the task are in its control group as well.
        return own and not await asyncio.to_thread(marked, pid, MARK)

    async def execute(self, key: TaskKey, command: AttachedCommand) -> Execution:
        """See `Runtime.execute`."""
        self._require_running(key)
        return await execs.begin(self._client, self._name(key), self._root / key.path, command)

    async def address(self, key: TaskKey, port: int) -> tuple[str, int]:
        """See `Runtime.address`."""
        self._require_running(key)
        look = functools.partial(self._client.api.inspect_container, self._name(key))
        try:
            container = await in_thread(f"look at {key}", look)
        except FAILURES as error:
            raise AttachRefused(f"its engine fails: {reason(error)}") from error
        return await asyncio.to_thread(ports.address_of, key, container, port)

    def _require_running(self, key: TaskKey) -> None:
        watch = self._watches.get(key)
        if watch is None or watch.done():
            raise AttachRefused(f"{key.run} does not run any more")

    async def adopt(self) -> Sequence[TaskKey]:
        """Find the attempts of an earlier agent; remove containers of this worker without a record.

        Raises:
            RuntimeUnavailable: The Docker engine does not answer.
        """
        keys = [TaskKey.from_path(path) for path in sorted(self._root.glob("*/*/*"))]
        try:
            await in_thread("remove leftovers", lambda: self._remove_leftovers(keys))
        except FAILURES as error:
            raise RuntimeUnavailable(f"the Docker engine fails: {reason(error)}") from error
        for key in keys:
            if key not in self._watches:
                await asyncio.to_thread(execs.end_recorded, self._root / key.path)
                await asyncio.to_thread(take_back, self._root / key.path)
                self._adopted.add(key)
                self._watch(key)
                await self._resume_stop(key)
        return keys

    async def cleanup(self, key: TaskKey) -> None:
        """See `Runtime.cleanup`."""
        watch = self._watches.pop(key, None)
        assert watch is None or watch.done(), f"{key} still runs"
        if timer := self._kills.pop(key, None):
            timer.cancel()
        try:
            await in_thread(f"remove {key}", lambda: self._remove(key))
        except FAILURES as error:
            # If this agent dies first, the next one removes the container, which has no record.
            _log.warning("container not removed yet", key=str(key), error=reason(error))
            self._spawn(self._remove_later(key))
        self._hints.pop(key, None)
        self._containers.pop(key, None)
        self._killed.discard(key)
        self._adopted.discard(key)
        await asyncio.to_thread(remove_tree, self._root / key.path)

    def close(self) -> None:
        """Stop watching the tasks, which keep running."""
        self._closed.set()
        self._events.close()
        futures: list[asyncio.Future[Any]] = [*self._watches.values(), *self._tasks]
        for future in futures:
            future.cancel()
        self._client.close()

    def _launch(self, spec: TaskSpec) -> None:
        directory = self._root / spec.key.path
        try:
            directory.mkdir(parents=True, exist_ok=False)
        except OSError as error:
            failure = InstanceFailed if error.errno in FULL else StartFailed
            raise failure(f"cannot start {spec.key}: {error}") from error
        try:
            spec.log.touch()
            temporary = places.temporary(spec)
            confined = self._confinement(spec)
            if confined.owner:
                places.hand_over_files(spec, temporary, *confined.owner)
            place = hand_in(spec.secrets, directory, confined.owner) if spec.secrets else None
            self._start(self._create(spec, temporary, confined, place))
            take_back(directory)
            write_json(directory / "started.json", {})
        except (*FAILURES, StartFailed) as error:
            why = f"cannot start {spec.key}: {reason(error)}"
            # Do not report that it never ran while the engine might still start it.
            self._persistently(lambda: self._remove(spec.key))
            take_back(directory)
            ours = unanswered(error) or any(words in why.lower() for words in _ENGINE_FAILS)
            ended = Exit(0, now_ms(), ran=False, message=why, blameless=ours)
            write_json(directory / "exit.json", asdict(ended))
            raise (InstanceFailed if ours else StartFailed)(why) from error

    def _confinement(self, spec: TaskSpec) -> Confinement:
        if self._info is None:
            self._info = self._persistently(self._client.info)
        uid, gid = os.geteuid(), os.getegid()
        return confinement(self._isolation, self._info, gang=spec.gang, uid=uid, gid=gid)

    def _create(
        self, spec: TaskSpec, temporary: Path, confined: Confinement, secrets: Path | None
    ) -> Any:
        image = spec.image or self._default_image
        options = self._options(spec, temporary) | confined.options
        if secrets is not None:
            file = Mount(handing.PLACE, str(secrets), type="bind", read_only=True)
            options["mounts"].append(file)
        for tries_left in reversed(range(_START_TRIES)):
            try:
                return self._client.containers.create(image, **options)
            except APIError as error:
                if error.status_code != HTTPStatus.CONFLICT:
                    raise
                # The name is taken, so an earlier try did reach the engine, which may still be busy
                # with it, or give it up.
                with contextlib.suppress(NotFound):
                    return self._client.containers.get(options["name"])
                if not tries_left or self._closed.wait(RETRY_S):
                    raise
            except FAILURES as error:
                if not tries_left or self._closed.wait(RETRY_S):
                    raise
                _log.warning("engine fails", key=str(spec.key), error=reason(error))
        raise AssertionError

    def _start(self, container: Any) -> None:
        """Start a container once. A start without an answer is not repeated but looked up."""
        try:
            container.start()
        except FAILURES as error:
            if not (unanswered(error) and self._persistently(lambda: _began(container))):
                raise

    def _persistently(self, what: Callable[[], _T]) -> _T:
        """Repeat a call until the engine answers."""
        while True:
            try:
                return what()
            except FAILURES as error:
                if self._closed.wait(RETRY_S):
                    raise
                _log.warning("engine fails", error=reason(error))

    def _options(self, spec: TaskSpec, temporary: Path) -> dict[str, Any]:
        """The options of the container, besides its image."""
        env, mounts = places.inside(spec, temporary)
        options: dict[str, Any] = {
            "name": self._name(spec.key),
            "labels": self._labels | {COPY: spec.key.run, ATTEMPT: str(spec.key.attempt)},
            "entrypoint": parent.command(spec),
            "environment": env,
            "mounts": mounts,
            "working_dir": places.WORK,
            "init": True,
            # `_ask` stops the program. An engine that ends signals only the parent, which does not
            # pass the signal on, so waiting for it would only delay the engine.
            "stop_signal": "SIGKILL",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            # The program itself writes to the attempt's log, so nothing is lost between two agents.
            "log_config": LogConfig(type="none"),
            **limits(self._isolation),
        }
        if spec.cpus:
            options["cpuset_cpus"] = ",".join(map(str, spec.cpus))
        if spec.memory_mib:
            limit = spec.memory_mib * _MIB
            # A limit that includes swap means no swap. Shared memory counts as memory anyway, and
            # data loaders need more of it than Docker's 64 MiB.
            options |= {"mem_limit": limit, "memswap_limit": limit, "shm_size": limit}
        if spec.gpus and self._real_gpus:
            request = DeviceRequest(device_ids=list(spec.gpus), capabilities=[["gpu"]])
            options["device_requests"] = [request]
        return options

    def _watch(self, key: TaskKey) -> None:
        self._events.start()
        self._hints[key] = asyncio.Event()
        self._watches[key] = asyncio.create_task(self._exit(key), name=f"watch {key}")

    async def _exit(self, key: TaskKey) -> Exit:
        """Wait for an attempt's end, even while the engine is away."""
        hint = self._hints[key]
        lost_ms = 0
        while True:
            hint.clear()
            pause_s = _LOOK_AGAIN_S
            began_ms = now_ms()
            try:
                look = functools.partial(self._look_up, key, lost_ms)
                if ended := await in_thread(f"look at {key}", look):
                    return ended
                lost_ms = 0
            except FAILURES as error:
                pause_s, lost_ms = RETRY_S, lost_ms or began_ms
                _log.warning("end not known yet", key=str(key), error=reason(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await hint.wait()

    def _look_up(self, key: TaskKey, lost_ms: int) -> Exit | None:
        """Look up how an attempt ended; `None` if it has not.

        Args:
            key: The attempt.
            lost_ms: Since when looking it up has failed; 0 if the last time succeeded.
        """
        path = self._root / key.path / "exit.json"
        if record := read_json(path):
            return Exit(**record)
        ended = self._container_exit(key, lost_ms)
        # Code 0 is that of a program that ended by itself, as the parent sees to.
        if ended and ended.code and path.with_name("stop.json").exists():
            ended = replace(ended, stopped=True)
        # This runtime is closed; the next agent looks up the exit and records it.
        if ended and not self._closed.is_set():
            write_json(path, asdict(ended))
        return ended

    def _container_exit(self, key: TaskKey, lost_ms: int) -> Exit | None:
        try:
            container = self._client.api.inspect_container(self._name(key))
            status = container["State"]["Status"]
            if status in {"exited", "dead"}:
                return self._explained(key, _exit_of(container), lost_ms)
            if status != "created":
                return None
            self._remove(key)
        except NotFound:
            if (self._root / key.path / "started.json").exists():
                message = "its container was removed by another program"
                return Exit(-signal.SIGKILL, now_ms(), message=message, blameless=True)
        message = "the agent died while it was starting the task"
        return Exit(0, now_ms(), ran=False, message=message, blameless=True)

    def _explained(self, key: TaskKey, ended: Exit, lost_ms: int) -> Exit:
        """Explain a kill that this worker did not ask for, if its origin is known."""
        asked = (self._root / key.path / "stop.json").exists()
        if ended.code != -signal.SIGKILL or ended.message or asked:
            return ended
        # The engine may answer before its events arrive again.
        spans = (self._away_ms, (lost_ms, lost_ms and now_ms()))
        if any(lost - _NOTICED_MS <= ended.at_ms <= back for lost, back in spans):
            message = "the Docker engine went away and ended the task"
            return replace(ended, message=message, blameless=True)
        if key in self._adopted and ended.at_ms < self._began_ms:
            message = "killed while its agent was away, perhaps along with the Docker engine"
            return replace(ended, message=message, blameless=True)
        if key in self._killed:
            message = "killed through the Docker engine: by another program, or as it was stopped"
            return replace(ended, message=message)
        return ended

    def _happened(self, action: str, labels: Mapping[str, str]) -> None:
        """Handle an event, in the thread that follows them."""
        try:
            key = TaskKey(labels[COPY], int(labels[ATTEMPT]))
        except (KeyError, ValueError, BadOrder):  # Another program's, with our labels.
            return
        if action == "kill":
            self._killed.add(key)
        else:
            self._hint([key])

    def _back(self, lost_ms: int, back_ms: int) -> None:
        """Note that events arrive again, in the thread that follows them."""
        self._away_ms = (lost_ms, back_ms)
        self._hint(list(self._hints))

    def _hint(self, keys: Sequence[TaskKey]) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed, so no task waits.
            for key in keys:
                if hint := self._hints.get(key):
                    self._loop.call_soon_threadsafe(hint.set)

    async def _ask(self, key: TaskKey) -> None:
        """Send SIGTERM to all processes in an attempt's container."""
        watch = self._watches[key]
        while not watch.done():
            try:
                await in_thread(f"stop {key}", lambda: self._terminate(key))
                return
            except FAILURES as error:
                _log.warning("stop failed", key=str(key), error=reason(error))
                await asyncio.wait({watch}, timeout=RETRY_S)

    def _terminate(self, key: TaskKey) -> None:
        # A signal to the container would reach only the program's parent.
        command = ["/bin/sh", "-c", parent.TERMINATE]
        execution = self._client.api.exec_create(self._name(key), command)
        self._client.api.exec_start(execution["Id"])
        (self._root / key.path / "asked").touch()

    def _kill_after(self, key: TaskKey, left_ms: int) -> None:
        if earlier := self._kills.pop(key, None):
            earlier.cancel()
        self._kills[key] = self._spawn(self._kill_later(key, left_ms))

    async def _kill_later(self, key: TaskKey, left_ms: int) -> None:
        watch = self._watches[key]
        await asyncio.wait({watch}, timeout=left_ms / 1000)
        while not watch.done():
            with contextlib.suppress(*FAILURES):
                await in_thread(f"kill {key}", lambda: self._client.api.kill(self._name(key)))
            await asyncio.wait({watch}, timeout=RETRY_S)

    async def _resume_stop(self, key: TaskKey) -> None:
        """Continue the stop that an earlier agent began."""
        directory = self._root / key.path
        if asked := await asyncio.to_thread(read_json, directory / "stop.json"):
            left_ms = stops.left_ms(asked)
            if not (directory / "asked").exists() and left_ms:
                self._spawn(self._ask(key))
            self._kill_after(key, left_ms)

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

    async def _remove_later(self, key: TaskKey) -> None:
        removed = False
        while not removed:
            await asyncio.sleep(RETRY_S)
            with contextlib.suppress(*FAILURES):
                await in_thread(f"remove {key}", lambda: self._remove(key))
                removed = True

    def _name(self, key: TaskKey) -> str:
        """The name of an attempt's container: readable, and unique."""
        digest = hashlib.sha256(f"{self._root}\0{key}".encode()).hexdigest()[:12]
        return f"eva-{re.sub('[^A-Za-z0-9_.-]', '.', key.run)}-{key.attempt}-{digest}"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _exit_of(container: dict[str, Any]) -> Exit:
    """How an exited container ended."""
    state = container["State"]
    code = int(state["ExitCode"])
    if parent.SIGNALLED < code <= parent.SIGNALLED + signal.SIGRTMAX:
        code = parent.SIGNALLED - code
    message = str(state.get("Error") or "")  # The engine says why it could not run it to its end.
    if code and state["OOMKilled"]:
        limit_mib = container["HostConfig"]["Memory"] // _MIB
        message = f"out of memory: the task's limit is {limit_mib} MiB"
    at_ms = int(datetime.fromisoformat(state["FinishedAt"]).timestamp() * 1000)
    return Exit(code, at_ms, message=message)


def _began(container: Any) -> bool:
    """Whether a container runs or has run. One that has not never will."""
    try:
        container.reload()
        if container.status != "created":
            return True
        container.remove()  # The engine refuses this if the container starts at this moment.
    except NotFound:
        return False
    return False
