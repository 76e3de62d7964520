"""What `eva simulate` is made of: policies by name, runs, and what is written of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eva_master.app.config import PolicySection, policy_config
from eva_master.app.registry import policies
from eva_master.model.errors import InvalidConfig
from eva_master.ports import Policy

ROUND_GAP_S = 300
"""How often simulated clusters plan whose policy has no preference."""


def named_policy(text: str, options: Mapping[str, Any] | None = None) -> tuple[Policy, int | None]:
    """Make a policy from its name on a command line.

    Args:
        text: ``NAME`` or ``NAME:PRESET``.
        options: Of the policy's own, over those of the preset.

    Returns:
        The policy, and the seconds at whose multiples it plans, `None` for at any time: its own
        preference, or `ROUND_GAP_S` where it has none.

    Raises:
        InvalidConfig: There is no such policy, preset or option.
    """
    name, _, preset = text.partition(":")
    kinds = policies()
    if name not in kinds:
        raise InvalidConfig(f"there is no policy {name!r}", hint=f"one of: {', '.join(kinds)}")
    kind = kinds[name]
    presets: Mapping[str, Mapping[str, Any]] = getattr(kind, "presets", {})
    if preset and preset not in presets:
        known = ", ".join(presets) or "it has none"
        raise InvalidConfig(f"the policy {name} has no preset {preset!r}", hint=f"presets: {known}")
    chosen = {**presets.get(preset, {}), **(options or {})}
    config = policy_config(PolicySection(name=name, options=chosen), kind)
    return kind.build(config), getattr(config, "round_gap_s", ROUND_GAP_S)
