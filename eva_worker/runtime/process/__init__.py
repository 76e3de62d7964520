"""The runtime whose tasks are plain processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from eva_worker.runtime import Runtime
from eva_worker.runtime.registry import RuntimeProvider

if TYPE_CHECKING:
    from eva_worker.settings import Settings


class _Process(RuntimeProvider):
    """See `RuntimeProvider`."""

    name = "process"
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def base_env(self) -> Mapping[str, str]:
        from eva_worker.runtime.process.runtime import environment

        return environment()

    def check(self, settings: Settings) -> None:
        pass

    def open(self, settings: Settings, root: Path) -> Runtime:
        from eva_worker.runtime.process.measures import measures
        from eva_worker.runtime.process.runtime import ProcessRuntime

        confined = measures(settings.state_dir, settings.hidden, settings.isolation)
        return ProcessRuntime(root, confined)


RUNTIME = _Process()
