"""Runs: what is simulated once, its digest, and the file that its result is kept in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import eva_lab
import eva_master
import eva_wire
from eva_lab.experiments.fixed import ClusterSection
from eva_lab.experiments.fleet import FleetSection
from eva_lab.experiments.packing import BOUND
from eva_lab.experiments.schema import (
    CatalogSection,
    ExperimentPlan,
    FaultsSection,
    InterferenceSection,
    MarketSection,
    PackingSection,
    Point,
    PolicyEntry,
    Value,
)
from eva_lab.traces.fleets.recipes import GpusRecipe, WorldRecipe
from eva_lab.traces.recipes import FileRecipe, Recipe, TasksRecipe, WorkloadsRecipe
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.partitions import PartitionSection
from eva_master.app.sections.policies import asked_by, spot_choice_by
from eva_master.app.sections.tenants import SimulatedTenantSection
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.trace import SpotUse
from eva_wire.values.errors import InvalidTrace

_FORMAT = 1
"""Version of the results' format; runs of another version are different."""
_DECIDING = {
    eva_lab: ("traces", "simulator"),
    eva_wire: ("values",),
    eva_master: ("control", "learning", "model", "packing", "policies"),
}
"""Folders of packages whose code decides about results."""

Kind = Literal["simulation", "reference", "packing"]
Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One simulation, the reference bound of one trace, or the packing of one.

    Attributes:
        seed: Seed of the trace; 0 where it makes no difference.
        fault_seed: Seed of the faults; 0 if there are none.
        policy: The policy of a simulation; `None` for other runs, which depend only on trace and
            catalog.
        planner: The planner that packs the whole trace at once; see
            `eva_lab.experiments.packing`.
        partitions: The parts of the cluster, by name; none if it is not divided.
        tenants: Tenants with limits, by name.
        cluster: A fixed cluster in place of the catalog.
        fleet: A fleet of several GPU types in place of the catalog.
        round_gap_ms: From one plan to the next at least, on either.
        market: A spot market beside the catalog.
        spot: Whether jobs may run on spot instances of which the trace does not say so.
        spot_choice: See `SpotChoice`.
    """

    recipe: Recipe
    seed: int
    catalog: CatalogSection
    policy: PolicyEntry | None = None
    interference: InterferenceSection = field(default_factory=InterferenceSection)
    accounting: str = "compat"
    stated_durations: bool = True
    estimates: str = Estimates.POSTERIOR.value
    faults: FaultsSection = field(default_factory=FaultsSection)
    fault_seed: int = 0
    planner: str = ""
    partitions: tuple[tuple[str, PartitionSection], ...] = ()
    tenants: tuple[tuple[str, SimulatedTenantSection], ...] = ()
    cluster: ClusterSection | None = None
    fleet: FleetSection | None = None
    round_gap_ms: int = 1_000
    market: MarketSection | None = None
    spot: SpotUse | None = None
    spot_choice: SpotChoice = SpotChoice.LEARNED

    @property
    def kind(self) -> Kind:
        """Kind of the run: simulation, bound or packing."""
        if self.planner:
            return "packing"
        return "reference" if self.policy is None else "simulation"

    @property
    def round_s(self) -> int | None:
        """At multiples of so many seconds a world's plans are made; `None` for at any time."""
        return self.round_gap_ms // 1_000 or None

    @property
    def title(self) -> str:
        """Name of the policy or planner at work."""
        return self.planner or (self.policy.title if self.policy else "reference bound")

    @property
    def definition(self) -> dict[str, Any]:
        """Everything that its result depends on, with files by their digests."""
        parts: dict[str, Any] = {
            "format": _FORMAT,
            "kind": self.kind,
            "trace": _by_content(self.recipe.model_dump(mode="json")),
            "seed": self.seed,
            "catalog": _by_content(self.catalog.model_dump(mode="json")),
        }
        if self.market is not None:
            parts["market"] = _by_content(self.market.model_dump(mode="json"))
        if self.spot is not None:
            parts["spot"] = self.spot.value
        if self.planner:
            parts["planner"] = self.planner
        if self.policy is not None:
            parts |= self._of_simulation(self.policy)
        return parts

    def _of_simulation(self, policy: PolicyEntry) -> dict[str, Any]:
        parts: dict[str, Any] = {
            "policy": _policy(policy),
            "interference": _by_content(self.interference.model_dump(mode="json")),
            "accounting": self.accounting,
            "stated_durations": self.stated_durations,
            "faults": self.faults.model_dump(mode="json"),
            "fault_seed": self.fault_seed,
        }
        if self.estimates != Estimates.POSTERIOR.value:  # runs from before there was a choice
            parts["estimates"] = self.estimates
        if self.cluster is not None:
            parts["cluster"] = self.cluster.model_dump(mode="json")
            parts["round_gap_ms"] = self.round_gap_ms
        if self.fleet is not None:
            parts["fleet"] = {name: servers.model_dump() for name, servers in self.fleet.items()}
            parts["round_gap_ms"] = self.round_gap_ms
        if isinstance(self.recipe, WorldRecipe):
            parts["round_gap_ms"] = self.round_gap_ms
        if self.spot_choice is not SpotChoice.LEARNED:
            parts["spot_choice"] = self.spot_choice.value
        if self.partitions:
            parts["partitions"] = _divided(self.partitions)
        if self.tenants:
            parts["tenants"] = {name: rule.model_dump(mode="json") for name, rule in self.tenants}
        if code := policies().code_of(policy.kind):
            parts["policy_code"] = code
        if policy.back is not None and (code := policies().code_of(policy.back.name)):
            parts["back_code"] = code
        return parts

    @property
    def digest(self) -> str:
        """The run's id: SHA-256 of its definition."""
        text = json.dumps(self.definition, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Cell:
    """A cell in the experiment's tables, and the run that fills it.

    Several cells may share a run: a file is the same trace for every seed.
    """

    trace: str
    values: tuple[tuple[str, Value], ...]
    label: str
    seed: int
    run: Run
    digest: str

    @property
    def kind(self) -> Kind:
        """Kind of the run that fills the cell."""
        return self.run.kind


def _policy(entry: PolicyEntry) -> Any:
    """A policy's own part of its entry; runs from before know of no short jobs."""
    unsaid = {"label", "stated_durations"}
    unsaid |= {name for name in ("short", "back") if getattr(entry, name) is None}
    return entry.model_dump(mode="json", exclude=unsaid)


def cells(plan: ExperimentPlan) -> list[Cell]:
    """All cells of an experiment.

    Raises:
        InvalidTrace: A file that it needs cannot be read.
    """
    return [cell for point in plan.points for cell in _cells_of(point)]


def _cells_of(point: Point) -> list[Cell]:
    experiment = point.experiment
    cells = []
    if experiment.packing is not None:
        return list(_packing_cells(experiment.packing, point))
    for name, named in experiment.traces.items():
        for seed in experiment.seeds:
            recipe, own = _drawn(named, seed)
            on_spot: dict[str, Any] = {"market": experiment.market, "spot": experiment.spot}
            bound = Run(recipe, own, experiment.catalog, **on_spot)
            # On a fleet there is nothing to buy, so that no cost is least.
            owned = experiment.fleet is not None or isinstance(recipe, WorldRecipe)
            rented = experiment.reference and not owned
            runs = [("reference", bound)] if rented else []
            for policy in experiment.policies:
                run = Run(
                    recipe,
                    own,
                    experiment.catalog,
                    policy,
                    experiment.interference,
                    experiment.accounting,
                    experiment.tells(policy),
                    experiment.estimates or _asked(policy),
                    experiment.faults,
                    0 if experiment.faults == FaultsSection() else seed,
                    partitions=tuple(experiment.partitions.items()),
                    tenants=tuple(experiment.tenants.items()),
                    cluster=experiment.cluster,
                    fleet=experiment.fleet,
                    round_gap_ms=experiment.round_gap,
                    spot_choice=experiment.spot_choice or _chosen(policy),
                    **on_spot,
                )
                runs.append((policy.title, run))
            cells += [Cell(name, point.values, label, seed, run, run.digest) for label, run in runs]
    return cells


def _drawn(recipe: Recipe, seed: int) -> tuple[Recipe, int]:
    """The recipe of a seed's trace, and the seed as far as that still makes a difference."""
    if isinstance(recipe, TasksRecipe):
        return recipe.of_seed(seed), 0
    return recipe, 0 if isinstance(recipe, FileRecipe | GpusRecipe | WorldRecipe) else seed


def _asked(entry: PolicyEntry) -> Estimates:
    """The source of run times that a policy asks for."""
    return asked_by(_section(entry)) or Estimates.POSTERIOR


def _chosen(entry: PolicyEntry) -> SpotChoice:
    """The spot choice that a policy asks for."""
    return spot_choice_by(_section(entry)) or SpotChoice.LEARNED


def _section(entry: PolicyEntry) -> OnePolicySection:
    return OnePolicySection(name=entry.spec, options=entry.options)


def _packing_cells(section: PackingSection, point: Point) -> Iterator[Cell]:
    recipe = WorkloadsRecipe(kind="workloads", jobs=section.tasks, tasks=1)
    experiment = point.experiment
    planners = {"reference": BOUND} if experiment.reference else {}
    planners |= {planner: planner for planner in section.planners}
    for seed in experiment.seeds:
        for label, planner in planners.items():
            run = Run(recipe, seed, experiment.catalog, planner=planner)
            yield Cell("tasks", point.values, label, seed, run, run.digest)


class Results:
    """A folder with one file per finished run.

    Files are written atomically, so that a killed process leaves either a whole result or nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, digest: str) -> Result | None:
        """The result of a run; `None` if there is no valid one."""
        try:
            result = json.loads(self._path(digest).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(result, dict) and result.get("digest") == digest and "figures" in result
        return result if whole else None

    def keep(self, result: Mapping[str, Any]) -> None:
        """Write a result.

        Raises:
            OSError: The file cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(result["digest"])
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(result, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


@cache
def code_version() -> str:
    """Version of the code that determines results; other versions may give other results."""
    version = hashlib.sha256()
    for package, folders in _DECIDING.items():
        root = Path(str(package.__file__)).parent
        for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                version.update(f"{package.__name__}/{path.relative_to(root).as_posix()}\0".encode())
                version.update(path.read_bytes())
    return version.hexdigest()[:16]


def _divided(partitions: Iterable[tuple[str, PartitionSection]]) -> dict[str, Any]:
    """Partitions with the code of the plug-ins that they name."""
    divided: dict[str, Any] = {}
    for name, section in partitions:
        named = () if section.policy is None else section.policy.parts
        codes = [policies().code_of(named_policy.name) for _, named_policy in named]
        document = section.model_dump(mode="json")
        if section.policy is not None and section.policy.back is None:
            del document["policy"]["back"]  # runs from before know of none
        divided[name] = document | ({"code": codes} if any(codes) else {})
    return divided


def _by_content(section: dict[str, Any]) -> dict[str, Any]:
    """Replace names of files by their digests."""
    hashed = dict(section)
    for name in ("file", "pods"):
        if hashed.get(name) is not None:
            hashed[name] = _digest_of(hashed[name])
    if "files" in hashed:
        hashed["files"] = [_digest_of(name) for name in hashed["files"]]
    return hashed


def _digest_of(name: str) -> str:
    path = Path(name)
    try:
        return _file_digest(path, path.stat().st_mtime_ns)
    except OSError as error:
        hint = "name it with --set trace.file=PATH or --set trace.pods=PATH"
        raise InvalidTrace(f"{path}: {error.strerror}", hint=hint) from error


@cache
def _file_digest(path: Path, changed_ns: int) -> str:  # noqa: ARG001 - part of the cache's key
    return hashlib.sha256(path.read_bytes()).hexdigest()
