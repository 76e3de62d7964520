"""The rounds of the published Eva: keep, partially reconfigure, or fully reconfigure."""

from __future__ import annotations

from dataclasses import replace

from eva_master.learning.rates import EventRates, horizon_ms
from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.configuration.build import Configuration, configure, sums, waiting
from eva_master.packing.configuration.completion import completed
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.column_memory import KEPT, NamedColumns
from eva_master.packing.reconfiguration.lower_bound import bounded
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.packing.reconfiguration.options import (
    Figures,
    Option,
    figures_of,
    option,
    plan_of,
    settled,
    weighing,
)
from eva_master.packing.reconfiguration.reasons import exchanges, hostings
from eva_master.packing.reconfiguration.replan_trigger import ReplanTrigger
from eva_master.packing.round_work import round_budgets
from eva_master.policies.eva_published.config import PRESETS, Config
from eva_master.policies.eva_published.memory import NAME, Memory, load
from eva_master.ports import PolicyKind
from eva_wire.values.ids import MILLION, InstanceId


class Published:
    """The scheduler of the paper: full and partial reconfiguration, and a choice between them.

    Every round places waiting tasks. When a job has arrived or ended it also considers moving
    running ones, partially or fully, and does so only if that is worth more than leaving them:
    so with an unchanged set of jobs nothing ever moves. There are two more triggers: a task run
    that was pinned at the last event no longer is; and, for partial reconfiguration alone,
    something new was learned about co-location.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> tuple[Plan, PolicyMemory]:
        """Decide on one round's plan."""
        config = self._config
        before = load(memory, snapshot)
        trigger = ReplanTrigger(before.rounds, snapshot, self._cache, config)
        rounds = trigger.remember(before.rounds)
        if not (config.explained or trigger.partial or trigger.waiting):
            return Plan(), replace(before, rounds=rounds).dump()
        problem = Problem(
            snapshot,
            Valuation(config.interference, config.default_throughput_ppm, config.multi_task_view),
            self._cache,
        )
        rates = before.rates.aged(snapshot.now_ms, config.half_life_s * 1000)
        seen = rates.counted(trigger.events, full=False)
        horizon = horizon_ms(seen, config.min_horizon_s * 1000)
        tier = Tier(config.optimizer)
        seeds = () if tier is Tier.GREEDY else before.rounds.columns.seeds(problem)
        _, pricing = round_budgets(snapshot.work)
        optimizer = Optimizer(problem, tier, seeds, sets=pricing)
        present = configure(problem, ())
        options = self._options(problem, present, trigger, optimizer)
        chosen = self._choose(options, horizon)
        rounds = trigger.answered(rounds, chosen.configuration)
        if trigger.partial or trigger.waiting:
            rounds = replace(rounds, columns=NamedColumns.of(problem, optimizer.seeds(KEPT)))
        figures: Figures = {
            **figures_of(sums(problem, present), options, chosen),
            "horizon_s": horizon / 1000,
            "events_per_hour": seen.rate_per_hour(config.min_horizon_s * 1000),
            "full_share": seen.full_share,
        }
        reasons = Reasons()
        if config.explained:
            rounds, bound = bounded(rounds, problem, optimizer, chosen)
            figures.update(bound)
            reasons = self._reasons(problem, present, options, chosen)
            reasons = self._weighed(reasons, rounds, optimizer, seen, horizon)
        full, counted = chosen.kind == "full", before.rates
        if trigger.events or full:
            counted = rates.counted(trigger.events, full=full)
        plan = plan_of(problem, chosen.configuration, figures, reasons)
        return plan, Memory(rounds, counted).dump()

    def _reasons(
        self,
        problem: Problem,
        present: Configuration,
        options: dict[str, Option],
        chosen: Option,
    ) -> Reasons:
        keep = options["keep"].configuration
        return Reasons(
            hostings(problem, chosen.configuration),
            exchanges(problem, present, keep, chosen.configuration, chosen.moves),
            weighing(problem, options, chosen),
        )

    def _weighed(
        self,
        reasons: Reasons,
        memory: ReconfigurationMemory,
        optimizer: Optimizer,
        seen: EventRates,
        horizon: int,
    ) -> Reasons:
        """Add to the reasons what the choice was made by."""
        assert reasons.weighing is not None
        weighed = replace(
            reasons.weighing,
            horizon_ms=horizon,
            events_per_hour=seen.rate_per_hour(self._config.min_horizon_s * 1000),
            full_share=seen.full_share,
            lower_bound_micro_usd_per_hour=memory.bound // MILLION if memory.bounded else None,
            optimizer=self._config.optimizer,
            columns=optimizer.effort.columns,
        )
        return replace(reasons, weighing=weighed)

    def _options(
        self, problem: Problem, present: Configuration, trigger: ReplanTrigger, optimizer: Optimizer
    ) -> dict[str, Option]:
        """Configurations worth comparing; ``keep`` is always among them."""
        fresh = waiting(problem)
        movable = {"keep": fresh}
        if self._config.partial and trigger.partial:
            candidates = _candidates(problem, present)
            if candidates:
                movable["partial"] = fresh + candidates
        movers = settled(problem)
        if self._config.full and trigger.full and movers:
            movable["full"] = fresh + movers
        configurations = {
            kind: completed(problem, configure(problem, runs, optimizer.pack)) if runs else present
            for kind, runs in movable.items()
        }
        return {
            kind: option(kind, problem, present, configuration)
            for kind, configuration in configurations.items()
        }

    def _choose(self, options: dict[str, Option], horizon: int) -> Option:
        """The option with the largest S D̂ - M; of equals the one that moves less."""
        chosen = keep = options["keep"]
        for kind in ("partial", "full"):
            other = options.get(kind)
            if other is None or not _acceptable(other, keep):
                continue
            if kind == "full" and not self._config.partial:
                better = other.savings > keep.savings
            else:
                better = other.value(horizon) > chosen.value(horizon)
            if better:
                chosen = other
        return chosen


def _candidates(problem: Problem, present: Configuration) -> list[RunView]:
    """Task runs on instances that are not worth their price (section 4.5)."""
    inefficient: set[InstanceId] = set()
    for host, task_set in present.task_sets.items():
        assert not isinstance(host, int)
        offering = problem.offering_of(host)
        if sum(task_set.values()) == 1:
            (number,) = task_set
            own = problem.reservation(number)
            if own is not None and own.id == offering.id:
                continue
        if problem.value(task_set, offering.type.family) < offering.price * MILLION:
            inefficient.add(host)
    return [run for run in settled(problem) if run.instance in inefficient]


def _acceptable(other: Option, keep: Option) -> bool:
    """Whether no task loses its place, nor a waiting one the place that it could have."""
    return other.configuration.unplaced.keys() <= keep.configuration.unplaced.keys()


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Published,
    presets=PRESETS,
    reads=reads_none,
)
