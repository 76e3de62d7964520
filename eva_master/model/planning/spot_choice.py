"""The rule by which jobs are run on spot instances, on demand, or wait."""

from __future__ import annotations

from enum import StrEnum


class SpotChoice(StrEnum):
    """How jobs with deadlines choose between spot instances, instances on demand and waiting.

    Attributes:
        LEARNED: The cheapest by a table of what is expected.
        UNTIL_SAFETY_NET: On spot instances or nowhere until no time may be lost any more, then on
            demand to the end.
        UNIFORM_PROGRESS: As much is to be done at any time as if it were done evenly until the
            deadline (Wu et al., Can't Be Late, NSDI 2024).
        ON_DEMAND: On demand from the beginning.
    """

    LEARNED = "learned"
    UNTIL_SAFETY_NET = "until_safety_net"
    UNIFORM_PROGRESS = "uniform_progress"
    ON_DEMAND = "on_demand"
