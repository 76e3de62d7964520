"""The rounds of Eva: keep, partially reconfigure, or fully reconfigure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from eva_master.learning.rates import horizon_ms
from eva_master.model.ids import MILLION, MILLIS_PER_HOUR, CopyId, InstanceId, micro_usd
from eva_master.model.plan import Hold, Place, Plan, PlanEntry, PolicyMemory
from eva_master.model.reasons import Alternative, Reasons, Weighing
from eva_master.model.snapshot import CopyView, Snapshot
from eva_master.packing.configuration import (
    Configuration,
    configure,
    lost,
    price,
    savings,
    waiting,
)
from eva_master.packing.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.policies.eva.bound import bounded
from eva_master.policies.eva.columns import KEPT, Columns
from eva_master.policies.eva.config import Config
from eva_master.policies.eva.costs import migration_cost, moved, net_value
from eva_master.policies.eva.memory import NAME, Memory, digest, load
from eva_master.policies.eva.reasons import exchanges, hostings


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration that could be adopted.

    Attributes:
        kind: ``keep``, ``partial`` or ``full``.
        savings: S, in millionths of micro-dollars per hour.
        cost: M, in micro-dollars per hour times milliseconds.
        moves: How many running copies have to move.
    """

    kind: str
    configuration: Configuration
    savings: int
    cost: int
    moves: int

    def value(self, horizon: int) -> int:
        """S D̂ - M for a horizon in milliseconds."""
        return net_value(self.savings, horizon, self.cost)


class Eva:
    """Eva's scheduler.

    Every round places waiting tasks. When a job has arrived or ended it also considers moving
    running ones, partially or fully, and does so only if that is worth more than leaving them:
    so with an unchanged set of jobs nothing ever moves. There are two more occasions: a copy that
    was pinned at the last event no longer is; and, for partial reconfiguration alone, something
    new was learned about co-location.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> tuple[Plan, PolicyMemory]:
        """Decide on one round."""
        config = self._config
        before = load(memory, snapshot)
        problem = Problem(
            snapshot,
            Valuation(config.interference, config.default_throughput_ppm, config.multi_task_view),
        )
        occasion = _Occasion(before, problem)
        rates = before.rates.aged(snapshot.now_ms, config.half_life_s * 1000)
        seen = rates.counted(occasion.events, full=False)
        horizon = horizon_ms(seen, config.min_horizon_s * 1000)

        tier = Tier(config.optimizer)
        seeds = () if tier is Tier.GREEDY else before.columns.seeds(problem)
        optimizer = Optimizer(problem, tier, seeds)
        present = configure(problem, ())
        options = self._options(problem, present, occasion, optimizer)
        chosen = self._choose(options, horizon)
        before, bound = bounded(before, problem, optimizer, chosen.configuration)
        weighing = replace(
            _weighing(problem, options, chosen),
            horizon_ms=horizon,
            events_per_hour=seen.rate_per_hour(config.min_horizon_s * 1000),
            full_share=seen.full_share,
            lower_bound_micro_usd_per_hour=before.bound // MILLION if before.bounded else None,
            optimizer=tier.value,
            columns=optimizer.effort.columns,
        )
        reasons = Reasons(
            hostings(problem, chosen.configuration),
            exchanges(problem, present, options["keep"].configuration, chosen.configuration),
            weighing,
        )
        figures = {
            **_figures(problem, present, options, chosen),
            **bound,
            "horizon_s": horizon / 1000,
            "events_per_hour": weighing.events_per_hour,
            "full_share": weighing.full_share,
        }
        after = replace(before, columns=Columns.of(problem, optimizer.seeds(KEPT)))
        if occasion.events or chosen.kind == "full":
            after = replace(after, rates=rates.counted(occasion.events, full=chosen.kind == "full"))
        return _plan(problem, chosen, figures, reasons), occasion.remember(after).dump()

    def _options(
        self, problem: Problem, present: Configuration, occasion: _Occasion, optimizer: Optimizer
    ) -> dict[str, Option]:
        """Configurations worth comparing; ``keep`` is always among them."""
        fresh = waiting(problem)
        movable = {"keep": fresh}
        if self._config.partial and occasion.partial:
            candidates = _candidates(problem, present)
            if candidates:
                movable["partial"] = fresh + candidates
        settled = _settled(problem)
        if self._config.full and occasion.full and settled:
            movable["full"] = fresh + settled
        return {
            kind: _option(kind, problem, present, configure(problem, copies, optimizer.pack))
            for kind, copies in movable.items()
        }

    def _choose(self, options: dict[str, Option], horizon: int) -> Option:
        """The option with the largest S D̂ - M; of equals the one that moves less."""
        chosen = keep = options["keep"]
        for kind in ("partial", "full"):
            option = options.get(kind)
            if option is None or not _acceptable(option, keep):
                continue
            if kind == "full" and not self._config.partial:
                better = option.savings > keep.savings
            else:
                better = option.value(horizon) > chosen.value(horizon)
            if better:
                chosen = option
        return chosen


class _Occasion:
    """What has happened since the last round, and so what may be reconsidered."""

    def __init__(self, memory: Memory, problem: Problem) -> None:
        snapshot = problem.snapshot
        pinned = {
            copy.instance
            for copy in snapshot.copies
            if copy.pinned and copy.instance is not None and copy.instance in problem.instances
        }
        self._pinned = tuple(sorted(pinned))
        self._total = snapshot.arrivals + snapshot.completions
        self._learned = digest(snapshot.throughput)
        self.events = max(0, self._total - memory.events)
        freed = any(
            instance in problem.instances and instance not in self._pinned
            for instance in memory.hindered
        )
        self.full = self.events > 0 or freed
        self.partial = self.full or self._learned != memory.learned

    def remember(self, memory: Memory) -> Memory:
        """What the next round must know of this one."""
        hindered = self._pinned if self.full else memory.hindered
        return replace(memory, events=self._total, hindered=hindered, learned=self._learned)


def _settled(problem: Problem) -> list[CopyView]:
    """Copies with a place that may be moved."""
    return [
        copy
        for copy in problem.snapshot.copies
        if not copy.pinned and copy.instance in problem.instances
    ]


def _candidates(problem: Problem, present: Configuration) -> list[CopyView]:
    """Copies on instances that are not worth their price (section 4.5)."""
    inefficient: set[InstanceId] = set()
    for host, contents in present.contents.items():
        assert not isinstance(host, int)
        offering = problem.offering_of(host)
        if sum(contents.values()) == 1:
            (number,) = contents
            own = problem.reservation(number)
            if own is not None and own.id == offering.id:
                continue
        if problem.value(contents, offering.type.family) < offering.price * MILLION:
            inefficient.add(host)
    return [copy for copy in _settled(problem) if copy.instance in inefficient]


def _option(
    kind: str, problem: Problem, present: Configuration, configuration: Configuration
) -> Option:
    return Option(
        kind,
        configuration,
        savings(problem, configuration),
        migration_cost(problem, present, configuration),
        len(moved(problem, configuration)),
    )


def _acceptable(option: Option, keep: Option) -> bool:
    """Whether no task loses its place, nor a waiting one the place that it could have."""
    return option.configuration.unplaced.keys() <= keep.configuration.unplaced.keys()


def _weighing(problem: Problem, options: dict[str, Option], chosen: Option) -> Weighing:
    """The options and the size of the chosen one, for the record."""
    configuration = chosen.configuration
    micro_usd_per_hour = price(problem, configuration) + lost(problem, configuration) // MILLION
    return Weighing(
        chosen=chosen.kind,
        alternatives=tuple(
            Alternative(one.kind, one.savings // MILLION, micro_usd(one.cost), one.moves)
            for one in options.values()
        ),
        cost_micro_usd_per_hour=micro_usd_per_hour,
        classes=len(problem.classes),
        tasks=len(configuration.places),
        instances=len(configuration.contents),
    )


def _plan(
    problem: Problem, option: Option, figures: dict[str, int | float | str], reasons: Reasons
) -> Plan:
    configuration = option.configuration
    entries: list[PlanEntry] = [
        Place(copy, host)
        for copy, host in configuration.places.items()
        if host != problem.copies[copy].instance
    ]
    entries.extend(Hold(copy, reason) for copy, reason in configuration.unplaced.items())
    entries.sort(key=_copy)
    return Plan(configuration.launches, tuple(entries), figures, reasons)


def _copy(entry: PlanEntry) -> CopyId:
    return entry.copy


def _figures(
    problem: Problem, present: Configuration, options: dict[str, Option], chosen: Option
) -> dict[str, int | float | str]:
    """Why, in numbers: of every option that was considered, and of the one that was chosen."""
    figures: dict[str, int | float | str] = {
        "kind": chosen.kind,
        "moves": chosen.moves,
        "price_before_usd_per_hour": price(problem, present) / MILLION,
        "price_after_usd_per_hour": price(problem, chosen.configuration) / MILLION,
    }
    for kind, option in options.items():
        figures[f"savings_{kind}_usd_per_hour"] = option.savings / MILLION / MILLION
        figures[f"migration_cost_{kind}_usd"] = option.cost / MILLIS_PER_HOUR / MILLION
    return figures


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str = NAME
    config: type[Any] = Config

    def build(self, config: Any) -> Eva:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Eva(config)


POLICY = _Kind()
