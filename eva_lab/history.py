"""Reads the past of a live master from its journal, to be simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from eva_lab.runs import NO_PACKING, named_policy
from eva_lab.simulator.results.metrics import usd
from eva_lab.simulator.run import Setup
from eva_lab.simulator.scenario.journal_replay import Past, latest, past
from eva_lab.simulator.scenario.left_out import left_out
from eva_master.adapters.catalog import current_types, load_catalog
from eva_master.adapters.store.reading import copied_journal
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.fleet.nodes import OwnedNode, offerings
from eva_master.model.resources import Resources
from eva_wire.text.moments import date_of
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import Millis

_ROUNDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """The setup of a replay.

    Attributes:
        setup: The setup except for the policy.
        past: The recorded past. Owned nodes are replayed as if they had been there all the time.
        cost_usd: The real cost.
        left_out: Notes on past events that are not replayed.
    """

    setup: Setup
    past: Past
    cost_usd: float
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """A description of the past, for people."""
        jobs = len(self.past.jobs)
        going = f", {self.past.unfinished} of them not over" if self.past.unfinished else ""
        return f"{jobs} job{'' if jobs == 1 else 's'}{going}"


def read_history(state: Path, catalog: Catalog | None = None) -> Replay:
    """Read the past of a master.

    Args:
        state: Its state directory.
        catalog: The offerings on sale; by default those that its cloud named last, or else the
            built-in ones if these have all types that it used, or else those alone.

    Raises:
        NotFound: There is no journal.
        StorageError: The journal cannot be read.
        InvalidTrace: No job was ever submitted.
    """
    with copied_journal(state) as journal:
        written = journal.load()
        rounds = journal.rounds(limit=_ROUNDS)
    # Instances that nobody launched were there for all that is known.
    nodes = tuple(
        OwnedNode(instance.id, instance.offering, instance.fence_ms)
        for instance in written.instances
        if instance.owned
    )
    bought = {
        instance.offering.id: instance.offering
        for instance in written.instances
        if not instance.owned
    }
    named = CatalogListing.from_json(written.documents()).catalog
    ids = {offering.id for offering in named}
    rest = tuple(offering for offering in bought.values() if offering.id not in ids)
    listed = catalog or ((*named, *rest) if named else _listed(rest))
    restored = State.restored((*listed, *offerings(nodes)), written)
    if not restored.jobs:
        raise InvalidTrace(f"{state} has no jobs: nothing was submitted to this master")
    charged = ledger.bill(restored, latest(restored)).charged
    history = past(restored, rounds, charged)
    policy, _ = named_policy(NO_PACKING)
    setup = Setup(
        history.trace(),
        listed,
        policy,
        truth=history.truth,
        past=history,
        nodes=nodes,
        date_of=_date,
    )
    omitted = left_out(restored, history.start_ms, latest(restored))
    return Replay(setup, history, usd(charged), omitted)


def _date(now: Millis) -> str:
    return f"{date_of(now):%Y-%m-%d %H:%M} UTC"


def _listed(bought: Catalog) -> Catalog:
    """The offerings that the master may have chosen from."""
    had = {offering.type.name: offering.type.capacity for offering in bought}
    for own in (load_catalog(), load_catalog(known=current_types())):
        capacities = {offering.type.name: offering.type.capacity for offering in own}
        if all(
            name in capacities and _of_a_machine(size, capacities[name])
            for name, size in had.items()
        ):
            return tuple(
                replace(
                    offering,
                    type=replace(
                        offering.type, capacity=had.get(offering.type.name, offering.type.capacity)
                    ),
                )
                for offering in own
            )
    return bought


def _of_a_machine(size: Resources, listed: Resources) -> bool:
    """Whether this is what tasks had of a machine: all but some of the memory."""
    return size.fits(listed) and replace(size, memory_mib=listed.memory_mib) == listed
