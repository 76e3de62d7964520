"""Decides the next step for an instance, from what was requested and how it is listed.

This module does not call EC2: it only returns the step to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from eva_master.adapters.ec2.faults import reason
from eva_master.adapters.ec2.sightings import Sighting
from eva_master.model.actions import LaunchInstance
from eva_master.model.events import InstanceGone, InstanceUp, LaunchFailed
from eva_wire.values.errors import CloudError
from eva_wire.values.ids import InstanceId, Millis

_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 300_000
_HOPELESS_MS = 600_000
"""Time after which a launch that EC2 fails to carry out each time is given up."""
_REMEMBERED_MS = 7_200_000
"""Time after which an ended instance is forgotten; EC2 itself forgets it sooner."""


class Call(Enum):
    """A call of EC2 to make."""

    LAUNCH = auto()
    TERMINATE = auto()


Step = Call | InstanceUp | InstanceGone | LaunchFailed | None
"""The next step: a call to make, an event to post, or nothing."""


@dataclass(slots=True)
class Life:
    """The life of one instance, from its first action or sighting. One thread uses it.

    Attributes:
        wanted: The requested launch; `None` if the instance was found or is only to be terminated.
        launching: Whether a call of RunInstances is in progress.
        made: Whether EC2 has made it. If it is not listed, it may be listed later.
        unsettled: Whether EC2 may have made it. Repeating the launch with the same token will tell.
        terminating: Whether it is to be terminated.
        owed: Whether the last request has no answer yet.
        up_ms: When billing began, as far as known.
        missing_ms: Since when it should be listed but is not.
        end: The event that ended it.
        why: Why it ended, for as long as no listing has told.
        listed: Whether a listing has shown it, so that its launch is never repeated.
    """

    instance: InstanceId
    wanted: LaunchInstance | None = None
    launching: bool = False
    made: bool = False
    unsettled: bool = False
    terminating: bool = False
    owed: bool = False
    up_ms: Millis | None = None
    missing_ms: Millis | None = None
    end: InstanceGone | LaunchFailed | None = None
    listed: bool = False
    why: str = ""
    _unclear: int = 0
    _unclear_since: Millis | None = None
    _not_before: Millis = Millis(0)

    def launch(self, action: LaunchInstance) -> None:
        """Note the request to launch it; after a failed attempt a new one begins."""
        attempt = self.wanted.attempt if self.wanted is not None else 0
        if isinstance(self.end, LaunchFailed) and action.attempt > attempt:
            self.end = None
        if self.end is None:
            self.wanted = action
            self.made = self.made or action.existed
        self.owed = True

    def terminate(self) -> None:
        """Note the request to terminate it."""
        if isinstance(self.end, LaunchFailed):
            self.end = None
        self.terminating = self.owed = True

    @property
    def waiting(self) -> LaunchInstance | None:
        """The requested launch that EC2 has not been asked for; `None` if there is none."""
        idle = not (self.launching or self.made or self.unsettled or self.terminating)
        return self.wanted if idle and self.end is None else None

    def forgettable(self, now: Millis) -> bool:
        """Whether it ended so long ago that it can be forgotten."""
        match self.end:
            case InstanceGone(gone_ms=at) | LaunchFailed(retry_at=at):
                return not (self.owed or self.launching) and now - at > _REMEMBERED_MS
            case _:
                return False

    def begin(self) -> None:
        """Note that RunInstances is being called for it."""
        self.launching = True

    def launched(self) -> None:
        """Note that RunInstances has made an instance."""
        self.launching = self.unsettled = False
        self.made = True

    def terminated(self, why: str) -> None:
        """Note that RunInstances had made an instance which was terminated since.

        A listing may still tell more; without one it is gone once listings have settled.
        """
        self.launched()
        self.why = why

    def unclear(self, now: Millis) -> None:
        """Note that RunInstances may have made an instance; repeating the call will tell.

        The pauses between repetitions grow.
        """
        self.launching = False
        self.unsettled = True
        self._unclear_since = now if self._unclear_since is None else self._unclear_since
        pause_ms = min(_FIRST_PAUSE_MS << self._unclear, _LONGEST_PAUSE_MS)
        self._unclear += 1
        self._not_before = Millis(now + pause_ms)

    def hopeless(self, now: Millis) -> bool:
        """Whether its launch has been unclear for so long that another offering is to be tried.

        An instance that shows up after all is terminated.
        """
        since = self._unclear_since
        return since is not None and now - since >= _HOPELESS_MS

    def refused(self, error: CloudError, retry_at: Millis) -> LaunchFailed | None:
        """Note that RunInstances has made no instance, and when to try again."""
        self.launching = self.unsettled = False
        if self.terminating:
            return None  # The next listing shows that there is none.
        self.end = LaunchFailed(self.instance, retry_at, reason(error))
        self.owed = False
        return self.end

    def look(self, seen: Sighting | None, now: Millis, settle_ms: int) -> Step:
        """Decide the next step.

        Args:
            seen: How the latest listing shows it; `None` if it does not.
            now: Milliseconds since the epoch.
            settle_ms: How long listings may omit an existing instance.
        """
        if self.launching:
            return None
        if seen is None:
            return self._absent(now, settle_ms)
        self.made, self.unsettled, self.missing_ms = True, False, None
        if self.end is None and seen.up_ms is not None:
            self.up_ms = seen.up_ms
        if seen.terminated:
            ended = now if seen.ended_ms is None else seen.ended_ms
            at = Millis(max(ended, self.up_ms or 0))
            return self._gone(at, seen.why, reclaimed=seen.reclaimed)
        if self.terminating or self.end is not None or seen.state in {"stopping", "stopped"}:
            # Eva never stops instances in order to start them again.
            return None if seen.state == "shutting-down" else Call.TERMINATE
        if seen.running and self.owed:
            self.owed = False
            return InstanceUp(self.instance, seen.up_ms or seen.launched_ms)
        return None

    def _absent(self, now: Millis, settle_ms: int) -> Step:
        if self.end is not None:
            return self._answer(self.end)
        if self.wanted is not None and not self.terminating and not self.made:
            return Call.LAUNCH if now >= self._not_before else None
        if not self.made and not self.unsettled:
            return self._gone(now)
        if self.missing_ms is None:
            self.missing_ms = now
        return self._gone(self.missing_ms, self.why) if now - self.missing_ms >= settle_ms else None

    def _gone(self, at: Millis, why: str = "", *, reclaimed: bool = False) -> Step:
        """The final event, posted once by itself and then at every request."""
        if isinstance(self.end, InstanceGone):
            return self._answer(self.end)
        self.end = InstanceGone(self.instance, self.up_ms, at, why, reclaimed=reclaimed)
        self.owed = False
        return self.end

    def _answer(self, event: InstanceGone | LaunchFailed) -> Step:
        if not self.owed:
            return None
        self.owed = False
        return event
