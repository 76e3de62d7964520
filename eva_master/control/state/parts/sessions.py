"""The open session of each instance's worker."""

from __future__ import annotations

from collections.abc import Callable

from eva_wire.values.ids import InstanceId


class OpenSessions(dict[InstanceId, int]):
    """The number of each open session; not journalled.

    Args:
        changed: Called with each instance whose worker's session begins or ends.
    """

    def __init__(self, changed: Callable[[InstanceId], None]) -> None:
        super().__init__()
        self._changed = changed

    def begin(self, instance: InstanceId, session: int) -> None:
        """Note that a worker has opened a session; the last one that it had is over."""
        self[instance] = session
        self._changed(instance)

    def end(self, instance: InstanceId) -> None:
        """Note that a worker's session has ended; no error if it had none."""
        self.pop(instance, None)
        self._changed(instance)
