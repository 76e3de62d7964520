"""An experiment's file, and the points that it asks for."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from eva_lab.experiments.fixed import ClusterSection, short_problem
from eva_lab.experiments.fleet import FleetSection
from eva_lab.partitions import problems_of as partition_problems
from eva_lab.runs import named_policy, require_possible
from eva_lab.traces.fleets.recipes import GpusRecipe, WorldRecipe
from eva_lab.traces.recipes import KINDS, AlibabaRecipe, FileRecipe, HawkRecipe, Recipe, TasksRecipe
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import BackSection, PolicySection, ShortSection
from eva_master.app.sections.partitions import MOST_PARTITIONS, PartitionName, PartitionSection
from eva_master.app.sections.policies import policy_problems, shown
from eva_master.app.sections.tenants import SimulatedTenantSections
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.trace import SpotUse
from eva_wire.text.quantities import Duration
from eva_wire.text.unreadable import why_unreadable
from eva_wire.text.yamlfile import Document, invalid, load, problems_of, scalar, suggestion
from eva_wire.values.errors import EvaError, InvalidConfig, Problem

KeyPath = tuple[str | int, ...]

_TRACE, _VARY = "trace", "vary"
_FORBIDDEN = (_VARY, "name", "policies", "seeds")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _policy(entry: object) -> object:
    """Let ``eva_published`` stand for its name and preset."""
    if not isinstance(entry, str):
        return entry
    name, _, preset = entry.partition(":")
    return {"name": name, "preset": preset}


class PolicyEntry(_Section):
    """A policy of an experiment.

    Attributes:
        label: Its name in tables and figures; by default its name and preset.
        short: The policy for short jobs in front of it, as in a master's settings.
        back: The policy behind it, likewise.
        stated_durations: Whether jobs tell it how long they take, if not as in the other runs.
    """

    name: str = Field(min_length=1)
    preset: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    label: str = ""
    short: ShortSection | None = None
    back: BackSection | None = None
    stated_durations: bool | None = None

    @property
    def title(self) -> str:
        """The label, or else the name and preset, with those of the policy behind."""
        return self.label or (self.spec if self.section is None else shown(self.section))

    @property
    def spec(self) -> str:
        """The policy as a command line names it."""
        return f"{self.name}:{self.preset}" if self.preset else self.name

    @property
    def section(self) -> PolicySection | None:
        """The policy with the one behind it; `None` if there is none."""
        if self.back is None:
            return None
        return PolicySection(name=self.spec, options=self.options, back=self.back)

    @property
    def kind(self) -> str:
        """The policy's name, without the preset."""
        return self.spec.partition(":")[0]


class InterferenceSection(_Section):
    """True interference; by default as it was measured on EC2.

    Attributes:
        file: A table instead.
        pairwise: One value for all pairs instead, in (0, 1].
    """

    file: Path | None = None
    pairwise: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)


class CatalogSection(_Section):
    """The catalog of an experiment; see `eva_master.app.config.CatalogSection`."""

    file: Path | None = None
    only: list[str] | None = None


class MarketSection(_Section):
    """A spot market over time, beside what is on demand.

    Attributes:
        file: As `eva simulate --market` reads it.
        offset: Where in it runs begin; past its end it begins anew.
    """

    file: Path
    offset: Annotated[Duration, Field(ge=0)] = 0


class FaultsSection(_Section):
    """The injected faults, from the run's seed; see `cluster.supply.fault_injector.Faults`.

    Attributes:
        refusals: Share of the launches that the cloud refuses.
        failures: Failures per hour and running instance.
        noise: Relative standard deviation of measured throughput.
    """

    refusals: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    failures: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    noise: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class PackingSection(_Section):
    """Packing of tasks at once, in place of a simulation.

    Attributes:
        tasks: Number of tasks, each drawn from the measured workloads.
        planners: The planners to compare; see `eva_lab.experiments.packing`.
    """

    tasks: int = Field(default=200, ge=1, le=100_000)
    planners: list[Literal["no_packing", "full", "near_optimal"]] = Field(
        default=["no_packing", "full", "near_optimal"], min_length=1
    )


class Experiment(_Section):
    """The content of an experiment's file.

    Attributes:
        name: Name of its files.
        title: Title of its report.
        text: Introduction of the report.
        traces: Recipes of the traces by name.
        policies: The policies to compare.
        packing: In place of traces and policies.
        baseline: The label of the policy or planner whose cost is 100 %.
        seeds: Each makes its own traces; confidence intervals are over seeds.
        accounting: See `eva_lab.simulator.cluster.delays.Accounting`.
        market: A spot market; none by default.
        spot: Whether jobs may run on spot instances of which the trace does not say so.
        spot_choice: See `SpotChoice`; by default as each policy asks.
        faults: The faults to inject; none by default.
        stated_durations: Whether jobs tell the scheduler how long they take.
        estimates: Source of run times where jobs do not state them; by default what each policy
            asks for.
        partitions: Divides the cluster, as in a master's settings; a partition that names no policy
            has the one that is compared.
        tenants: Limits of tenants, as in a master's settings; a trace names the tenants of its
            jobs.
        cluster: A fixed cluster in place of a catalog.
        fleet: A fixed cluster of several GPU types in place of a catalog.
        round_gap: From one plan to the next at least, on a fixed cluster or a fleet.
        reference: Whether the fractional bound of each trace is computed, which takes a while.
        vary: Setting to values: ``trace.FIELD`` of all traces that have it, or any other of
            these settings. All combinations are run.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    text: str = ""
    traces: dict[str, Recipe] = Field(default_factory=dict)
    policies: list[Annotated[PolicyEntry, BeforeValidator(_policy)]] = Field(default_factory=list)
    packing: PackingSection | None = None
    baseline: str = "no_packing"
    seeds: list[int] = Field(default=[1], min_length=1)
    accounting: Literal["compat", "production"] = "compat"
    interference: InterferenceSection = InterferenceSection()
    catalog: CatalogSection = CatalogSection()
    market: MarketSection | None = None
    spot: SpotUse | None = None
    spot_choice: SpotChoice | None = None
    faults: FaultsSection = FaultsSection()
    stated_durations: bool = True
    estimates: Estimates | None = None
    partitions: dict[PartitionName, PartitionSection] = Field(
        default_factory=dict, max_length=MOST_PARTITIONS
    )
    tenants: SimulatedTenantSections = Field(default_factory=dict)
    cluster: ClusterSection | None = None
    fleet: FleetSection | None = None
    round_gap: Annotated[Duration, Field(ge=0)] = 1_000
    reference: bool = True
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The labels of all policies or planners, in the order of the file."""
        if self.packing is not None:
            return list(self.packing.planners)
        return [entry.title for entry in self.policies]

    def tells(self, entry: PolicyEntry) -> bool:
        """Whether jobs tell a policy how long they take."""
        own = entry.stated_durations
        return self.stated_durations if own is None else own


Value = str | int | float | bool | None


@dataclass(frozen=True)
class Point:
    """An experiment with the varied settings set.

    Attributes:
        values: Their values, in the order of the file.
        experiment: The experiment with these values.
    """

    values: tuple[tuple[str, Value], ...]
    experiment: Experiment

    @property
    def label(self) -> str:
        """The varied settings and values as text."""
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in self.values)


@dataclass(frozen=True)
class ExperimentPlan:
    """An experiment and all of its points.

    Attributes:
        experiment: As in the file.
        points: At least one.
    """

    experiment: Experiment
    points: tuple[Point, ...]


def load_experiment(path: Path, settings: Sequence[str] = ()) -> ExperimentPlan:
    """Read an experiment.

    Args:
        path: A YAML file; paths in it are relative to it.
        settings: ``KEY=VALUE``, over what the file says; a key as in ``vary``. A setting of traces
            is set on those that have it.

    Raises:
        InvalidConfig: The file cannot be read or is wrong; carries line and key of each problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(InvalidConfig, str(path), [Problem(why_unreadable(error))]) from error
    document = load(text, file_name=str(path), error=InvalidConfig)
    raw = document.value
    for setting in settings:
        key, _, value = setting.partition("=")
        raw = _changed(raw, key.strip(), _given(value))
    experiment = _validated(raw, document, path)
    if problems := [
        *_policy_problems(experiment, document),
        *_fleet_problems(experiment, document),
        *partition_problems(experiment.partitions, document),
        *_vary_problems(experiment, document),
    ]:
        raise invalid(InvalidConfig, str(path), problems)
    return ExperimentPlan(experiment, tuple(_points(raw, experiment, document, path)))


def _given(text: str) -> Any:
    """Parse the value of a setting: a word, or a list of words in brackets."""
    if text.startswith("[") and text.endswith("]"):
        return [scalar(word.strip()) for word in text[1:-1].split(",") if word.strip()]
    return scalar(text)


def _validated(raw: dict[str, Any], document: Document, path: Path) -> Experiment:
    try:
        experiment = Experiment.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, document, Experiment)
        raise invalid(InvalidConfig, str(path), problems) from error
    return _located(experiment, path.parent)


def _located(experiment: Experiment, folder: Path) -> Experiment:
    """Resolve paths relative to the file."""

    def at(path: Path | None) -> Path | None:
        return None if path is None else folder / path.expanduser()

    traces: dict[str, Any] = {}
    for name, recipe in experiment.traces.items():
        match recipe:
            case FileRecipe() | GpusRecipe() | TasksRecipe() | WorldRecipe():
                traces[name] = recipe.model_copy(update={"file": at(recipe.file)})
            case AlibabaRecipe():
                traces[name] = recipe.model_copy(update={"pods": at(recipe.pods)})
            case HawkRecipe():
                files = tuple(map(at, recipe.files))
                traces[name] = recipe.model_copy(update={"files": files})
            case _:
                traces[name] = recipe
    table, catalog, market = experiment.interference, experiment.catalog, experiment.market
    return experiment.model_copy(
        update={
            "traces": traces,
            "interference": table.model_copy(update={"file": at(table.file)}),
            "catalog": catalog.model_copy(update={"file": at(catalog.file)}),
            "market": market and market.model_copy(update={"file": at(market.file)}),
        }
    )


def _changed(raw: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with one setting changed."""
    changed: dict[str, Any] = copy.deepcopy(dict(raw))
    head, _, rest = key.partition(".")
    if head == _TRACE:
        traces = changed.get("traces")
        named = traces.values() if isinstance(traces, dict) else ()
        recipes = [recipe for recipe in named if isinstance(recipe, dict)]
        taking = [recipe for recipe in recipes if rest in _fields_of(recipe)]
        if recipes and not taking:
            names = sorted({name for recipe in recipes for name in _fields_of(recipe)} - {"kind"})
            hint = suggestion(rest, names) or f"settings of these: {', '.join(names)}"
            raise InvalidConfig(f"no trace has the setting {rest!r}", hint=hint)
        for recipe in taking:
            recipe[rest] = value
        return changed
    section: Any = changed
    # Varied settings have a key of their own, dots included.
    *sections, last = [head, rest] if head == _VARY and rest else key.split(".")
    for name in sections:
        inner = section.get(name)
        section[name] = inner if isinstance(inner, dict) else {}
        section = section[name]
    section[last] = value
    return changed


def _fields_of(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a trace's kind; none if that is unknown, which is refused later."""
    kind = KINDS.get(str(recipe.get("kind")))
    return kind.model_fields if kind else {}


def _points(
    raw: dict[str, Any], experiment: Experiment, document: Document, path: Path
) -> Iterator[Point]:
    keys = list(experiment.vary)
    for choice in itertools.product(*(enumerate(experiment.vary[key]) for key in keys)):
        changed = raw
        for key, (_, value) in zip(keys, choice, strict=True):
            changed = _changed(changed, key, value)
        try:
            varied = _located(Experiment.model_validate(changed), path.parent)
        except ValidationError as error:
            details = problems_of(error, document, Experiment)
            place = next(("vary", key, index) for key, (index, _) in zip(keys, choice, strict=True))
            wrong = [document.problem(place, detail.message, detail.hint) for detail in details]
            raise invalid(InvalidConfig, str(path), wrong) from error
        values = tuple((key, value) for key, (_, value) in zip(keys, choice, strict=True))
        yield Point(values, varied)


def _policy_problems(experiment: Experiment, document: Document) -> Iterator[Problem]:
    for name in ("traces", "policies"):
        given = bool(getattr(experiment, name))
        if given == (experiment.packing is not None):
            message = "has no place beside packing" if given else "is missing"
            yield document.problem((name,), f"{name!r} {message}")
    titles = [entry.title for entry in experiment.policies]
    for index, entry in enumerate(experiment.policies):
        place: KeyPath = ("policies", index)
        if titles.index(entry.title) != index:
            yield document.problem(place, f"a second {entry.title!r}", "give it a label")
        try:
            named_policy(entry.spec, entry.options)
            if not experiment.tells(entry):
                require_possible(entry.spec, entry.options)
            if entry.section is not None:
                yield from policy_problems(place, entry.section, policies(), document)
        except EvaError as error:
            yield document.problem(place, error.message, error.hint)
        if entry.short is not None and (why := short_problem(entry.short, experiment.cluster)):
            yield document.problem((*place, "short"), why)
        if entry.short is not None and experiment.cluster is None:
            yield document.problem((*place, "short"), "'short' wants a 'cluster', or partitions")
    labels = experiment.labels
    if labels and experiment.baseline not in labels:
        hint = suggestion(experiment.baseline, labels) or f"one of: {', '.join(labels)}"
        message = f"{experiment.baseline!r} does not take part"
        yield document.problem(("baseline",), message, hint)


def _fleet_problems(experiment: Experiment, document: Document) -> Iterator[Problem]:
    for name in ("cluster", "packing"):
        if experiment.fleet is not None and getattr(experiment, name) is not None:
            yield document.problem((name,), f"{name!r} has no place beside a 'fleet'")
    for name in ("fleet", "cluster", "packing"):
        if experiment.market is not None and getattr(experiment, name) is not None:
            yield document.problem(("market",), f"'market' has no place beside {name!r}")


def _vary_problems(experiment: Experiment, document: Document) -> Iterator[Problem]:
    names = [name for name in Experiment.model_fields if name not in _FORBIDDEN]
    for key in experiment.vary:
        head = key.partition(".")[0]
        if head != _TRACE and head not in names:
            hint = suggestion(key, [_TRACE, *names]) or f"{_TRACE}.FIELD, {', '.join(names)}"
            yield document.problem(("vary", key), f"{key!r} cannot be varied", hint)
