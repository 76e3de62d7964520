"""Until when a container that is to stop may run on, as a document that outlives the agent.

Stops go by CLOCK_BOOTTIME: setting the wall clock neither shortens nor extends a grace period.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eva_worker.process import lease

_MOST_MS = 86_400_000
"""Longest time that is believed of a document of an earlier agent, which has a time of day."""


def within(grace_ms: int) -> dict[str, Any]:
    """The document of a stop that begins now.

    Args:
        grace_ms: How long it may take.
    """
    return {"deadline_ms": lease.now_ms() + grace_ms, "boot": lease.boot_id()}


def left_ms(document: Mapping[str, Any]) -> int:
    """Milliseconds that a container still has; 0 after another boot."""
    deadline_ms = int(document["deadline_ms"])
    if "boot" not in document:
        return max(0, min(_MOST_MS, deadline_ms - time.time_ns() // 1_000_000))
    return max(0, deadline_ms - lease.now_ms()) if document["boot"] == lease.boot_id() else 0
