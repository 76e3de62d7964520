"""What is not to be bought for a while, and why."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.context import Turn
from eva_master.model.ids import Millis, OfferingId
from eva_master.model.records import Instance

_LONGEST_PAUSE_MS = 6 * 3_600_000


def refuse(turn: Turn, offerings: Iterable[OfferingId], until: Millis, why: str) -> None:
    """Have nothing of these offerings launched before a time, at which there is a plan again."""
    turn.state.set_unavailable(offerings, until, why)
    turn.alarms.at(until, ("stock", ""))


def stillborn(turn: Turn, instance: Instance) -> str:
    """An instance was paid for and never had a worker: its offering is left alone for a while.

    What is wrong with its image, or with its network, is wrong with the next one too: the time
    doubles with each in a row, so that not all of it is spent on such instances.

    Returns:
        Why it is given back, in words for the user.
    """
    limit = turn.settings.register_timeout_ms
    why = f"its worker did not register within {limit / 1000:g} s"
    turn.stillborn[instance.offering.id] += 1
    pause = min(limit << (turn.stillborn[instance.offering.id] - 1), _LONGEST_PAUSE_MS)
    words = f"the worker of {instance.id} did not register within {limit / 1000:g} s"
    refuse(turn, [instance.offering.id], Millis(turn.now + pause), words)
    for copy in turn.state.aimed(instance.id):
        turn.explain(copy, words)
    return why
