"""Describes which calls to EC2 fail at present, for users."""

from __future__ import annotations

from eva_master.adapters.ec2.faults import CloudUnsettled, worded
from eva_master.model.events import CloudTrouble
from eva_wire.values.errors import CloudDenied, CloudError, Throttled
from eva_wire.values.ids import Millis

_ABOUT: tuple[tuple[type[CloudError], str, str], ...] = (
    (CloudDenied, "EC2 denies access", ""),
    (
        Throttled,
        "EC2 throttles the account",
        "Eva asks less often; see what else in the account calls EC2",
    ),
    (
        CloudUnsettled,
        "EC2 does not answer",
        "check the master's way to it, ec2.endpoint, and AWS's health page",
    ),
    (CloudError, "EC2 refuses to answer", ""),
)


class Troubles:
    """Remembers which kinds of calls fail, and since when. One thread uses it."""

    def __init__(self) -> None:
        self._failing: dict[str, tuple[Millis, str]] = {}
        self._told = CloudTrouble(None)

    def failed(self, what: str, error: CloudError, since: Millis) -> None:
        """Note that a kind of call has failed in all its tries.

        Args:
            what: Name of the kind of call.
            error: The last error.
            since: When it was first tried, if it has not failed before.
        """
        earlier = self._failing.get(what)
        self._failing[what] = since if earlier is None else earlier[0], in_words(error)

    def over(self, what: str) -> None:
        """Note that a kind of call has succeeded."""
        self._failing.pop(what, None)

    def news(self) -> CloudTrouble | None:
        """The event to post; `None` if nothing has changed."""
        worst = min(self._failing.values(), default=None)
        trouble = CloudTrouble(None) if worst is None else CloudTrouble(*worst)
        if trouble == self._told:
            return None
        self._told = trouble
        return trouble


def in_words(error: CloudError) -> str:
    """A sentence about what fails, EC2's message, and what to do."""
    about, remedy = next((words, hint) for kind, words, hint in _ABOUT if isinstance(error, kind))
    return worded(about, error.message.removeprefix("EC2: "), error.hint or remedy)
