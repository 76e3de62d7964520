"""Base of policies that stand around another policy and go by its name."""

from __future__ import annotations

from typing import Generic, TypeVar

from eva_master.ports import Policy

Inner = TypeVar("Inner", bound=Policy)


class PolicyWrapper(Generic[Inner]):
    """Has the name of the policy inside.

    Args:
        inner: The policy inside.
    """

    def __init__(self, inner: Inner) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The policy's name in the settings."""
        return self._inner.name
