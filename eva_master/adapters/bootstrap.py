"""Data that a new instance needs so that its worker joins the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import InstanceId


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How the workers of one cluster are started.

    Attributes:
        workers: ``HOST:PORT`` of the master's port for workers.
        join: ``HOST:PORT`` of the port where instances get their first certificate.
        authorities: PEM certificates of those who may vouch for the master.
        token: Makes the join token of an instance's launch attempt, always the same one.
        isolation: Isolation of tasks, as variables for ``eva worker``.
    """

    workers: str
    join: str
    authorities: str
    token: Callable[[InstanceId, int], str]
    isolation: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> list[str]:
        """For the command line of ``eva worker``."""
        return ["--master", self.workers, "--enrol", self.join]

    def environment(self, instance: InstanceId, attempt: int) -> dict[str, str]:
        """For the environment of ``eva worker``; a command line is for all to read.

        Raises:
            StorageError: There can be no token now.
        """
        return {
            "EVA_WORKER_CA": self.authorities,
            "EVA_WORKER_TOKEN": self.token(instance, attempt),
            **self.isolation,
        }


def environment_file(variables: Mapping[str, str]) -> str:
    """Format variables as systemd reads them; raises `InvalidConfig`."""
    lines = []
    for name, value in variables.items():
        if not value.isprintable():
            raise InvalidConfig(f"{name} is not to contain control characters")
        escaped = re.sub(r'([\\"`$])', r"\\\1", value)
        lines.append(f'{name}="{escaped}"')
    return "\n".join(lines)
