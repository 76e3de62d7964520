"""The rounds of Eva: one cost model, one search."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.configuration.build import (
    Configuration,
    Totalled,
    configure,
    present_sums,
    supply,
    waiting,
)
from eva_master.packing.configuration.completion import completed, squeezed
from eva_master.packing.configuration.restating import restated
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.homing import send_home
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search import search
from eva_master.packing.local_search.search_start import (
    configuration,
    search_start,
    within_limits,
)
from eva_master.packing.lp.limit_prices import limit_prices
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.column_memory import KEPT, NamedColumns
from eva_master.packing.reconfiguration.lasting import lasting
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
from eva_master.packing.round_work import WORK_DONE, WorkBudget, homing_budget, round_budgets
from eva_master.packing.valuation.scarcity import raised
from eva_master.packing.valuation.time_left import ending, with_current_estimates
from eva_master.policies.eva.config import NAME, Config
from eva_master.policies.eva.memory import Memory, load
from eva_master.policies.eva.recent_moves import made, recalled
from eva_wire.values.ids import MILLION, Millis, OfferingId, RunId

_NS_PER_US = 1_000
_LP_FIRST_FROM_WAITING = 8
"""From so many waiting task runs on the optimizer packs them before the search begins."""
_LESS_WITHOUT_EVENTS = 3
"""A round without events tries so many times less hard."""


@dataclass(frozen=True, slots=True)
class _RoundInputs:
    """Inputs of one round."""

    problem: Problem
    trigger: ReplanTrigger
    optimizer: Optimizer
    present: Configuration
    keep: Configuration
    latest: Mapping[RunId, Millis]
    ends: Mapping[RunId, int]
    budget: WorkBudget
    homing: WorkBudget


class Eva:
    """Eva's scheduler.

    Every round places waiting tasks. When a job has arrived or ended, when task runs that could not
    be moved then can be now, and when co-location was learned, it searches for the configuration
    that costs least, moves and launches included; see `packing.local_search`. The search begins
    with the configuration in which nothing moves and never ends with a dearer one, so with an
    unchanged set of jobs nothing ever moves.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._terms = CostWeights(
            horizon_ms=config.horizon_s * 1000,
            lost_ppm=config.lost_ppm,
            gang_lost_ppm=config.gang_lost_ppm,
            moves_ppm=config.moves_ppm,
            lasting_ppm=config.lasting_ppm,
            horizon_left=config.horizon_left,
        )
        self._valuation = Valuation(
            config.interference,
            config.default_throughput_ppm,
            config.multi_task_view,
            by_base=config.by_base,
            infer_pairs=config.infer_pairs,
        )
        # Costs of sets are computed once; this memory changes no plan.
        self._loads: LoadCache | None = None

    @property
    def terms(self) -> CostWeights:
        """Weights of the costs in its objective."""
        return self._terms

    def problem(self, snapshot: Snapshot) -> Problem:
        """The packing problem of a snapshot, as this policy sees it."""
        config = self._config
        if config.horizon_left:
            snapshot = with_current_estimates(snapshot)
        return Problem(snapshot, self._valuation, self._cache)

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> tuple[Plan, PolicyMemory]:
        """Decide on one round's plan."""
        config = self._config
        before = load(memory, snapshot)
        trigger = ReplanTrigger(before.rounds, snapshot, self._cache, config, markets=True)
        rounds = trigger.remember(before.rounds)
        if not (config.explained or trigger.partial or trigger.waiting):
            return Plan(), replace(before, rounds=rounds).dump()
        problem = self.problem(snapshot)
        tier = Tier(config.optimizer)
        seeds = () if tier is Tier.GREEDY else before.rounds.columns.seeds(problem)
        searching, pricing = round_budgets(snapshot.work)
        homing = homing_budget(snapshot.work)
        optimizer = Optimizer(problem, tier, seeds, sets=pricing)
        present, fresh = configure(problem, ()), waiting(problem)
        keep = present
        if fresh:
            packer = optimizer.pack if len(fresh) >= _LP_FIRST_FROM_WAITING else None
            keep = completed(problem, configure(problem, fresh, packer))
            keep = squeezed(problem, keep)
        latest = made(before.moved, snapshot)
        timed = [problem.runs[run] for run in problem.placed.timed]
        ends = ending(problem.snapshot, timed) if config.spare_ending else {}
        round_ = _RoundInputs(
            problem, trigger, optimizer, present, keep, latest, ends, searching, homing
        )
        chosen, figures = self._searched(round_) if trigger.partial else (keep, Figures())
        moved = before.moved
        if trigger.partial:
            moved = recalled(latest, problem, self._terms, chosen)
        rounds = trigger.answered(rounds, chosen)
        if trigger.partial or trigger.waiting:
            rounds = replace(rounds, columns=NamedColumns.of(problem, optimizer.seeds(KEPT)))
        reasons = Reasons()
        if config.explained:
            rounds, reasons = self._explained(round_, chosen, rounds, figures)
        figures[WORK_DONE] = (searching.spent + pricing.spent + homing.spent) // _NS_PER_US
        return plan_of(problem, chosen, figures, reasons), Memory(rounds, moved).dump()

    def _steered(self, problem: Problem) -> Configuration | None:
        """Tasks on scarce offerings, and waiting tasks, placed anew at prices with scarcity.

        `None` if nothing is scarce, or if all offerings are limited.
        """
        limits = {offering.limit for offering in problem.offerings if problem.buyable(offering.id)}
        if not self._config.scarcity or None not in limits or limits <= {None, 0}:
            return None
        counts = problem.counts(run.id for run in problem.snapshot.runs)
        scarcity = limit_prices(problem, counts, supply(problem, {}))
        if not scarcity:
            return None
        steering = self.problem(raised(problem.snapshot, scarcity))
        on_scarce = [run for run in settled(steering) if _is_on(steering, run, scarcity)]
        placed = completed(steering, configure(steering, [*waiting(steering), *on_scarce]))
        return restated(problem, placed)

    def _searched(self, round_: _RoundInputs) -> tuple[Configuration, Figures]:
        """The cheapest configuration found, and figures of the search."""
        problem, config = round_.problem, self._config
        loads = self._loads
        if loads is None or not loads.serves(problem, self._terms):
            loads = self._loads = LoadCache(problem, self._terms)
        loads.begin(round_.budget)
        iterations = config.iterations
        if not round_.trigger.events:
            iterations //= _LESS_WITHOUT_EVENTS
        chosen, least, tried, kept = round_.keep, None, 0, 0
        snapshot, starts = problem.snapshot, [*self._starts(round_)]
        for number in itertools.count():
            start = starts[number]
            fewer = start.unplaced.keys() < chosen.unplaced.keys()
            if number and not round_.budget.left:
                # Additional placements are kept as they are.
                chosen = start if fewer else chosen
                break
            numbered = search_start(problem, loads, start, round_.latest, round_.ends)
            least = numbered.total if least is None or fewer else least
            seed = (snapshot.arrivals, snapshot.completions, number)
            result = search(numbered, loads, seed, iterations)
            tried, kept = tried + result.tried, kept + result.kept
            if fewer or result.total < least:
                chosen, least = start, result.total
                if within_limits(loads, numbered, result):
                    home = send_home(numbered, loads, result, round_.homing)
                    chosen = configuration(problem, loads, start, numbered, home)
            if number + 1 == len(starts):
                # With more tasks, another arrangement may be cheaper.
                larger = completed(problem, chosen)
                if larger is chosen:
                    break
                starts.append(larger)
        assert least is not None
        chosen = lasting(problem, self._terms, round_.keep, chosen)
        figures: Figures = {
            "objective_usd_per_hour": least / MILLION / MILLION,
            "iterations": tried,
            "improvements": kept,
            "loads": loads.met,
        }
        return chosen, figures

    def _starts(self, round_: _RoundInputs) -> Iterator[Configuration]:
        """Configurations to begin the search with."""
        yield round_.keep
        steered = self._steered(round_.problem)
        if steered is not None and steered.unplaced.keys() <= round_.keep.unplaced.keys():
            yield steered
        every, trigger = self._config.afresh_every, round_.trigger
        if every and trigger.total // every != (trigger.total - trigger.events) // every:
            movable = waiting(round_.problem) + settled(round_.problem)
            afresh = configure(round_.problem, movable, round_.optimizer.pack)
            if afresh.unplaced.keys() <= round_.keep.unplaced.keys():
                yield afresh

    def _explained(
        self,
        round_: _RoundInputs,
        chosen: Configuration,
        memory: ReconfigurationMemory,
        figures: Figures,
    ) -> tuple[ReconfigurationMemory, Reasons]:
        """Why, in dollars; adds to the figures."""
        problem, present = round_.problem, round_.present
        before = present_sums(problem, present)
        like = Totalled(present, before, problem.sold_as)
        keep = option("keep", problem, present, round_.keep, like)
        options: dict[str, Option] = {"keep": keep}
        if chosen is not round_.keep:
            like = Totalled(keep.configuration, keep.sums, problem.sold_as)
            options["search"] = option("search", problem, present, chosen, like)
        best = options.get("search", options["keep"])
        memory, bound = bounded(memory, problem, round_.optimizer, best)
        figures.update(figures_of(before, options, best))
        figures.update(bound)
        weighed = replace(
            weighing(problem, options, best),
            horizon_ms=self._terms.horizon_ms,
            lower_bound_micro_usd_per_hour=memory.bound // MILLION if memory.bounded else None,
            optimizer=self._config.optimizer,
            columns=round_.optimizer.effort.columns,
        )
        moves = exchanges(problem, present, round_.keep, chosen, best.moves)
        return memory, Reasons(hostings(problem, chosen), moves, weighed)


def _is_on(problem: Problem, run: RunView, offerings: Collection[OfferingId]) -> bool:
    """Whether a task run is on an instance of one of these offerings."""
    place = run.instance
    return place is not None and problem.sold_as[place] in offerings
