"""First fit: every task joins the first instance with room for it, and stays there."""

from eva_first_fit.policy import POLICY

__all__ = ["POLICY"]
