"""Policies for a whole cluster."""

from __future__ import annotations

from eva_master.app.policy_registry import policies
from tests.drawing import NEW

WHOLE = sorted(name for name, kind in policies().items() if not getattr(kind, "shares", False))
"""Policies that are not made to stand in front of another: such a one keeps room for others."""
FEW = ["eva", "eva_published", "gavel", "hadar", "no_packing", "stratus", "synergy", "tiresias"]
TRIED = WHOLE if NEW else FEW
"""For what is the control loop's affair rather than policies': `make explore` tries all."""
