"""The control loop's turns in a live master."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from eva_master.adapters.loop.inbox import LiveInbox


def take_turns(step: Callable[[], None], inbox: LiveInbox, stopping: Event) -> None:
    """Take turns until the end is asked for, and one more for what was posted before that.

    The cloud posts that the last instances are gone just before: they are to be in the books.

    Args:
        step: Has the loop take one.
        inbox: The loop's; something is posted after `stopping` is set.
        stopping: Whether the end is asked for.
    """
    while not stopping.is_set():
        step()
    if inbox.pending:
        step()
