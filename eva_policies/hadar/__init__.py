"""Shares a fleet of several GPU types: what their time is worth says who goes where, and when."""

from eva_policies.hadar.policy import POLICY

__all__ = ["POLICY"]
