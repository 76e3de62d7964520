"""Why an instance stays though it is empty."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import JobId, Millis


@dataclass(frozen=True, slots=True)
class KeepReason:
    """Why an empty instance stays.

    Attributes:
        job: A job of which a task waits that fits it; `None` while a plan is under way that may
            want an instance of its type.
        until_ms: When it goes at the latest, unless it is looked at again and kept anew.
        since_ms: Since when it has been empty.
        headed: Whether that job's task has a place already, on one of its type that still boots.
    """

    job: JobId | None
    until_ms: Millis
    since_ms: Millis
    headed: bool = False
