"""Kills the containers of a worker whose lease has run out, without its agent."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from docker.errors import APIError, NotFound

from eva_worker.errors import BadOrder, RuntimeUnavailable
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.runtime.docker import stops
from eva_worker.runtime.docker.engine import FAILURES, connect, reason
from eva_worker.runtime.docker.labels import ATTEMPT, COPY, labels_of

_ANSWER_S = 10.0
_AT_ONCE = 8

_log = structlog.get_logger()


def kill_all(host: str, root: Path, *, instance: str) -> bool:
    """Kill the containers that run, and remove those that have not begun to.

    Args:
        host: The engine's URL; empty for the usual one.
        root: The directory of the runtime's records.
        instance: The instance's id.

    Returns:
        Whether none was left, by the engine's own word.
    """
    try:
        client = connect(host, timeout_s=_ANSWER_S)
    except RuntimeUnavailable as error:
        _log.error("containers may run on: the engine does not answer", error=str(error))
        return False
    try:
        wanted = [f"{name}={value}" for name, value in labels_of(instance, root).items()]
        containers = client.containers.list(
            all=True, filters={"label": wanted}, ignore_removed=True, sparse=True
        )
        alive = [
            container
            for container in containers
            if container.attrs.get("State") not in {"exited", "dead"}
        ]
        # At once: an engine may take long over one of them.
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda container: _kill(container, root), alive))
    except Exception as error:
        # Any error: without this nothing would end the tasks of a node that is cut off.
        _log.error("containers may run on: the engine fails", error=reason(error))
        return False
    finally:
        with contextlib.suppress(*FAILURES):
            client.close()
    return not alive


def _kill(container: Any, root: Path) -> None:
    """Kill one, and note that it was stopped: its end is nobody's failure."""
    labels = container.attrs.get("Labels") or {}
    with contextlib.suppress(BadOrder, KeyError, ValueError, OSError):
        record = root / TaskKey(labels[COPY], int(labels[ATTEMPT])).path / "stop.json"
        if record.parent.is_dir() and not read_json(record):
            write_json(record, stops.within(0))
    try:
        _end(container)
    except Exception as error:
        # Whatever the engine said of this one, the others end; the next look finds it again.
        _log.error("a container may run on", container=container.id, error=reason(error))


def _end(container: Any) -> None:
    with contextlib.suppress(NotFound):
        try:
            container.kill()
        except APIError:  # The container has ended meanwhile, or has not begun to run.
            container.reload()
            if container.status == "created":
                container.remove(force=True, v=True)
