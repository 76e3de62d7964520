"""Policy `gandiva_fair`: tenants share GPU time by tickets, and nothing stands idle."""

from eva_policies.gandiva_fair.policy import POLICY

__all__ = ["POLICY"]
