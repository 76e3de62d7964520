"""Policy `tiresias`: who has had least GPU time goes first, in two queues, blind to GPU types."""

from eva_policies.tiresias.policy import POLICY

__all__ = ["POLICY"]
