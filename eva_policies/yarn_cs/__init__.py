"""Policy `yarn_cs`: first in, first out over a fleet, blind to types, and nobody is preempted."""

from eva_policies.yarn_cs.policy import POLICY

__all__ = ["POLICY"]
