"""Slots: how often there is a plan for a fleet, and for how long a place is kept."""

from __future__ import annotations

from dataclasses import dataclass, fields

from eva_lab.runs import named_policy
from eva_master.app.policy_registry import policies
from eva_master.ports import Policy

_MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Slot:
    """How often there is a plan.

    Attributes:
        round_s: From one plan to the next at least.
        leased: Whether a place is kept until a minute before the next plan, or for half of that
            time where it is shorter; else for as long as the policy likes.
    """

    round_s: int
    leased: bool = False

    def policy(self, text: str) -> Policy:
        """Make a policy that keeps to it.

        Args:
            text: ``NAME`` or ``NAME:PRESET``.
        """
        kind = policies().get(text.partition(":")[0])
        leases = kind is not None and "lease_s" in {field.name for field in fields(kind.config)}
        lease_s = max(self.round_s - _MINUTE_S, self.round_s // 2)
        return named_policy(text, {"lease_s": lease_s} if self.leased and leases else {})[0]
