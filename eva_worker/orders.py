"""Messages between master and worker, as plain values; `wire` converts them to protobuf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from eva_worker.errors import BadOrder

MOST_STEPS = 2**53
"""Largest count of steps that counts: larger ones are not exact in a float."""

DEFAULT_ROOTS = ("s3://",)
"""Where inputs may come from if a master of an earlier version does not say."""

# The parts become directory names: they must not begin with a dot or lead upwards.
_COPY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}/[0-9]{1,9}(\+[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """One attempt of a task run. A worker runs it at most once.

    Attributes:
        run: ``JOB/INDEX``, or ``JOB/INDEX+N`` for an extra task run.
        attempt: From 1; a later attempt has a larger number.

    Raises:
        BadOrder: The id is not of that form or the number is not positive.
    """

    run: str
    attempt: int

    def __post_init__(self) -> None:
        if not _COPY_ID.fullmatch(self.run) or self.attempt < 0:
            raise BadOrder(f"not an attempt of a task: {self.run!r} {self.attempt}")

    @property
    def path(self) -> Path:
        """Relative directory of the attempt: ``JOB/INDEX/ATTEMPT``."""
        return Path(self.run) / f"{self.attempt:04d}"

    @classmethod
    def from_path(cls, path: Path) -> TaskKey:
        """The key of the attempt whose `path` this is."""
        return cls("/".join(path.parts[-3:-1]), int(path.name))

    def __str__(self) -> str:
        return f"{self.run}#{self.attempt}"


@dataclass(frozen=True, slots=True)
class Build:
    """A container image to build.

    Attributes:
        context: Digest of the build context's manifest.
        dockerfile: Path of the Dockerfile in the context.
    """

    context: str
    dockerfile: str


@dataclass(frozen=True, slots=True)
class Gang:
    """How the members of a gang find each other.

    Attributes:
        rank: The member's number, from 0.
        size: How many members there are.
        address: Address of the member of rank 0, for the others.
        port: Port that that member may listen on.
        batch_ppm: The part of each batch that the member does, in millionths; 0 if the members do
            not divide batches by their speed.
    """

    rank: int
    size: int
    address: str
    port: int
    batch_ppm: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the member's program; torchrun sets the rest."""
        variables = {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "NODE_RANK": str(self.rank),
            "NNODES": str(self.size),
        }
        if self.batch_ppm:
            whole, parts = divmod(self.batch_ppm, 1_000_000)
            variables["EVA_BATCH_SHARE"] = f"{whole}.{parts:06d}"
        return variables


@dataclass(frozen=True, slots=True)
class Fork:
    """The data that a fork needs of the others of its job.

    Attributes:
        number: Its own number, from 0.
        forks: How many there may be.
        every_ms: From one merge to the next.
        check: The program's own figure by which a merge is judged; empty if it is not.
        larger: Whether a larger figure is better.
        patience_ms: How long a merge is to be waited for; 0 if the master does not say.
    """

    number: int
    forks: int
    every_ms: int
    check: str = ""
    larger: bool = False
    patience_ms: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for its program."""
        return {
            "EVA_FORK": str(self.number),
            "EVA_FORKS": str(self.forks),
            "EVA_MERGE_EVERY_MS": str(self.every_ms),
            "EVA_MERGE_CHECK": self.check,
            "EVA_MERGE_BETTER": "larger" if self.larger else "smaller",
            "EVA_MERGE_PATIENCE_MS": str(self.patience_ms),
        }


@dataclass(frozen=True, slots=True)
class Part:
    """A part that a fork has given.

    Attributes:
        digest: Of the list of its files; empty if the master does not know it.
    """

    fork: int
    steps: int
    digest: str


@dataclass(frozen=True, slots=True)
class MergeRound:
    """The master's instruction to a fork; see `MergeRound` of iterator.proto.

    Attributes:
        parts: Of the leader: what was given.
        alone: Whether it goes on alone for good.
        merge: Names the merge of the epoch before in the object store: the digest of the list of
            its files; empty if it has no name.
    """

    epoch: int
    base_steps: int = 0
    quota: int = 0
    forks: int = 2
    average: bool = False
    give: bool = False
    finished: bool = False
    parts: tuple[Part, ...] = ()
    alone: bool = False
    best: bool = False
    merge: str = ""


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A part's fate in a merge.

    Attributes:
        reason: Why it was left out.
    """

    fork: int
    kept: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PartGiven:
    """The part of a fork is in the object store."""

    key: TaskKey
    epoch: int
    steps: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartsMerged:
    """The merge of an epoch is in the object store.

    Attributes:
        digest: Names it there: of the list of its files.
    """

    key: TaskKey
    epoch: int
    parts: tuple[KeptPart, ...]
    check_merged: float | None = None
    check_best: float | None = None
    digest: str = ""


MergeNews = PartGiven | PartsMerged


@dataclass(frozen=True, slots=True)
class JobOutputs:
    """Outputs of an earlier job, which are an input of a task.

    Attributes:
        job: The job's id.
        index: The task whose outputs they are, if it is one task's.
        tasks: Of so many tasks, from the first one on, each in the directory of its index; 0 for
            those of one task, without a directory.
        path: A file or directory below the outputs; empty for all of them.
    """

    job: str
    index: int = 0
    tasks: int = 0
    path: str = ""

    def __str__(self) -> str:
        """The outputs as a job file names them."""
        task = "" if self.tasks else f"/{self.index}"
        return f"job:{self.job}{task}/outputs" + (f"/{self.path}" if self.path else "")


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that a worker must know about an attempt.

    Attributes:
        job: The job's id.
        workload: The label of tasks that behave alike.
        gpus: Whole GPUs.
        milli_cpus: Thousandths of a vCPU.
        memory_mib: Mebibytes of memory.
        command: A shell command.
        env: The user's own variables.
        workdir: Digest of the working directory's manifest, empty for an empty directory.
        inputs: The URL of each input, by its name.
        grace_ms: Time from SIGTERM to SIGKILL.
        resume: Checkpoint generation to start from; 0 for none, `None` for the newest stored one.
        checkpoint_of: The task run that stored that checkpoint; empty for this one.
        image: Reference of the container image, empty for the worker's own.
        build: How to build the image; `None` if it is not built.
        gang: How the members of its gang find each other; `None` if it is alone.
        index: The task's number in its job.
        tasks: How many tasks the job has; 0 if the master did not say.
        outputs_stored: Whether its outputs go to the object store even where instances share a
            directory.
        fork: How it and the other forks of its job are merged; `None` if it has none.
        outputs: Inputs that are outputs of earlier jobs, by their names.
        origins: Task runs of ended jobs, the latest first: without a checkpoint of its own it
            begins from the newest one of the first that has any, unless `resume` says from which.
        secrets: Names of the variables whose values come with the start alone: an order is written
            down, and these are not.
    """

    run: str
    attempt: int
    job: str
    command: str
    workload: str = ""
    gpus: int = 0
    milli_cpus: int = 0
    memory_mib: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    grace_ms: int = 0
    resume: int | None = None
    checkpoint_of: str = ""
    image: str = ""
    build: Build | None = None
    gang: Gang | None = None
    index: int = 0
    tasks: int = 0
    outputs_stored: bool = False
    fork: Fork | None = None
    outputs: Mapping[str, JobOutputs] = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def key(self) -> TaskKey:
        """The attempt that the order is for."""
        return TaskKey(self.run, self.attempt)

    @property
    def companions(self) -> list[str]:
        """The other members of its gang."""
        if self.gang is None:
            return []
        members = (f"{self.job}/{rank}" for rank in range(self.gang.size))
        return [member for member in members if member != self.run]

    def to_json(self) -> dict[str, Any]:
        """Convert it to a JSON document for the state directory."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Order:
        """Restore an order from the document of `to_json`."""
        build, gang, fork = (document.get(name) for name in ("build", "gang", "fork"))
        return cls(
            **{
                **document,
                "build": Build(**build) if build else None,
                "gang": Gang(**gang) if gang else None,
                "fork": Fork(**fork) if fork else None,
                "origins": tuple(document.get("origins", ())),
                "secrets": tuple(document.get("secrets", ())),
                "outputs": {
                    name: JobOutputs(**fields)
                    for name, fields in document.get("outputs", {}).items()
                },
            }
        )


class Phase(StrEnum):
    """The phase of an attempt, as reported to the master."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    """No process of it is left, and all of its files are in the object store."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an attempt.

    Attributes:
        steps: Iterations since the attempt began, summed over its processes.
        total_steps: Iterations until the program is done, 0 if unknown.
        metrics: The program's own metrics.
        published: Newest checkpoint generation that the program says it published.
    """

    steps: int = 0
    total_steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    published: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A report to the master on an attempt.

    Attributes:
        exit_code: Minus the number of the signal if one ended the program (the master adds 128 to
            it for everybody else); 0 before the exit.
        never_started: Whether it exited without having run.
        stopped: Whether a stop was requested before it exited.
        generation: Newest checkpoint generation that is completely stored.
        message: Why the start failed, or more about the exit.
        blameless: Whether it failed because of its instance: the engine went away, or the disk was
            full. Then the failure does not count.
        ran_ms: For how long its program has run by CLOCK_MONOTONIC; `None` before it runs, and if
            that is not known.
        not_stored: Which of its outputs and checkpoints are not stored, and why; empty for none.
        image_ms: For how long its image was fetched or built; `None` without one, and if that is
            not known.
    """

    key: TaskKey
    phase: Phase
    exit_code: int = 0
    never_started: bool = False
    stopped: bool = False
    generation: int = 0
    progress: Progress = Progress()
    image_ms: int | None = None
    message: str = ""
    blameless: bool = False
    ran_ms: int | None = None
    not_stored: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The cluster's settings, which the master sends when a session begins.

    Attributes:
        cluster: The cluster's name.
        heartbeat_ms: Time between heartbeats.
        object_store: URL of the store.
        upload_ms: Time between uploads of a running task's logs, outputs and checkpoints.
        input_roots: URLs that tasks' inputs may come from.
        fence_ms: How long the lease of an owned node lasts; 0 for other workers, which need none.
        shutdown_grace_ms: Time that tasks have to stop where the worker leaves; `None` for their
            own.
    """

    cluster: str
    heartbeat_ms: int
    object_store: str
    upload_ms: int
    input_roots: tuple[str, ...] = DEFAULT_ROOTS
    fence_ms: int = 0
    shutdown_grace_ms: int | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Welcome:
        """Restore the settings from the document of `dataclasses.asdict`."""
        roots = tuple(document.get("input_roots", DEFAULT_ROOTS))
        return cls(**{**document, "input_roots": roots})
