"""Subscriptions: asynchronous iterators over continuing events, ended by their context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Subscription(ABC, Generic[T]):
    """An asynchronous iterator that is also a context manager.

    Args:
        end: Called when the context is left; it may be called again.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    @abstractmethod
    async def __anext__(self) -> T:
        """Wait for what comes next."""

    def __aiter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
