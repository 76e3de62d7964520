"""Summarises an experiment: means over seeds with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit  # type: ignore[import-untyped]

from eva_lab.experiments.runs import Cell, Result, Results
from eva_lab.experiments.schema import ExperimentPlan, Value

_CONFIDENCE = 0.95
REFERENCE = "reference"
TENANT_FIGURES = (
    "jobs",
    "cost_usd",
    "jct_mean_h",
    "idle_mean_h",
    "value_usd",
    "gain_usd",
    "alpha",
)
Values = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class SeedMean:
    """A mean over seeds.

    Attributes:
        half: Half the width of its 95 % confidence interval; `None` with fewer than two different
            traces.
        count: Number of different runs.
    """

    mean: float
    half: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedMean:
        """Estimate the mean of at least one value, by Student's distribution."""
        if len(values) < 2:
            return cls(values[0], None, 1)
        quantile = float(stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2))
        half = quantile * stdev(values) / math.sqrt(len(values))
        return cls(fmean(values), half, len(values))


@dataclass(frozen=True)
class Row:
    """One policy on one trace at one point.

    Attributes:
        figures: Estimates by the names of the fields of `SimulationOutcome`, and
            ``cost_share`` and ``jct_share``, cost and mean completion time over those of the
            baseline on the same trace, and ``reference_share``, the cost over the reference bound;
            those of partitions as ``PARTITION/FIGURE``.
        results: The results behind them, by seed.
        tenants: By name the same by the names of
            `eva_lab.simulator.results.metrics.TenantFigures`; empty where no job has a tenant.
        pairs: By the label of each other policy, in how many of the same traces this one was better
            by the experiment's own figure, see `better_by`, and how many there are.
        speed_ups: By the label of each other policy its mean completion time over that of this
            one, on the same traces; empty unless the cluster is fixed.
    """

    trace: str
    values: Values
    label: str
    figures: Mapping[str, SeedMean]
    results: tuple[Result, ...] = field(repr=False, default=())
    tenants: Mapping[str, Mapping[str, SeedMean]] = field(default_factory=dict)
    speed_ups: Mapping[str, SeedMean] = field(default_factory=dict)
    pairs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def shape(self) -> dict[str, Any]:
        """The content as JSON has it."""
        return {
            "trace": self.trace,
            "vary": dict(self.values),
            "policy": self.label,
            "runs": max(figure.count for figure in self.figures.values()),
            "figures": _shape(self.figures),
            **({"speed_ups": _shape(self.speed_ups)} if self.speed_ups else {}),
            "better_in": {
                label: {"pairs": of, "won": won} for label, (won, of) in self.pairs.items()
            },
            **(
                {"tenants": {name: _shape(of) for name, of in of_all.items()}}
                if (of_all := self.tenants)
                else {}
            ),
        }


def _shape(figures: Mapping[str, SeedMean]) -> dict[str, Any]:
    return {
        name: {"mean": estimate.mean, "half_width": estimate.half}
        for name, estimate in figures.items()
    }


@dataclass(frozen=True)
class Summary:
    """All rows of an experiment.

    Attributes:
        rows: In the order of the file.
        reference: The mean reference bound in dollars by trace and point.
        reference_share: Lower bound over the baseline's cost.
        missing: Number of runs without a result.
        versions: Versions of the code that made the results.
    """

    plan: ExperimentPlan
    rows: tuple[Row, ...]
    reference: Mapping[tuple[str, Values], float]
    reference_share: Mapping[tuple[str, Values], float]
    missing: int
    versions: frozenset[str]

    def shape(self) -> dict[str, Any]:
        """The content as JSON has it."""
        experiment = self.plan.experiment
        return {
            "name": experiment.name,
            "title": experiment.title,
            "baseline": experiment.baseline,
            "accounting": experiment.accounting,
            "missing_runs": self.missing,
            "rows": [row.shape() for row in self.rows],
            "reference_bound_usd": [
                {"trace": trace, "vary": dict(values), "usd": usd}
                for (trace, values), usd in self.reference.items()
            ],
        }


RowKey = tuple[str, Values, str]


def better_by(plan: ExperimentPlan) -> str:
    """The figure of which less is better: the cost, and on a cluster that is paid for the JCT."""
    fixed = plan.experiment.cluster or plan.experiment.fleet
    return "cost_usd" if fixed is None else "jct_mean_h"


def summarise(plan: ExperimentPlan, cells: Sequence[Cell], results: Results) -> Summary:
    """Summarise the existing results of an experiment."""
    kept = {digest: results.find(digest) for digest in {cell.digest for cell in cells}}
    by_place: dict[RowKey, dict[int, Cell]] = {}
    for cell in cells:
        by_place.setdefault((cell.trace, cell.values, cell.label), {})[cell.seed] = cell
    fixed = plan.experiment.cluster or plan.experiment.fleet
    rivals = () if fixed is None else plan.experiment.labels
    figures = _Known(by_place, kept, plan, rivals)
    rows = tuple(
        row
        for place in by_place
        if place[2] != REFERENCE and (row := figures.row(place)) is not None
    )
    places = [place[:2] for place in by_place if place[2] == REFERENCE]
    bounds = {place: list(figures.bounds(place)) for place in places}
    return Summary(
        plan,
        rows,
        {place: fmean(usd for usd, _ in pairs) for place, pairs in bounds.items() if pairs},
        {
            place: fmean(shares)
            for place, pairs in bounds.items()
            if (shares := [share for _, share in pairs if share is not None])
        },
        sum(result is None for result in kept.values()),
        frozenset(result["made"]["code"] for result in kept.values() if result is not None),
    )


class _Known:
    """The results by cell and seed."""

    def __init__(
        self,
        cells: Mapping[RowKey, Mapping[int, Cell]],
        results: Mapping[str, Result | None],
        plan: ExperimentPlan,
        rivals: Sequence[str],
    ) -> None:
        self._cells = cells
        self._results = results
        self._baseline = plan.experiment.baseline
        self._labels = plan.experiment.labels
        self._better_by = better_by(plan)
        self._rivals = rivals

    def bounds(self, place: tuple[str, Values]) -> Iterator[tuple[float, float | None]]:
        """Reference bounds in dollars, and over the baseline's cost on the same trace."""
        for cell in self._distinct((*place, REFERENCE)):
            result = self._results[cell.digest]
            if result is not None:
                usd = result["figures"]["cost_usd"]
                whole = self._figure((*place, self._baseline), cell.seed, "cost_usd")
                yield usd, usd / whole if whole else None

    def row(self, place: RowKey) -> Row | None:
        """`None` if no run of it is there."""
        samples: dict[str, list[float]] = {}
        results = []
        for cell in self._distinct(place):
            result = self._results[cell.digest]
            if result is None:
                continue
            results.append(result)
            figures = dict(result["figures"])
            for name, key, other in (
                ("cost_share", "cost_usd", self._baseline),
                ("jct_share", "jct_mean_h", self._baseline),
                ("reference_share", "cost_usd", REFERENCE),
            ):
                whole = self._figure((*place[:2], other), cell.seed, key)
                if whole and key in figures:
                    figures[name] = figures[key] / whole
            for name, value in figures.items():
                samples.setdefault(name, []).append(value)
        if not results:
            return None
        estimates = {name: SeedMean.of(values) for name, values in samples.items()}
        speed_ups, pairs = self._speed_ups(place), self._pairs(place)
        return Row(*place, estimates, tuple(results), _tenants(results), speed_ups, pairs)

    def _pairs(self, place: RowKey) -> dict[str, tuple[int, int]]:
        """In how many of the same traces this policy was better than each other one."""
        pairs: dict[str, tuple[int, int]] = {}
        for rival in self._labels:
            won = of = 0
            for cell in self._distinct(place):
                own = self._figure(place, cell.seed, self._better_by)
                other = self._figure((*place[:2], rival), cell.seed, self._better_by)
                if own is not None and other is not None and rival != place[2]:
                    won, of = won + (own < other), of + 1
            if of:
                pairs[rival] = won, of
        return pairs

    def _speed_ups(self, place: RowKey) -> dict[str, SeedMean]:
        """How much longer jobs took under each other policy, where both were run."""
        speed_ups: dict[str, SeedMean] = {}
        for rival in self._rivals:
            ratios = []
            for cell in self._distinct(place):
                own = self._figure(place, cell.seed, "jct_mean_h")
                other = self._figure((*place[:2], rival), cell.seed, "jct_mean_h")
                if own and other and rival != place[2]:
                    ratios.append(other / own)
            if ratios:
                speed_ups[rival] = SeedMean.of(ratios)
        return speed_ups

    def _distinct(self, place: RowKey) -> list[Cell]:
        """One cell per run: seeds that share one are one sample."""
        return list({cell.digest: cell for cell in self._cells[place].values()}.values())

    def _figure(self, place: RowKey, seed: int, key: str) -> float | None:
        cell = self._cells.get(place, {}).get(seed)
        result = self._results[cell.digest] if cell else None
        return None if result is None else result["figures"].get(key)


def _tenants(results: Sequence[Result]) -> dict[str, dict[str, SeedMean]]:
    """The figures of each tenant, by name; each over the runs in which it had jobs."""
    samples: dict[str, dict[str, list[float]]] = {}
    for result in results:
        for tenant in result.get("tenants", ()):
            of = samples.setdefault(tenant["tenant"], {})
            for name in TENANT_FIGURES:
                # Results from before lack some, and who has no quota has no alpha.
                if tenant.get(name) is not None:
                    of.setdefault(name, []).append(tenant[name])
    return {
        tenant: {name: SeedMean.of(values) for name, values in of.items()}
        for tenant, of in sorted(samples.items())
    }
