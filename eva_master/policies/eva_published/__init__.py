"""The Eva of the paper: a choice between full and partial reconfiguration (section 4.5)."""

from eva_master.policies.eva_published.policy import POLICY

__all__ = ["POLICY"]
