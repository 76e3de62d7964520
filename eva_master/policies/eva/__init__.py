"""Eva: a local search for the configuration that costs least, moves and launches included."""

from eva_master.policies.eva.policy import POLICY

__all__ = ["POLICY"]
