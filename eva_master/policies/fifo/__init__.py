"""Policy `fifo`: jobs in the order of their arrival, on the operator's own nodes first."""

from eva_master.policies.fifo.policy import POLICY

__all__ = ["POLICY"]
