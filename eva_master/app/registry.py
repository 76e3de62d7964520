"""Finds the schedulers: every package below `eva_master.policies` that exports ``POLICY``."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

import eva_master.policies
from eva_master.ports import PolicyKind


def policies() -> Mapping[str, PolicyKind]:
    """Every scheduler by its name, sorted."""
    kinds: list[PolicyKind] = [
        import_module(f"{eva_master.policies.__name__}.{module.name}").POLICY
        for module in pkgutil.iter_modules(eva_master.policies.__path__)
        if module.ispkg
    ]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}
