"""The runtime port: something that runs tasks which outlive the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from eva_worker.orders import Build, TaskKey

Tell = Callable[[str], None]
"""Told a line of progress for the user; may be called in any thread."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a task is to run in.

    Attributes:
        reference: Of an image that exists; empty for the runtime's own.
        build: What it is made of instead.
        lay_out: Puts the build context with this digest into a directory.
    """

    reference: str
    build: Build | None
    lay_out: Callable[[str, Path], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task, ready to run.

    Attributes:
        command: For ``/bin/sh -c``.
        env: Its whole environment.
        workdir: Where it runs; exists.
        log: File to append its standard output and error to.
        cpus: Real CPUs that it may use; empty for all.
        gpus: UUIDs of its GPUs.
        memory_mib: Mebibytes that it may use, where the runtime can limit it; 0 for no limit.
        image: What it runs in, where the runtime has images; from `Runtime.prepare`.
        elsewhere: Where parts of ``$EVA_STORAGE`` are that do not lie in it, by their paths there.
    """

    key: TaskKey
    command: str
    env: Mapping[str, str]
    workdir: Path
    log: Path
    cpus: Sequence[int] = field(default=())
    gpus: Sequence[str] = field(default=())
    memory_mib: int = 0
    image: str = ""
    elsewhere: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended.

    Attributes:
        code: Of its first process; minus the number of the signal that ended it.
        at_ms: When nothing was left of it, in milliseconds since the epoch.
        ran: Whether the command was ever begun.
        message: What the code does not say, for the user; mostly empty.
    """

    code: int
    at_ms: int
    ran: bool = True
    message: str = ""


class Runtime(Protocol):
    """Runs tasks.

    An attempt is started at most once, whatever becomes of the agent in between; its exit is
    kept until `cleanup`. An attempt has exited when no process of it is left.
    """

    async def prepare(self, image: Image, tell: Tell) -> str:
        """Have an image ready, so that a start need not wait for it.

        May be repeated and cancelled at any time; who asks for what is on its way joins in.

        Args:
            image: What is wanted.
            tell: Told how it goes.

        Returns:
            The `TaskSpec.image` that names it.

        Raises:
            StartFailed: It cannot be had, or the runtime has no images.
            TransferFailed: The build context cannot be had.
        """
        ...

    async def start(self, spec: TaskSpec) -> None:
        """Begin an attempt; returns when it runs (or is over already).

        Raises:
            StartFailed: It cannot be started, or was started before.
        """
        ...

    async def wait(self, key: TaskKey) -> Exit:
        """Wait until an attempt that was started or adopted has exited; any number may wait."""
        ...

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        """Ask all of its processes to end, and end what is left after the grace.

        Returns when it is under way. Of several stops the earliest deadline counts. Does nothing
        if the attempt has exited or is not known.
        """
        ...

    async def kill(self, key: TaskKey) -> None:
        """End all of its processes now; otherwise like `stop`."""
        ...

    async def adopt(self) -> Sequence[TaskKey]:
        """Find the attempts that an earlier agent started, running and exited alike."""
        ...

    async def cleanup(self, key: TaskKey) -> None:
        """Forget an attempt that has exited."""
        ...
