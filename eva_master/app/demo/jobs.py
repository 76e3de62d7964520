"""Jobs of the demo: nine of six kinds, in an order that shows what Eva does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eva_client.rpc.master import Client

_PACKED = Path(__file__).parent / "examples"
EXAMPLES = _PACKED if _PACKED.is_dir() else Path(__file__).parents[3] / "examples"
"""Folders of the programs: those that came with the wheel, or all of a checkout's."""
FIRST_JOB = EXAMPLES / "digits_mlp" / "job.yaml"
"""A job to begin with."""


@dataclass(frozen=True)
class DemoJob:
    """An example with another name and length.

    Attributes:
        name: The job's.
        example: Its folder.
        envs: Override those of its job file; STEPS is always among them.
        throughput: Iterations per second alone, `None` to let Eva find out.
        resources: In place of those of its job file, `None` to keep them.
    """

    name: str
    example: str
    envs: Mapping[str, str]
    throughput: float | None = None
    resources: Mapping[str, Any] | None = None

    def file(self) -> str:
        """The example's job file, changed to this job's."""
        document: dict[str, Any] = yaml.safe_load((self.folder / "job.yaml").read_text())
        document |= {
            "name": self.name,
            "total_steps": int(self.envs["STEPS"]),
            # Times of stopping and starting a process on this machine.
            "delays": {"checkpoint": "1s", "launch": "2s"},
        }
        if self.throughput is not None:
            document["throughput"] = self.throughput
        if self.resources is not None:
            document["resources"] = dict(self.resources)
        return yaml.safe_dump(document)

    @property
    def folder(self) -> Path:
        """The directory of the job's program."""
        return EXAMPLES / self.example


def _mlp(name: str, steps: int) -> DemoJob:
    # One thread: an emulated instance has more CPUs than this machine, and BLAS would use them.
    # Two of these fit a machine on which one alone wastes half.
    envs = {"STEPS": str(steps), "OMP_NUM_THREADS": "1"}
    return DemoJob(name, "digits_mlp", envs, resources={"cpus": 1, "memory": "5GiB"})


def _shell(name: str, steps: int) -> DemoJob:
    envs = {"STEPS": str(steps), "RESAMPLES": "100", "SAVE_EVERY": "25"}
    return DemoJob(name, "shell_wordcount", envs)


def _stream(name: str, steps: int) -> DemoJob:
    # 2 MiB/s of the instance's link in chunks of 256 KiB are 8 a second, for a reader alone.
    envs = {"STEPS": str(steps), "CHUNK_KIB": "256", "OMP_NUM_THREADS": "1"}
    # Two of these fit a machine that costs less than two machines for one each, so that Eva packs
    # them together until it knows better.
    resources = {"cpus": 1, "memory": "3.5GiB"}
    return DemoJob(name, "stream_stats", envs, throughput=8, resources=resources)


def _gang(name: str, steps: int) -> DemoJob:
    # Its two tasks wait for each other at every step, and for a turn on this machine's CPUs.
    return DemoJob(name, "ring_digits", {"STEPS": str(steps), "OMP_NUM_THREADS": "1"})


# A first job starts a planning round at once. Jobs that arrive within the shortest time between two
# rounds share the next one, in which they can be packed together.
FIRST_WAVE = (
    DemoJob("graph", "graph_rank", {"STEPS": "600", "NODES": "100000"}),
    _mlp("mlp-a", 3_000),
    _shell("shell-a", 500),
    _stream("stream-a", 320),
    _stream("stream-b", 400),
)
SECOND_WAVE = (
    _mlp("mlp-b", 3_500),
    _shell("shell-b", 600),
    _shell("shell-c", 600),
    _gang("gang", 2_500),
)
READERS = ("stream-a", "stream-b")
"""Compete for the link of an instance if they share one."""


@dataclass
class Submitter:
    """Submits jobs. Working directories are uploaded first, so that a wave is submitted quickly.

    Attributes:
        scratch: For the jobs' temporary files, `None` where they have a place of their own.
    """

    client: Client
    scratch: Path | None = None
    _workdirs: dict[Path, str] = field(default_factory=dict)

    def upload(self) -> None:
        """Upload every program to the cluster."""
        for job in (*FIRST_WAVE, *SECOND_WAVE):
            if job.folder not in self._workdirs:
                self._workdirs[job.folder] = self.client.upload(job.folder)

    def submit(self, wave: tuple[DemoJob, ...]) -> None:
        """Submit several jobs, one after another."""
        for job in wave:
            self.client.submit(
                job.file(),
                file_name=str(job.folder / "job.yaml"),
                workdir=self._workdirs[job.folder],
                envs={**job.envs, **({"TMPDIR": str(self.scratch)} if self.scratch else {})},
            )
