"""Tasks on an instance, for readers."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.records import TaskRun
from eva_master.model.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class Hosted:
    """Task runs that take room on an instance.

    Attributes:
        used: Room that they take together.
        alone: Micro-dollars per hour of an instance for each that runs or starts.
    """

    runs: tuple[TaskRun, ...] = ()
    used: Resources = NOTHING
    alone: int = 0


NOTHING_HOSTED = Hosted()
