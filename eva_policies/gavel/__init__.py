"""Policy `gavel`: a fleet of several GPU types divided by an LP, and given away in rounds."""

from eva_policies.gavel.policy import POLICY

__all__ = ["POLICY"]
