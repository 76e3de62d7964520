"""Owl: pairs that leave each other in peace (Tian et al., SoCC 2022)."""

from eva_policies.owl.policy import POLICY

__all__ = ["POLICY"]
