"""Policy `hived`: each tenant's quota is its own at once; the rest is used until it is wanted."""

from eva_policies.hived.policy import POLICY

__all__ = ["POLICY"]
