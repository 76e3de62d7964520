"""Stratus: tasks that will end at about the same time share instances (Chung et al., SoCC 2018)."""

from eva_policies.stratus.policy import POLICY

__all__ = ["POLICY"]
