"""The runtime port: something that runs tasks which outlive the agent."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from eva_worker.orders import Build, TaskKey
from eva_worker.runtime.attaching import AttachedCommand, Execution
from eva_worker.secret_values import NO_SECRETS, SecretValues

Tell = Callable[[str], None]
"""Called with a line of progress for the user, in any thread."""


@dataclass(frozen=True, slots=True)
class Image:
    """The image that a task is to run in.

    Attributes:
        reference: Name of an existing image; empty for the runtime's default.
        build: How to build it instead.
        lay_out: Writes the build context with a given digest into a directory, which it makes.
        memory_mib: Mebibytes that each step of the build may use: those of the task, which does not
            run meanwhile; 0 for no limit.
    """

    reference: str
    build: Build | None
    lay_out: Callable[[str, Path], Awaitable[None]]
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Everything that a runtime needs to run a task.

    Attributes:
        command: A script, which `script` says how to start.
        env: Its environment, but for `defaults` and TMPDIR.
        workdir: Directory that it runs in, which exists.
        log: File to append its standard output and error to.
        cpus: CPUs of the machine that it may use; empty for all.
        gpus: UUIDs of its GPUs.
        memory_mib: Mebibytes that it may use, where the runtime can limit it; 0 for no limit.
        image: The image that it runs in, from `Runtime.prepare`; empty if the runtime has no
            images.
        elsewhere: Directories that are mounted in ``$EVA_STORAGE``, by their paths in it.
        gang: Whether it is a member of a gang, whose other members must reach it on any port.
        lease: The file of the lease that it runs under and the epoch, see
            `eva_worker.process.lease`; `None` but on owned nodes.
        temporary: Directory of its temporary files, which TMPDIR names unless that is stated;
            `None` for one beside the log, which nothing names.
        defaults: Variables that count where neither `env` nor the image states them.
        secrets: Variables that precede all others. No file of a disk has them, nor what the runtime
            tells of a task.
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
    gang: bool = False
    lease: tuple[str, int] | None = None
    temporary: Path | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    secrets: SecretValues = NO_SECRETS


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended.

    Attributes:
        code: Exit code of its first process; minus the number of the signal that ended it.
        at_ms: When its last process ended, in milliseconds since the epoch.
        ran: Whether the command was ever started.
        message: More about the exit, for the user; usually empty.
        stopped: Whether a stop reached the attempt before its first process ended.
        blameless: Whether the runtime ended it, which the program could do nothing about.
        ran_ms: For how long it ran by CLOCK_MONOTONIC; `None` if the runtime does not know.
    """

    code: int
    at_ms: int
    ran: bool = True
    message: str = ""
    stopped: bool = False
    blameless: bool = False
    ran_ms: int | None = None


async def timed(preparing: Awaitable[str]) -> tuple[str, int]:
    """The result of `Runtime.prepare`, and the milliseconds that it took."""
    began = time.monotonic()
    image = await preparing
    return image, round((time.monotonic() - began) * 1000)


class Runtime(Protocol):
    """Runs tasks, which outlive the agent.

    An attempt is started at most once, even if the agent dies in between. Its exit is kept until
    `cleanup`. An attempt has exited when no process of it is left.
    """

    @property
    def confinement(self) -> str:
        """Means that keep tasks from what is none of their business, for users."""
        ...

    async def prepare(self, image: Image, tell: Tell) -> str:
        """Fetch or build an image, so that a start need not wait for it.

        The call may be repeated and cancelled at any time. Concurrent calls for one image share the
        work.

        Args:
            image: The wanted image.
            tell: Called with lines of progress.

        Returns:
            The `TaskSpec.image` that names it.

        Raises:
            StartFailed: The image cannot be fetched or built, or the runtime has no images.
            TransferFailed: The build context cannot be downloaded.
        """
        ...

    async def start(self, spec: TaskSpec) -> None:
        """Start an attempt; returns when it runs or is already over.

        Raises:
            StartFailed: The task cannot be started, or was started before.
            InstanceFailed: The task cannot be started here, for no fault of its own.
        """
        ...

    async def wait(self, key: TaskKey) -> Exit:
        """Wait until a started or adopted attempt has exited. Several callers may wait."""
        ...

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        """Send SIGTERM to all of its processes, and kill what is left after the grace period.

        Returns at once. Of several stops the earliest end counts. Does nothing if the attempt
        has exited or is unknown.
        """
        ...

    async def kill(self, key: TaskKey) -> None:
        """Kill all of its processes now; otherwise like `stop`."""
        ...

    async def owns(self, key: TaskKey, pid: int) -> bool:
        """Whether a process of this machine belongs to an attempt, by its number here."""
        ...

    async def execute(self, key: TaskKey, command: AttachedCommand) -> Execution:
        """Start a command in the environment, the confinement and the control group of a task.

        The command ends with the task at the latest, and is over before `wait` returns.

        Raises:
            AttachRefused: The attempt does not run, or the command cannot be started.
        """
        ...

    async def address(self, key: TaskKey, port: int) -> tuple[str, int]:
        """Find where a process of an attempt listens for connections to a TCP port.

        Raises:
            AttachRefused: None does; other processes of this machine do not count.
        """
        ...

    async def adopt(self) -> Sequence[TaskKey]:
        """Find the attempts that an earlier agent started, both running and exited ones.

        Commands beside them that the earlier agent began are killed.
        """
        ...

    async def cleanup(self, key: TaskKey) -> None:
        """Forget an attempt that has exited."""
        ...
