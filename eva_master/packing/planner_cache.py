"""Memory of one planner from round to round; none of it changes a plan.

In a large cluster most of a round's tasks, prices and observations were there a round before. A
policy keeps one cache and passes it to everything that it calls. Every part of it is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

from eva_master.learning.colocation import recorded
from eva_master.learning.speeds.type_rates import TypeSpeeds, TypeSpeedsView
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates, ThroughputTable
from eva_master.packing.incremental.present import (
    FollowedJobs,
    PlacedRuns,
    PresentPlaces,
    followed_jobs,
    placed_runs,
    sold_view,
)
from eva_master.packing.incremental.view import IncrementalView
from eva_master.packing.interference.digest import digest_view
from eva_master.packing.interference.inference import Averaged, Row, averaged_view, inferred_view
from eva_master.packing.interference.observations import ObservationIndex, observations_view
from eva_master.packing.interference.throughput import ExactThroughput, ThroughputModel
from eva_master.packing.valuation.offerings import OfferingIndex, unlisted
from eva_master.packing.valuation.reservation_price import Rates, measured_rates_view, sheets
from eva_master.packing.valuation.task_classes import SnapshotShapes
from eva_master.packing.valuation.task_shapes import TaskShapes
from eva_wire.values.ids import InstanceId, OfferingId, Workload

_MODELS_KEPT = 16
"""Throughput models that are remembered; each is of one table, set of workloads and default."""
_OFFERING_INDEXES_KEPT = 4
"""Catalogs with what was bought; what a user asks about may be of another cluster."""
_DEFAULTS_KEPT = 8
"""Pairwise defaults that pairs are inferred with."""

_VALUES_KEPT = 4_096
"""Values of one purpose that are remembered."""

V = TypeVar("V")
_ModelKey = tuple[ObservationIndex, frozenset[Workload], int]


class PlannerCache:
    """Values derived from snapshots, kept while their inputs are the same.

    Attributes:
        shapes: Shapes and prices of tasks.
        present: Present places of task runs.
    """

    def __init__(self) -> None:
        self.shapes = TaskShapes()
        self.present = PresentPlaces()
        self._placed, self._jobs, self._sold = placed_runs(), followed_jobs(), sold_view()
        self._averaged: IncrementalView[Row, Averaged] = averaged_view()
        self._inferred: dict[int, IncrementalView[Row, ThroughputTable]] = {}
        self._observations = observations_view()
        self._measured = measured_rates_view()
        self._models: dict[_ModelKey, ThroughputModel] = {}
        self._exact: tuple[ThroughputTable, int, ExactThroughput] | None = None
        self._offerings: tuple[OfferingIndex, ...] = ()
        self._table_digests: IncrementalView[object, int] = digest_view()
        self._rate_digests: IncrementalView[object, int] = digest_view()
        self._remembered: dict[str, dict[Hashable, Any]] = {}

    def remembered(
        self, purpose: str, key: Hashable, make: Callable[[], V], limit: int = _VALUES_KEPT
    ) -> V:
        """A value that depends on a key alone; made when first asked for.

        Args:
            purpose: Purpose of the value; each purpose has its own keys.
            key: Everything that the value depends on.
            make: Function that makes it.
            limit: Number of values remembered for the purpose; when it is reached, all of them are
                forgotten.
        """
        values = self._remembered.setdefault(purpose, {})
        if key not in values:
            if len(values) >= limit:
                values.clear()
            values[key] = make()
        value: V = values[key]
        return value

    def placed(self, snapshot: Snapshot) -> PlacedRuns:
        """Facts about the task runs of a snapshot."""
        return self._placed.of(snapshot.runs)

    def jobs(self, snapshot: Snapshot) -> FollowedJobs:
        """Facts about the jobs of a snapshot."""
        return self._jobs.of(snapshot.jobs)

    def sold_as(self, snapshot: Snapshot) -> Mapping[InstanceId, OfferingId]:
        """Offering of each live instance, in order."""
        return self._sold.of(snapshot.instances)

    def digest(self, table: ThroughputTable, rates: StandaloneRates | None = None) -> str:
        """Digest of the learned co-location, and of tasks' rates alone."""
        total = self._table_digests.of(table.observed)
        if rates is not None:
            total += self._rate_digests.of(rates.measured)
        return f"{total:016x}"

    def by_base(self, table: ThroughputTable) -> ThroughputTable:
        """Let the variants of a workload (``resnet18[3]``, ``resnet18[7]``) teach each other.

        Observations of variants of one multiset are averaged.
        """
        return self._averaged.of(table.observed)[1]

    def with_pairs(self, table: ThroughputTable, default_ppm: int) -> ThroughputTable:
        """Add pairs that were never seen on their own, but in larger sets.

        A set's throughput is held to be the product of its pairs', so its logarithm is a sum. The
        pairs of a workload that are not known are those that fit its sets best by least squares,
        with a weak pull towards the default.
        """
        view = self._inferred.get(default_ppm)
        if view is None:
            if len(self._inferred) >= _DEFAULTS_KEPT:
                self._inferred.clear()
            view = self._inferred[default_ppm] = inferred_view(default_ppm)
        return view.of(table.observed)

    def observations(self, table: ThroughputTable) -> ObservationIndex:
        """The index of a co-location table."""
        return self._observations.of(table.observed)

    def throughput(
        self, table: ThroughputTable, workloads: frozenset[Workload], default_ppm: int
    ) -> ThroughputModel:
        """The throughput model of a table over some workloads, vectorised."""
        key = self.observations(table), workloads, default_ppm
        model = self._models.pop(key, None) or ThroughputModel(*key)
        # The model that was asked for last is the last to go.
        self._models[key] = model
        if len(self._models) > _MODELS_KEPT:
            del self._models[next(iter(self._models))]
        return model

    def exact_throughput(self, table: ThroughputTable, default_ppm: int) -> ExactThroughput:
        """The throughput of task sets by a table, for whatever workloads turn up."""
        last = self._exact
        if last is None or last[0] is not table or last[1] != default_ppm:
            model = ExactThroughput(partial(recorded, table), default_ppm)
            last = self._exact = table, default_ppm, model
        return last[2]

    def measured_rates(self, standalone: StandaloneRates) -> Mapping[Workload, Rates]:
        """Measured rates of each workload alone."""
        return self._measured.of(standalone.measured)

    def type_speeds(self, snapshot: Snapshot) -> TypeSpeeds:
        """How fast the families of a snapshot's catalog are expected to be."""
        on_sheets = sheets(snapshot.catalog)
        view: TypeSpeedsView = self.remembered(
            "data sheets", tuple(sorted(on_sheets.items())), partial(TypeSpeedsView, on_sheets)
        )
        return view.of(snapshot.standalone.measured)

    def snapshot_shapes(self, snapshot: Snapshot) -> SnapshotShapes:
        """Values of a snapshot's tasks alone, at its prices."""
        bought = {view.offering.id: view.offering for view in snapshot.instances}
        index = self.offerings(snapshot.catalog, bought)
        prices, measured = index.prices(snapshot.now_ms), self.measured_rates(snapshot.standalone)
        expected = index.type_speeds.of(snapshot.standalone.measured)
        return SnapshotShapes(prices, self.shapes, measured, expected)

    def offerings(self, catalog: Catalog, bought: Mapping[OfferingId, Offering]) -> OfferingIndex:
        """The offerings of a catalog; the same index where an equal one was asked for recently.

        Args:
            catalog: The offerings on offer.
            bought: Offerings of live instances.
        """
        for index in self._offerings:
            if index.catalog == catalog and index.unlisted == unlisted(index.listed, bought):
                return index
        fresh = OfferingIndex(catalog, unlisted({offering.id for offering in catalog}, bought))
        self._offerings = (fresh, *self._offerings[: _OFFERING_INDEXES_KEPT - 1])
        return fresh
