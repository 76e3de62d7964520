"""Cost of streams of all jobs for other users: submissions with and without them.

Run as `python -m benchmarks.watching [--streams N] [--samples N] [--per-second N] [--json]`. A
real master gets submissions at a steady rate from ten users: without streams, with as many that
read nothing, with as many that read, and without once more.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence

from benchmarks.harness import (
    Figures,
    fresh_master,
    options,
    publish,
    spread,
    surroundings,
)
from benchmarks.load import offer, settings, users
from benchmarks.submission import JobFiles
from benchmarks.watchers import watchers

GOAL = 2.0
"""Goal for the median with streams, as a multiple of the quiet one's."""
_USERS = 10


def measure(streams: int, samples: int, per_second: int) -> Figures:
    """Submit jobs with and without streams.

    Args:
        streams: Streams of all jobs, of each kind.
        samples: Submissions of each part.
        per_second: How many of them in a second.
    """
    figures: Figures = {"surroundings": surroundings(), "streams": streams}
    files = JobFiles(random.Random(6))
    parts: Figures = {}
    took: dict[str, list[float]] = {}
    read: Figures = {}
    kinds = {"quiet": (0, 0), "silent": (0, streams), "reading": (streams, 0), "after": (0, 0)}
    with fresh_master(settings()) as master, users(master, _USERS) as clients:
        offer(clients, [next(files) for _ in range(_USERS)], per_second)  # connects
        for kind, (reading, silent) in kinds.items():
            jobs = [next(files) for _ in range(samples)]
            with watchers(master, reading, silent) as messages:
                took[kind] = offer(clients, jobs, per_second)
            parts[kind] = {**spread(took[kind]), "load": round(os.getloadavg()[0], 1)}
            read[kind] = messages[0]
    quiet = spread(took["quiet"] + took["after"])["median"]
    ratios = {kind: round(parts[kind]["median"] / quiet, 2) for kind in ("silent", "reading")}
    return {
        **figures,
        "submission_ms": parts,
        "messages_read": read,
        "ratio": ratios,
        "goal": GOAL,
        "missed": [kind for kind, ratio in ratios.items() if ratio > GOAL],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a median missed the goal."""
    chosen = options(__doc__, arguments, streams=1_000, samples=500, per_second=20)
    figures = measure(chosen.streams, chosen.samples, chosen.per_second)
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
