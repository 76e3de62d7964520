"""Modules that take long to import, and that few tests need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # Pytest asks everything what it is.
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def lazily(name: str) -> Any:
    """A module that is imported at its first use: each worker collects the tests of all others.

    Args:
        name: The module's full name.
    """
    return _Lazy(name)
