"""Shares the machines of several tenants: own quota at once, the rest for a clearing price."""

from eva_policies.astraea.policy import POLICY

__all__ = ["POLICY"]
