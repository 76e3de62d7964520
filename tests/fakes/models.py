"""Models of states, for what reads them."""

from __future__ import annotations

from eva_master.control.readside.model import ClusterModel
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_wire.values.ids import Millis


def model_of(state: State, settings: Settings | None = None) -> ClusterModel:
    """A model of a state as it is."""
    return Publisher(state, settings or Settings()).publish(Millis(0))
