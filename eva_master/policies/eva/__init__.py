"""Eva: pack tasks where it pays, move them where it pays (the paper's sections 4.2 to 4.5)."""

from eva_master.policies.eva.policy import POLICY

__all__ = ["POLICY"]
