"""The parts of `eva simulate`: policies by name, and one run after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eva_lab.simulator.cluster.truth import Truth
from eva_lab.simulator.results.metrics import SimulationOutcome, usd
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces import (
    measured_interference,
    read_interference,
    read_trace,
    uniform_interference,
)
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection, PolicySection
from eva_master.app.sections.building import policy_config
from eva_master.app.sections.policies import (
    asked_by,
    led_by,
    spot_choice_by,
)
from eva_master.control.settings import PATIENCE_MS
from eva_master.model.catalog import Catalog
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.trace import Trace
from eva_master.packing.elastic.fixed import built
from eva_master.ports import Policy, PolicyKind
from eva_wire.text.quantities import parse_duration
from eva_wire.text.yamlfile import scalar, wording
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLION, Workload, base_of

ROUND_GAP_S = 300
"""Seconds between plans of policies without a preference."""
NO_PACKING = "no_packing"
"""The policy that costs are compared with."""
_TOLD_EVERY_S = 0.1
_STEPS = 64
"""Turns of the loop between two progress reports."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy with its options, as requested.

    Attributes:
        name: ``NAME`` or ``NAME:PRESET``.
        options: Options of the policy, which override those of the preset.
    """

    name: str
    options: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The policy's name without the preset."""
        return self.name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run.

    Attributes:
        now_ms: Virtual time.
        finished: Number of finished jobs, of `total`.
        cost_usd: The cost so far.
    """

    now_ms: int
    finished: int
    total: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A policy and its results.

    Attributes:
        wall_s: Real seconds, planning included.
    """

    policy: str
    outcome: SimulationOutcome
    wall_s: float


Division = Callable[[Setup, int | None], Setup]
"""Divides the cluster of a setup whose policy is chosen, given the seconds between plans if these
are the same for all."""


def named_policy(text: str, options: Mapping[str, Any] | None = None) -> tuple[Policy, int | None]:
    """Make a policy from its name on a command line.

    Args:
        text: ``NAME`` or ``NAME:PRESET``.
        options: Of the policy's own, over those of the preset.

    Returns:
        The policy, and the seconds at whose multiples it plans, `None` for at any time: its own
        preference, or `ROUND_GAP_S` where it has none.

    Raises:
        InvalidConfig: There is no such policy, preset or option.
    """
    kind, preset = _kind(text)
    chosen = {**preset, **(options or {})}
    names = {field.name for field in fields(kind.config)}
    if unknown := sorted(chosen.keys() - names):
        raise InvalidConfig(
            f"the policy {kind.name} has no option {unknown[0]!r}",
            hint=f"options: {', '.join(sorted(names)) or 'it has none'}",
        )
    try:
        config = policy_config(PolicySection(name=kind.name, options=chosen), kind)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        place = f"{where}: " if where else ""
        raise InvalidConfig(f"policy {kind.name}: {place}{wording(first)}") from error
    return built(kind, config), getattr(config, "round_gap_s", ROUND_GAP_S)


def options_of(text: str) -> frozenset[str]:
    """The options that a policy has, by its name on a command line.

    Raises:
        InvalidConfig: There is no such policy or preset.
    """
    kind, _ = _kind(text)
    return frozenset(field.name for field in fields(kind.config))


def require_possible(name: str, options: Mapping[str, Any]) -> None:
    """Check that a policy can decide where jobs do not say how long they take.

    Args:
        name: ``NAME`` or ``NAME:PRESET``, of a policy that there is.
        options: Of the policy's own.

    Raises:
        InvalidConfig: The policy cannot run so.
    """
    section = OnePolicySection(name=name, options=dict(options))
    kind = policies()[section.name]
    for _, message, hint in kind.refusals(policy_config(section, kind)):
        raise InvalidConfig(f"policy {name}: {message}", hint=hint)


def _kind(text: str) -> tuple[PolicyKind, Mapping[str, Any]]:
    name, _, preset = text.partition(":")
    kinds = policies()
    if name not in kinds:
        raise InvalidConfig(f"there is no policy {name!r}", hint=f"one of: {', '.join(kinds)}")
    kind = kinds[name]
    presets = kind.presets
    if preset and preset not in presets:
        hint = ", ".join(presets) or "it has none"
        raise InvalidConfig(f"the policy {name} has no preset {preset!r}", hint=f"presets: {hint}")
    return kind, presets.get(preset, {})


def chosen_policies(names: Iterable[str], settings: Iterable[str]) -> list[Chosen]:
    """Policies as a command line asks for them.

    Args:
        names: ``NAME`` or ``NAME:PRESET`` each.
        settings: ``OPTION=VALUE`` for all that have the option, ``NAME.OPTION=VALUE`` for one.

    Raises:
        InvalidConfig: A policy, preset or option does not exist.
    """
    pairs = [_setting(text) for text in settings]
    chosen = []
    for name in dict.fromkeys(names):
        kind, _ = _kind(name)
        options = {field.name for field in fields(kind.config)}
        own = {key: value for of, key, value in pairs if of in (kind.name, name)}
        shared = {key: value for of, key, value in pairs if not of and key in options}
        chosen.append(Chosen(name, {**shared, **own}))
        named_policy(name, chosen[-1].options)
    names_run = {choice.name for choice in chosen} | {choice.kind for choice in chosen}
    for of, key, _ in pairs:
        used = of in names_run if of else any(key in choice.options for choice in chosen)
        if not used:
            raise InvalidConfig(
                f"no policy takes the setting {key!r}" if not of else f"no policy {of!r} is run"
            )
    return chosen


def _setting(text: str) -> tuple[str, str, Any]:
    key, separator, value = text.partition("=")
    if not separator:
        raise InvalidConfig(f"{text!r} is not OPTION=VALUE")
    of, _, option = key.rpartition(".")
    return of, option, scalar(value)


def profile(trace: Trace, truth: Truth) -> tuple[tuple[str, str, int], ...]:
    """Normalised throughput of each base workload of a trace beside each other one."""
    bases: list[Workload] = sorted({base_of(job.workload) for job in trace.jobs})
    return tuple(
        (workload, other, round(truth(workload, (other,)) * MILLION))
        for workload in bases
        for other in bases
    )


def prepared(chosen: Chosen, setup: Setup) -> Setup:
    """Prepare a run. A policy that needs a profile of all pairs gets the true one.

    Args:
        chosen: The policy.
        setup: The setup without policy and timing of rounds.
    """
    kind, _ = _kind(chosen.name)
    options = dict(chosen.options)
    if "profile" in {field.name for field in fields(kind.config)} and "profile" not in options:
        options["profile"] = profile(setup.trace, setup.truth)
    if "explained" in {field.name for field in fields(kind.config)}:
        options.setdefault("explained", False)  # it is not used, and takes longer than planning
    policy, gap = named_policy(chosen.name, options)
    if setup.past is not None and "round_gap_s" not in {
        field.name for field in fields(kind.config)
    }:
        gap = None  # as a live master does
    section = PolicySection(name=chosen.name, options=dict(chosen.options))
    whole = led_by(setup.partitions.whole, section)
    patience = {} if whole.own_order else {"": PATIENCE_MS}
    partitions = replace(setup.partitions, whole=whole)
    return replace(
        setup,
        policy=policy,
        round_gap_s=gap,
        partitions=partitions,
        patience=patience,
    )


def run(name: str, setup: Setup, watch: Callable[[RunProgress], None] | None = None) -> PolicyRun:
    """Simulate.

    Args:
        name: Name of the run, for people.
        setup: The setup.
        watch: Called with the progress several times per second.

    Raises:
        EvaError: See `eva_lab.simulator.run.simulate`.
    """
    start = time.perf_counter()
    simulation = Simulation(replace(setup, stopwatch=time.perf_counter))
    total, shown_s, steps = len(setup.trace.jobs), start, 0
    while simulation.step():
        steps += 1
        if (
            watch is not None
            and steps % _STEPS == 0
            and time.perf_counter() - shown_s > _TOLD_EVERY_S
        ):
            shown_s = time.perf_counter()
            watch(RunProgress(simulation.now_ms, simulation.finished, total, simulation.cost_usd))
    outcome = simulation.outcome()
    if watch is not None:
        watch(RunProgress(simulation.now_ms, total, total, outcome.cost_usd))
    return PolicyRun(name, outcome, time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of policies on one trace.

    Attributes:
        nopack_usd: The cost with an instance for each task.
        bound_usd: The lower bound; `None` if it was not requested.
    """

    runs: tuple[PolicyRun, ...]
    nopack_usd: float
    bound_usd: float | None


def compare(
    policies_: Sequence[Chosen],
    setup: Setup,
    *,
    rhythm: int | None = None,
    reference: bool = True,
    division: Division | None = None,
    estimates: Estimates | None = None,
    spot_choice: SpotChoice | None = None,
    watch: Callable[[str, RunProgress], None] = lambda _name, _so: None,
) -> Comparison:
    """Run policies on one trace, one after another.

    Args:
        policies_: The policies.
        setup: All but the policy and its rhythm.
        rhythm: All plan at multiples of so many seconds; 0 for at any time, `None` for the
            preference of each.
        reference: Whether to compute the lower bound; there is none where there are owned nodes.
        division: Divides the cluster into partitions; the references are for an undivided one.
        estimates: Source of run times; `None` for what each policy asks for.
        spot_choice: See `SpotChoice`; `None` for what each policy asks for.
        watch: Called with the policy's name and its progress.

    Raises:
        EvaError: See `eva_lab.simulator.run.simulate`; or a policy cannot do without the run
            times that are hidden.
    """
    if not setup.durations:
        for choice in policies_:
            require_possible(choice.name, choice.options)
    runs = {}
    for choice in policies_:
        section = OnePolicySection(name=choice.name, options=dict(choice.options))
        own = replace(
            setup,
            estimates=estimates or asked_by(section) or Estimates.POSTERIOR,
            spot_choice=spot_choice or spot_choice_by(section) or SpotChoice.LEARNED,
        )
        runs[choice.name] = _timed(choice, own, rhythm, watch, division)
    # The reference does not depend on faults and options, so that it is always the same.
    alone = None if division else runs.get(NO_PACKING)
    alone = alone or _timed(Chosen(NO_PACKING, {}), setup, rhythm, watch)
    bound = None
    if reference and not setup.nodes:  # The cost of nodes does not depend on their use.
        # A simulation without a bound needs no solver.
        from eva_lab.simulator.results.lower_bound import reference_bound
        from eva_lab.simulator.results.market_bound import market_bound

        def told(done: int, total: int) -> None:
            watch("lower bound", RunProgress(0, done, total, 0.0))

        if setup.market is None:
            bound = usd(reference_bound(setup.trace, setup.catalog, told))
        else:
            bound = usd(market_bound(setup.trace, setup.catalog, setup.market, told))
    return Comparison(tuple(runs.values()), alone.outcome.cost_usd, bound)


def _timed(
    chosen: Chosen,
    setup: Setup,
    rhythm: int | None,
    watch: Callable[[str, RunProgress], None],
    division: Division | None = None,
) -> PolicyRun:
    own = prepared(chosen, setup)
    if rhythm is not None:
        own = replace(own, round_gap_s=rhythm or None)
    if division is not None:
        own = division(own, rhythm)
    return run(chosen.name, own, lambda so: watch(chosen.name, so))


def setup_of(trace: Path, catalog: Catalog, truth: Truth) -> Setup:
    """Make a setup with a trace from a file; its policy is to be replaced.

    Raises:
        InvalidTrace: The file is not valid.
    """
    return Setup(read_trace(trace), catalog, named_policy(NO_PACKING)[0], truth=truth)


def truth_of(table: Path | None, pairwise: float | None) -> Truth:
    """True interference: from a file, one value for all pairs, or the built-in table.

    Raises:
        InvalidConfig: Both are given.
        InvalidTrace: The file is none.
    """
    if table is not None and pairwise is not None:
        raise InvalidConfig("give a table of interference or one value for all pairs, not both")
    if table is not None:
        return read_interference(table)
    return measured_interference() if pairwise is None else uniform_interference(pairwise)


def stock_of(texts: Iterable[str]) -> dict[str, int]:
    """Parse how many instances of each type the cloud has, from ``TYPE=N`` each.

    Raises:
        InvalidConfig: One is malformed.
    """
    stock = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number.isdigit():
            raise InvalidConfig(f"{text!r} is not TYPE=N", hint="for instance p3.8xlarge=4")
        stock[name] = int(number)
    return stock


def gap_of(text: str | None) -> int | None:
    """Whole seconds of a duration such as ``5m``; `None` for none.

    Raises:
        InvalidConfig: The text is not a duration.
    """
    if text is None:
        return None
    try:
        return 0 if text == "0" else parse_duration(text) // 1000
    except ValueError as error:
        raise InvalidConfig(f"{text!r} is not a duration", hint="write 5m or 30s") from error
