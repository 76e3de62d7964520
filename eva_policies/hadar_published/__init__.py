"""Shares a fleet of several GPU types as the paper on Hadar has it, with what it leaves open."""

from eva_policies.hadar_published.policy import POLICY

__all__ = ["POLICY"]
