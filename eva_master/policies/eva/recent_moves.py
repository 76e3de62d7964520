"""When tasks were moved last: what was moved a moment ago is not to be moved again for little."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import by_id
from eva_master.packing.configuration.build import Configuration
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.problem import Problem
from eva_master.packing.reconfiguration.reconfiguration_cost import moved
from eva_wire.values.ids import Millis, RunId

Moved = tuple[tuple[RunId, Millis], ...]
"""Task runs and when the plan was made that moved each last; sorted by task run."""


def made(before: Moved, snapshot: Snapshot) -> Mapping[RunId, Millis]:
    """Recent moves, without those that were decided and never made.

    A task that has run since before its move was decided was not moved.

    Args:
        before: The moves remembered so far.
        snapshot: The cluster.
    """
    runs = by_id(snapshot.runs)
    return {run: at for run, at in before if run not in runs or not _never_made(runs[run], at)}


def _never_made(run: RunView, at: Millis) -> bool:
    since = run.running_since_ms
    return since is not None and since <= at and not run.pinned


def recalled(
    before: Mapping[RunId, Millis], problem: Problem, terms: CostWeights, chosen: Configuration
) -> Moved:
    """The moves to remember after a plan.

    Forgets task runs that are gone, and those whose moves pay within the horizon again.

    Args:
        before: The moves remembered so far, see `made`.
        problem: The packing problem of the snapshot.
        terms: Weights of the costs.
        chosen: The configuration that the plan is to bring about.
    """
    now = problem.snapshot.now_ms
    latest = {
        run: at
        for run, at in before.items()
        if run in problem.runs and terms.pays_within_ms(now - at) < terms.horizon_ms
    }
    latest.update((run.id, now) for run in moved(problem, chosen))
    return tuple(sorted(latest.items()))


def to_json(latest: Moved) -> Json:
    """The form in which the journal keeps it."""
    return dict(latest)


def from_json(data: Json) -> Moved:
    """Read what `to_json` wrote; nothing where it has another form."""
    if not isinstance(data, Mapping):
        return ()
    times = {RunId(run): Millis(at) for run, at in data.items() if isinstance(at, int)}
    return tuple(sorted(times.items()))
