"""Instances for readers: costs, and the tasks on them."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.changes import InstanceAccount
from eva_master.model.records import Instance, TaskRun
from eva_master.model.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """An instance with what it cost; `account` is `None` if it was never billed."""

    instance: Instance
    account: InstanceAccount | None


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
