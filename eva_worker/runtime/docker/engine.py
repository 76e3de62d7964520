"""Connects to the Docker engine, runs long calls in threads, and follows its events."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import docker
import structlog
from docker.errors import APIError, DockerException
from docker.types import CancellableStream

from eva_worker.errors import RuntimeUnavailable

_T = TypeVar("_T")

# The client raises its own errors and those of `requests`, which are `OSError`s.
FAILURES = (DockerException, OSError)
RETRY_S = 1.0
# Longer than an engine under load takes to start a container. Then the call is repeated.
_CALL_S = 60
_EVENTS = ["die", "destroy", "kill"]

_log = structlog.get_logger()


def connect(host: str = "", *, timeout_s: float = _CALL_S) -> Any:
    """Connect to a Docker engine.

    Args:
        host: The engine's URL; empty for the one that ``DOCKER_HOST`` or the system names.
        timeout_s: Seconds without a response after which a call fails.

    Returns:
        A `docker.DockerClient`.

    Raises:
        RuntimeUnavailable: The engine does not answer.
    """
    environment = os.environ | ({"DOCKER_HOST": host} if host else {})
    try:
        return docker.from_env(environment=environment, timeout=timeout_s)
    except FAILURES as error:
        where = environment.get("DOCKER_HOST", "its usual socket")
        raise RuntimeUnavailable(f"no Docker engine at {where}: {error}") from error


def reason(error: BaseException) -> str:
    """The engine's error message, for the user."""
    return str((isinstance(error, APIError) and error.explanation) or error)


def unanswered(error: BaseException) -> bool:
    """Whether it is unknown if the engine has carried out the call."""
    return isinstance(error, FAILURES) and not isinstance(error, APIError)


def now_ms() -> int:
    """The wall-clock time in milliseconds since the epoch."""
    return int(time.time() * 1000)


def in_thread(name: str, work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Run a call in a thread of its own, which does not keep the agent from leaving.

    The thread pool of `asyncio.to_thread` is small and is waited for at exit. An engine that hangs
    would fill it, and the agent could no longer write its records.
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


def close_stream(stream: CancellableStream) -> None:
    """Close a stream, so that its reader comes to the end."""
    with contextlib.suppress(AttributeError, *FAILURES):  # The stream has already ended.
        stream.close()


class ContainerEvents:
    """Follows the events of the containers of one worker, in one thread.

    An event is only a hint to look at a container. After each reconnect all containers have to be
    looked at, so that no event needs to be kept.

    Args:
        client: A `docker.DockerClient`.
        labels: Labels of the containers to follow.
        happened: Called in the thread with the action and the container's labels.
        back: Called in the thread when events arrive (again), with the begin and the end of the gap
            in milliseconds since the epoch; 0 and 0 the first time.
    """

    def __init__(
        self,
        client: Any,
        labels: Mapping[str, str],
        *,
        happened: Callable[[str, Mapping[str, str]], None],
        back: Callable[[int, int], None],
    ) -> None:
        self._client = client
        self._filters = {
            "type": "container",
            "label": [f"{name}={value}" for name, value in labels.items()],
            "event": _EVENTS,
        }
        self._happened = happened
        self._back = back
        self._closed = threading.Event()
        self._stream: CancellableStream | None = None
        self._thread = threading.Thread(target=self._run, name="docker events", daemon=True)

    def start(self) -> None:
        """Start the thread; does nothing the second time."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread that follows events."""
        self._closed.set()
        if self._stream is not None:
            close_stream(self._stream)

    def _run(self) -> None:
        lost_ms = 0
        while not self._closed.is_set():
            began_ms = now_ms()
            try:
                stream = self._open(lost_ms)
                try:
                    for event in stream:
                        self._happened(event["Action"], event["Actor"]["Attributes"])
                finally:
                    lost_ms = now_ms()
            except Exception as error:
                lost_ms = lost_ms or began_ms
                # Any error: without this thread no exit would be noticed.
                if not self._closed.is_set():
                    _log.warning("engine fails", error=reason(error))
            self._closed.wait(RETRY_S)

    def _open(self, lost_ms: int) -> CancellableStream:
        since = (lost_ms or now_ms()) // 1000 - 1
        self._stream = stream = self._client.events(since=since, filters=self._filters, decode=True)
        if self._closed.is_set():
            close_stream(stream)
        self._back(lost_ms, now_ms() if lost_ms else 0)
        return stream
