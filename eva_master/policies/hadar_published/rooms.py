"""The servers of a fleet while a plan gives them away, as the search has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import Family, RunId
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import is_fixed
from eva_master.packing.fleet.contenders import Contender
from eva_master.policies.hadar_published.servers import Kind, Server


class Rooms:
    """Live servers with GPUs, and those that may still be launched.

    Args:
        snapshot: The cluster.
        instances: Its instances. Whoever is to be given a place has none there.
        wanted: So many servers of an offering are launched at most.
    """

    def __init__(self, snapshot: Snapshot, instances: OpenInstances, wanted: int) -> None:
        self._instances = instances
        self._rows: dict[str, int] = {}
        self._offerings: dict[str, Offering] = {}
        self._home = {run.id: run.instance for run in snapshot.runs}
        self._names: dict[str, str] = {}
        free, found = instances.free(), []
        for row, view in enumerate(snapshot.instances):
            machine = view.offering.type
            if is_fixed(view.offering) and machine.capacity.gpus:
                name = f"{row:08}"
                self._rows[name], self._names[view.id] = row, name
                kind = Kind(machine.family, machine.capacity.gpus)
                found.append(Server(name, kind, max(0, int(free[row][0]))))
        for offering in instances.on_sale():
            machine = offering.type
            if offering.limit is None or not machine.capacity.gpus:
                continue
            if offering.purchase is Purchase.OWNED:
                continue
            used = sum(it.id == offering.id for it in instances.offerings)
            for number in range(min(wanted, offering.limit - used)):
                name = f"new-{offering.id}-{number:08}"
                self._offerings[name] = offering
                kind = Kind(machine.family, machine.capacity.gpus)
                found.append(Server(name, kind, machine.capacity.gpus))
        instances.keep(self._rows.values())
        self.servers: tuple[Server, ...] = tuple(found)

    def capacity(self) -> dict[Family, int]:
        """How many GPUs there are of each type."""
        found: dict[Family, int] = {}
        for server in self.servers:
            found[server.kind.family] = found.get(server.kind.family, 0) + server.kind.capacity
        return found

    def home(self, one: Contender) -> dict[str, int]:
        """How many tasks of a contender are where at present."""
        found: dict[str, int] = {}
        for run in one.runs:
            name = self._names.get(str(run.instance))
            if name is not None:
                found[name] = found.get(name, 0) + 1
        return found

    def put(self, one: Contender, places: Mapping[str, int]) -> bool:
        """Give a contender its places; each task stays where it is if it may.

        Args:
            one: Who.
            places: How many of its tasks come to which server.

        Returns:
            Whether there was room of everything that they need, not of GPUs alone. If not, nothing
            has changed.
        """
        mark = self._instances.mark()
        for name, runs in self._dealt(one, places).items():
            row = self._rows.get(name)
            for run in runs:
                priced = self._instances.priced(run)
                if row is None:
                    row = self._opened(name)
                if row is None or not self._instances.holds(row, priced):
                    self._instances.back(mark)
                    return False
                self._instances.put(run, row)
        return True

    def _dealt(self, one: Contender, places: Mapping[str, int]) -> dict[str, Sequence[RunId]]:
        """Which of its tasks come where."""
        left, found = [run.id for run in one.runs], dict[str, Sequence[RunId]]()
        for name, number in sorted(places.items()):
            stay = [run for run in left if self._names.get(str(self._home[run])) == name]
            found[name] = stay[:number]
            left = [run for run in left if run not in found[name]]
        for name, number in sorted(places.items()):
            more = number - len(found[name])
            found[name] = [*found[name], *left[:more]]
            left = left[more:]
        return found

    def _opened(self, name: str) -> int | None:
        offering = self._offerings[name]
        if not self._instances.obtainable(offering):
            return None
        row = self._instances.open(offering)
        self._rows[name] = row
        return row
