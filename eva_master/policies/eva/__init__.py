"""Eva: one objective, and a local search for the configuration that costs least by it."""

from eva_master.policies.eva.policy import POLICY

__all__ = ["POLICY"]
