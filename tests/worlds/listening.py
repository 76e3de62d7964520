"""Ports of a master, each with a listener that is told what goes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eva_lab.simulator.cluster.cloud import SimulatedCloud
from eva_master.model.actions import CloudAction, RequestPlan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Planner


class Asked:
    """The planner, with a listener that is told what it is asked."""

    def __init__(self, planner: Planner, told: Callable[[Snapshot], None]) -> None:
        self._planner, self._told = planner, told

    def request(self, request: RequestPlan) -> None:
        """See `eva_master.ports.Planner.request`."""
        self._told(request.snapshot)
        self._planner.request(request)


class Watched:
    """The cloud, with a watcher that is told before it acts."""

    def __init__(self, cloud: SimulatedCloud, told: Callable[[CloudAction], None]) -> None:
        self._cloud, self._told = cloud, told

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`."""
        self._told(action)
        self._cloud.execute(action)


class Heard:
    """Answers, with a listener."""

    def __init__(self, answers: Any, told: Callable[[Any], None]) -> None:
        self._answers, self._told = answers, told

    def reply(self, reply: Any) -> None:
        """See `eva_master.ports.Replies.reply`."""
        self._answers.reply(reply)
        self._told(reply)

    def publish(self, *known: Any) -> None:
        """See `eva_master.ports.Replies.publish`."""
        self._answers.publish(*known)
