"""Policies for a whole cluster."""

from __future__ import annotations

from eva_master.app.policy_registry import policies

WHOLE = sorted(name for name, kind in policies().items() if not getattr(kind, "shares", False))
"""Those that are not made to stand in front of another: such a one keeps room for others."""
