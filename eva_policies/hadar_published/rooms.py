"""The servers of a fleet while a plan gives them away, as the search has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import fixed_live
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.room import more_of
from eva_policies.hadar_published.servers import Kind, Server
from eva_wire.values.ids import Family, RunId


class FreeServers:
    """Live servers with GPUs, and those that may still be launched.

    Args:
        snapshot: The cluster.
        instances: Its instances. Contenders to be placed have no place there.
        wanted: Upper limit of the servers launched of an offering.
    """

    def __init__(self, snapshot: Snapshot, instances: OpenInstances, wanted: int) -> None:
        self._instances = instances
        self._rows: dict[str, int] = {}
        self._offerings: dict[str, Offering] = {}
        self._home = {run.id: run.instance for run in snapshot.runs}
        self._names: dict[str, str] = {}
        live, free, servers = fixed_live(snapshot), instances.free(), []
        for row, view in enumerate(snapshot.instances):
            machine = view.offering.type
            if view.id in live and machine.capacity.gpus:
                name = f"{row:08}"
                self._rows[name], self._names[view.id] = row, name
                kind = Kind(machine.family, machine.capacity.gpus)
                servers.append(Server(name, kind, max(0, int(free[row][0]))))
        used = Counter(offering.id for offering in instances.offerings)
        for offering in instances.on_sale():
            machine = offering.type
            more = more_of(offering, used)
            if more is None or not machine.capacity.gpus:
                continue
            if offering.purchase is Purchase.OWNED:
                continue
            for number in range(min(wanted, more)):
                name = f"new-{offering.id}-{number:08}"
                self._offerings[name] = offering
                kind = Kind(machine.family, machine.capacity.gpus)
                servers.append(Server(name, kind, machine.capacity.gpus))
        instances.keep(self._rows.values())
        self.servers: tuple[Server, ...] = tuple(servers)

    def capacity(self) -> dict[Family, int]:
        """Number of GPUs of each type."""
        gpus: dict[Family, int] = {}
        for server in self.servers:
            gpus[server.kind.family] = gpus.get(server.kind.family, 0) + server.kind.capacity
        return gpus

    def home(self, one: Contender) -> dict[str, int]:
        """Number of a contender's tasks on each server at present."""
        counts: dict[str, int] = {}
        for run in one.runs:
            name = self._names.get(str(run.instance))
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def put(self, one: Contender, places: Mapping[str, int]) -> bool:
        """Give a contender its places; a task keeps its present place where possible.

        Args:
            one: The contender.
            places: Number of its tasks for each server.

        Returns:
            Whether all resources of the tasks fitted, not GPUs alone. If not, nothing has changed.
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
        """Distribution of its tasks over the servers."""
        unassigned, by_server = [run.id for run in one.runs], dict[str, Sequence[RunId]]()
        for name, number in sorted(places.items()):
            stay = [run for run in unassigned if self._names.get(str(self._home[run])) == name]
            by_server[name] = stay[:number]
            unassigned = [run for run in unassigned if run not in by_server[name]]
        for name, number in sorted(places.items()):
            more = number - len(by_server[name])
            by_server[name] = [*by_server[name], *unassigned[:more]]
            unassigned = unassigned[more:]
        return by_server

    def _opened(self, name: str) -> int | None:
        offering = self._offerings[name]
        if not self._instances.obtainable(offering):
            return None
        row = self._instances.open(offering)
        self._rows[name] = row
        return row
