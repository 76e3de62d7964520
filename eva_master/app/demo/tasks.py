"""Chooses how the demo's tasks run: in containers if an engine answers, else as processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eva_master.adapters.local.engine import Engine, ready_image
from eva_wire.values.errors import EngineUnavailable, EvaError


@dataclass(frozen=True)
class Tasks:
    """How tasks run.

    Attributes:
        why: A sentence on the choice and its reason.
        engine: URL of the Docker engine, empty for plain processes.
        settings: The master's, as variables of its environment.
    """

    why: str
    engine: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def choose(cls, told: Callable[[str], None]) -> Tasks:
        """Look for an engine, and check that it runs containers.

        Args:
            told: Called with a sentence when something takes seconds.
        """
        try:
            with Engine() as engine:
                image = ready_image(engine, told)
        except EvaError as error:
            settings = {"EVA_MASTER_LOCAL__RUNTIME": "process"}
            return cls(f"tasks run as plain processes: {error.message}", settings=settings)
        settings = {
            "EVA_MASTER_LOCAL__RUNTIME": "docker",
            "EVA_MASTER_LOCAL__DOCKER_HOST": engine.url,
            "EVA_MASTER_LOCAL__DOCKER_IMAGE": image,
        }
        why = f"tasks run in containers: an engine answers at {engine.url}"
        return cls(why, engine.url, settings)

    def left(self, home: Path) -> list[str]:
        """Remove the containers that a cluster left behind.

        Args:
            home: The cluster's directory.

        Returns:
            Their names; none unless there is a bug.
        """
        if not self.engine:
            return []
        try:
            with Engine(self.engine) as engine:
                names = list(engine.containers(home).values())
                while not engine.remove_containers(home):
                    pass
        except EngineUnavailable as error:
            return [f"perhaps containers: {error.message}"]
        return names
