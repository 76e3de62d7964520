"""Eva: a local search for the configuration that costs least, moves and launches included.

The planning code is imported only when a policy is built: settings can be read and checked with its
options alone.
"""

from __future__ import annotations

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.policies.eva.config import NAME, PRESETS, Config
from eva_master.ports import Policy, PolicyKind

__all__ = ["POLICY"]


def _build(config: Config) -> Policy:
    from eva_master.policies.eva.elastic import ElasticEva
    from eva_master.policies.eva.policy import Eva

    return ElasticEva(Eva(config))


def _spot_choice(config: Config) -> SpotChoice | None:
    """Its spot choice; `None` to leave that to the master's settings."""
    return config.spot_choice


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=_build,
    presets=PRESETS,
    elastic=True,
    reads=reads_none,
    spot_choice=_spot_choice,
)
