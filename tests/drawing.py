"""How many examples a property is tried with."""

from __future__ import annotations

import os

from hypothesis import settings

NEW = bool(os.environ.get("EVA_NEW_EXAMPLES"))
"""Whether this run is to look for examples that no run has seen (`make explore`)."""
_MORE = 15


def drawn(examples: int) -> settings:
    """Settings of a property of a whole cluster, whose every example takes long.

    Args:
        examples: How many; those who look for new ones get fifteen times as many.
    """
    return settings(deadline=None, max_examples=examples * (_MORE if NEW else 1))
