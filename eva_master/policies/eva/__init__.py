"""Eva: a local search for the configuration that costs least, moves and launches included.

The planning code is imported only when a policy is built: settings can be read and checked with its
options alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.policies.eva.config import NAME, PRESETS, RENAMED, Config
from eva_master.ports import Policy

__all__ = ["POLICY"]


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PRESETS)
    renamed_options: Mapping[str, str] = field(default_factory=lambda: RENAMED)
    elastic: bool = True
    reads = reads_none

    def build(self, config: Any) -> Policy:
        """Make the policy of a `Config`."""
        from eva_master.policies.eva.elastic import ElasticEva
        from eva_master.policies.eva.policy import Eva

        assert isinstance(config, Config)
        return ElasticEva(Eva(config))

    def spot_choice(self, config: Any) -> SpotChoice | None:
        """How jobs with deadlines choose; `None` to leave that to the master's settings."""
        assert isinstance(config, Config)
        return config.spot_choice


POLICY = _PolicySpec()
