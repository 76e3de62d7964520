"""The features of the control loop, in the order in which they are told of changes.

Measuring comes first: what was learned from a job that ends tells lending what the job was worth.
"""

from __future__ import annotations

from eva_master.control.features.arrays.memory import ArrayMemory
from eva_master.control.features.budgets.memory import BudgetMemory
from eva_master.control.features.capping.memory import CappingMemory
from eva_master.control.features.catalog.memory import CatalogMemory
from eva_master.control.features.deadlines.memory import DeadlineMemory
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.features.failures.memory import FailureMemory
from eva_master.control.features.feed.memory import FeedMemory
from eva_master.control.features.forks.memory import ForkMemory
from eva_master.control.features.gangs.memory import GangMemory
from eva_master.control.features.lending.observer import LendingObserver
from eva_master.control.features.measuring.memory import MeasuringMemory
from eva_master.control.features.replicas.memory import ReplicaMemory
from eva_master.control.features.results.memory import ResultsMemory
from eva_master.control.features.secrets.memory import SecretsMemory
from eva_master.control.features.shared_limits.memory import SharedLimitsMemory
from eva_master.control.features.standstill.memory import StandstillMemory
from eva_master.control.lines.memory import LineMemory
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.control.supply.memory import SupplyMemory
from eva_master.control.turn.rounds import RoundMemory
from eva_master.control.turn.turn import Features


def features(state: State, settings: Settings) -> Features:
    """All features of a control loop.

    Args:
        state: The state, with the records that are there when the master starts.
        settings: Delays and limits.
    """
    observers = (FeedMemory(),) if settings.feed else ()
    return Features(
        (
            MeasuringMemory(settings.window_ms),
            LendingObserver(),
            EmptiedMemory(map(state.instances.__getitem__, state.live)),
            LineMemory(part.name for part in settings.partitions.all),
            ReplicaMemory(),
            StandstillMemory(),
            ArrayMemory(),
            BudgetMemory(),
            CappingMemory(),
            CatalogMemory(),
            DeadlineMemory(),
            FailureMemory(),
            ForkMemory(),
            GangMemory(),
            ResultsMemory(),
            RoundMemory(),
            SecretsMemory(),
            SharedLimitsMemory(),
            SupplyMemory(),
            *observers,
        )
    )
