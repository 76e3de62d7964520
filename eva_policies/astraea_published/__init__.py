"""Shares a fleet among tenants as the paper on Astraea has it, in batches at posted prices."""

from eva_policies.astraea_published.policy import POLICY

__all__ = ["POLICY"]
