"""Counters of the cluster, which only grow."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.values import quick


@quick
@dataclass(frozen=True, slots=True)
class Counters:
    """Numbers that only grow; they name things and count events."""

    jobs: int = 0
    instances: int = 0
    rounds: int = 0
    arrivals: int = 0
    completions: int = 0
    meetings: int = 0
    listings: int = 0
    events: int = 0
    restored_ms: int = 0
    """When the master took note of the last backup that was put back; 0 for never."""
    restored_mark: int = 0
    """The operator's mark of that; see `Settings.restored_mark`."""
