"""How durations and times of day are written for people."""

from __future__ import annotations


def span(duration_ms: int) -> str:
    """Write a duration with its two largest units."""
    seconds = max(0, duration_ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h {seconds % 3600 // 60}m"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3600}h"


def clock(at_ms: int) -> str:
    """Write the time of day, in UTC."""
    minutes, seconds = divmod(at_ms // 1000 % 86_400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} UTC"
