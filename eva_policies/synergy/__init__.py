"""Synergy: each task where it fits best, for good (Mohan et al., OSDI 2022)."""

from eva_policies.synergy.policy import POLICY

__all__ = ["POLICY"]
