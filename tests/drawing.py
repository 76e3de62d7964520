"""How many examples a property is tried with."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

NEW = bool(os.environ.get("EVA_NEW_EXAMPLES"))
"""Whether this run is to look for examples that no run has seen (`make explore`)."""
FEWER_EXAMPLES = "EVA_FEWER_EXAMPLES"
"""The variable by which `make test` draws only the first examples; `make long` draws all."""
FEWER = not NEW and bool(os.environ.get(FEWER_EXAMPLES))
_MORE = 15
_FEW = 6
_Test = TypeVar("_Test", bound=Callable[..., Any])


def drawn(examples: int, **more: Any) -> Callable[[_Test], _Test]:
    """Settings of a property of a whole cluster, whose every example takes long.

    Args:
        examples: How many; a third where fewer are wanted, but at least six if there are so many.
            A search for new examples draws fifteen times as many.
        more: Other settings.
    """
    count = examples * _MORE if NEW else examples
    if FEWER:
        count = max(examples // 3, min(examples, _FEW))

    def decorate(test: _Test) -> _Test:
        return pytest.mark.drawn(settings(deadline=None, max_examples=count, **more)(test))

    return decorate
