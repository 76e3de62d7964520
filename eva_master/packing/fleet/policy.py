"""Base of policies that seat contenders on a fleet."""

from __future__ import annotations

from typing import Generic, TypeVar

from eva_master.packing.fleet.contenders import Contenders
from eva_master.packing.planner_cache import PlannerCache

Config = TypeVar("Config")


class FleetPolicy(Generic[Config]):
    """Has the policy's options, and what rounds share to be faster.

    Args:
        config: Options.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._contenders = Contenders()
