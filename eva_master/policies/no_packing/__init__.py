"""One instance per task, as most cloud cluster managers do it; the baseline for costs."""

from eva_master.policies.no_packing.policy import POLICY

__all__ = ["POLICY"]
