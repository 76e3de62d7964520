"""Memory of instances that come and go."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Instance
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import InstanceState


class SupplyMemory(Feature):
    """Memory of instances that come and go.

    Attributes:
        silent: Since when a ready instance's worker has had no session.
        unwanted: Since when the cloud has been listing an instance that the master never launched.
        unproven: Instances whose workers have registered, and on which no task has run yet.
        proving: When the first task began to run on an instance, until it has outlived that.
        unheard: Instances whose workers have not said what runs there since the journal was
            restored.
        foreign: Attempts on instances that the restored journal does not know of.
        unlisted: Whether the cloud has not listed the instances since then.
    """

    def __init__(self) -> None:
        self.silent: dict[InstanceId, Millis] = {}
        self.unwanted: dict[InstanceId, Millis] = {}
        self.unproven: set[InstanceId] = set()
        self.proving: dict[InstanceId, Millis] = {}
        self.unheard: set[InstanceId] = set()
        self.foreign: dict[InstanceId, set[tuple[RunId, int]]] = {}
        self.unlisted = False

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Forget the silence of an instance that is gone."""
        if instance.state is InstanceState.GONE:
            self.silent.pop(instance.id, None)
            self.unheard.discard(instance.id)
            self.foreign.pop(instance.id, None)
