"""The measured workloads that come with the project."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from eva_master.model.resources import Resources
from eva_master.model.trace import TraceTask
from eva_wire.values.ids import MILLION, Family, Workload

_FILE = Path(__file__).with_name("measured.yaml")
_KILL_MS, _BUILD_MS = 1_000, 10_000

_Vector = tuple[int, float, float]


class MeasuredWorkload(BaseModel):
    """A workload of ``measured.yaml``, which explains the fields; delays in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str
    demand: dict[str, _Vector]
    rate: float
    fetch: int
    upload: int
    launch: int
    tasks: int = 1

    @property
    def steps_per_s(self) -> int:
        """Standalone throughput, in millionths of an iteration per second."""
        return round(self.rate * MILLION)

    @property
    def init_ms(self) -> int:
        """Time from the start of a job's last task to first progress."""
        return self.launch * 1_000

    def task(self, demand: Resources | None = None) -> TraceTask:
        """A task of this workload.

        Args:
            demand: Demand in place of the one that this workload was measured with.
        """
        own = () if demand is not None else tuple(sorted(self._demands()))
        return TraceTask(
            demand=demand,
            demand_by_family=own,
            image=self.base,
            fetch_ms=self.fetch * 1_000,
            build_ms=_BUILD_MS,
            kill_ms=_KILL_MS,
            upload_ms=self.upload * 1_000,
        )

    def _demands(self) -> list[tuple[Family, Resources]]:
        return [
            (Family(family), Resources(gpus, round(cpus * 1_000), round(gib * 1_024)))
            for family, (gpus, cpus, gib) in self.demand.items()
        ]


@cache
def measured_workloads() -> Mapping[str, MeasuredWorkload]:
    """The ten workloads by name."""
    return {
        name: MeasuredWorkload.model_validate(entry)
        for name, entry in measured()["workloads"].items()
    }


@cache
def measured_bases() -> Mapping[str, MeasuredWorkload]:
    """One workload per row of the table of interference, for jobs with demands of their own."""
    return {
        measured_workload.base: measured_workload
        for measured_workload in measured_workloads().values()
    }


def aliases() -> Mapping[Workload, Workload]:
    """The names that traces use for rows of the table."""
    return {Workload(name): Workload(row) for name, row in measured()["aliases"].items()}


@cache
def measured() -> dict[str, Any]:
    """The parsed content of ``measured.yaml``."""
    content: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return content
