"""Policy `slearn`: small jobs first, by sizes learned from pilots and earlier jobs."""

from eva_policies.slearn.policy import POLICY

__all__ = ["POLICY"]
