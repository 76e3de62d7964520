"""What is not to be bought for a while, and why."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.model.ids import Millis, OfferingId
from eva_master.model.records import Instance

_LONGEST_PAUSE_MS = 6 * 3_600_000


def refuse(context: Context, offerings: Iterable[OfferingId], until: Millis, why: str) -> None:
    """Have nothing of these offerings launched before a time, at which there is a plan again."""
    context.state.set_unavailable(offerings, until, why)
    context.alarms.at(until, Alarm(Wake.AVAILABILITY))


def never_registered(context: Context, instance: Instance) -> str:
    """An instance was paid for and never had a worker: its offering is left alone for a while.

    What is wrong with its image, or with its network, is wrong with the next one too: the time
    doubles with each in a row, so that not all of it is spent on such instances.

    Returns:
        Why it is given back, in words for the user.
    """
    limit = context.settings.register_timeout_ms
    why = f"its worker did not register within {limit / 1000:g} s"
    context.never_registered[instance.offering.id] += 1
    pause = min(limit << (context.never_registered[instance.offering.id] - 1), _LONGEST_PAUSE_MS)
    words = f"the worker of {instance.id} did not register within {limit / 1000:g} s"
    refuse(context, [instance.offering.id], Millis(context.now + pause), words)
    for run in context.state.targeting(instance.id):
        context.explain(run, words)
    return why
