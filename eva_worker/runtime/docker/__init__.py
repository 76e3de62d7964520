"""Tasks as containers of a Docker engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from eva_worker.runtime import Runtime
from eva_worker.runtime.registry import RuntimeProvider

if TYPE_CHECKING:
    from eva_worker.settings import Settings


class _Docker(RuntimeProvider):
    """See `RuntimeProvider`."""

    name = "docker"
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "--docker-image": {"metavar": "IMAGE", "help": "Image for tasks that name none."},
        "--docker-host": {
            "metavar": "URL",
            "help": "The Docker engine, such as unix:///run/docker.sock; default as for docker "
            "itself.",
        },
    }

    def base_env(self) -> Mapping[str, str]:
        # A container has its image's environment, not the machine's.
        return {}

    def check(self, settings: Settings) -> None:
        from eva_worker.runtime.docker.runtime import connect

        connect(settings.runtime_options.get("docker_host", "")).close()

    def open(self, settings: Settings, root: Path) -> Runtime:
        from eva_worker.runtime.docker.runtime import DockerRuntime, connect

        return DockerRuntime(
            root,
            connect(settings.runtime_options.get("docker_host", "")),
            instance=settings.instance,
            default_image=settings.runtime_options.get("docker_image", ""),
            real_gpus=not settings.emulated,
            isolation=settings.isolation,
        )


RUNTIME = _Docker()
