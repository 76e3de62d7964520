"""All that a feature writes for answers to users is in its part, and every part is installed."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields
from types import ModuleType

from eva_master.adapters.rpc.server import shown
from eva_master.adapters.rpc.server.shown import installed
from eva_master.adapters.rpc.server.shown.part import Part

HOOKS = [field.name for field in fields(Part)]
MODULES = [
    importlib.import_module(f"{shown.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shown.__path__)
]


def written(module: ModuleType) -> set[str]:
    """The answers that a module adds to, by the names of its functions."""
    names = {name.removeprefix("_") for name, value in vars(module).items() if callable(value)}
    return names & set(HOOKS)


def test_what_a_feature_writes_is_in_its_part() -> None:
    told = {module.__name__: written(module) for module in MODULES if written(module)}
    assert len(told) > 4
    for name, hooks in told.items():
        part = vars(importlib.import_module(name))["PART"]
        assert {hook for hook in hooks if getattr(part, hook) is None} == set(), name


def test_every_part_is_installed() -> None:
    parts = [module.PART for module in MODULES if hasattr(module, "PART")]
    assert len(parts) > 4
    for hook in HOOKS:
        given = {getattr(part, hook) for part in parts} - {None}
        assert set(getattr(installed, hook.upper())) == given, hook
