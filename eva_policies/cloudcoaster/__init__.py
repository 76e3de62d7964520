"""Policy `cloudcoaster`: standing room for short jobs, most of it at spot prices."""

from eva_policies.cloudcoaster.policy import POLICY

__all__ = ["POLICY"]
