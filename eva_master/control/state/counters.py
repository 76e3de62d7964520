"""Counters of the cluster, which only grow."""

from __future__ import annotations

from dataclasses import dataclass


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
