"""A simulated cluster whose messages get lost, doubled and late, and whose master dies anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from eva_lab.simulator.cluster.clock import VirtualInbox
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.model.actions import TellMerge, WorkerAction
from eva_master.model.catalog import Purchase
from eva_master.model.events import (
    Event,
    InstanceGone,
    InstanceUp,
    LaunchFailed,
    PartGiven,
    PartsMerged,
    WorkerFetched,
    WorkerLost,
    WorkerReported,
)
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan, PolicyMemory, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import RunId

LOSABLE = (
    InstanceUp,
    InstanceGone,
    LaunchFailed,
    WorkerReported,
    WorkerFetched,
    WorkerLost,
    PartGiven,
    PartsMerged,
)


class Crash(Exception):
    """The master dies here."""


class ChaoticInbox(VirtualInbox):
    """Loses, doubles and delays what is posted, until `calm` is set."""

    calm = True
    rng = random.Random(0)
    trouble = 0.0

    def post(self, event: Event) -> None:
        if self.calm or self.rng.random() >= self.trouble:
            super().post(event)
            return
        kind = self.rng.choice(["lose", "double", "delay"])
        later = self.rng.randrange(1, 90_000)
        if kind == "lose" and not isinstance(event, LOSABLE):
            kind = "delay"
        if kind == "double":
            super().post(event)
        if kind != "lose":
            self._timeline.after(later, lambda: VirtualInbox.post(self, event))


class Fused:
    """A port whose every call may be the master's last, before or after it took effect."""

    def __init__(self, port: Any, burn: Callable[[], None]) -> None:
        self._port = port
        self._burn = burn

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*args: Any) -> Any:
            self._burn()
            result = method(*args)
            self._burn()
            return result

        return call


class Forgetful:
    """A port to workers whom not all is told of merges, so that it has to be said again."""

    def __init__(self, port: Any, forgets: Callable[[], bool]) -> None:
        self._port = port
        self._forgets = forgets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def execute(self, action: WorkerAction) -> None:
        if not (isinstance(action, TellMerge) and self._forgets()):
            self._port.execute(action)


class ChaoticWorld(SimulatedCluster):
    """A world whose messages and master are unreliable while it is not `calm`.

    Args:
        seed: Of everything that goes wrong.
        trouble: Share of messages that are lost, doubled or late.
        fuses: After how many outward calls the master dies, one number per death.
    """

    def __init__(
        self, *args: Any, seed: int, trouble: float, fuses: list[int], **kwargs: Any
    ) -> None:
        self._rng = random.Random(seed)
        self._trouble = trouble
        self._fuses = list(fuses)
        self._left: int | None = None
        self.crashes = 0
        super().__init__(*args, **kwargs)
        self.inbox.calm = False
        self._light_fuse()

    def _make_inbox(self) -> ChaoticInbox:
        inbox = ChaoticInbox(self.timeline)
        inbox.rng = self._rng
        inbox.trouble = self._trouble
        return inbox

    def _make_loop(self, machine: Machine) -> Loop:
        return Loop(
            machine,
            clock=self.timeline,
            inbox=self.inbox,
            journal=Fused(self.journal, self._burn),
            cloud=Fused(self.cloud, self._burn),
            workers=Fused(Forgetful(self.workers, self._loses), self._burn),
            planner=Fused(self._planner, self._burn),
            checkpoints=Fused(self.checkpoints, self._burn),
            replies=self.answers,
        )

    def _loses(self) -> bool:
        return not self.inbox.calm and self._rng.random() < self._trouble

    def _light_fuse(self) -> None:
        self._left = self._fuses.pop(0) if self._fuses else None

    def _burn(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                raise Crash

    def calm_down(self) -> None:
        """From now on nothing goes wrong any more."""
        self.inbox.calm = True
        self._fuses.clear()
        self._left = None

    def step(self) -> None:
        """One step of the loop; a master that dies in it is started again."""
        try:
            self.loop.step()
        except Crash:
            self.crashes += 1
            self.restart()
            self._light_fuse()


class CapriciousPolicy:
    """Makes valid but senseless plans: moves, suspends and holds whatever it likes.

    A pure function of the snapshot and the seed; sensible once `until_ms` has passed.
    """

    name = "capricious"

    def __init__(self, seed: int, until_ms: int) -> None:
        self._seed = seed
        self._until_ms = until_ms

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        rng = random.Random(f"{self._seed}/{snapshot.now_ms}")
        calm = snapshot.now_ms >= self._until_ms
        room = {}
        for view in snapshot.instances:
            used = [c for c in snapshot.runs if c.instance == view.id]
            total = NOTHING
            for run in used:
                total = total + run.task.demand_on(view.offering.type.family)
            room[view.id] = view.offering.type.capacity - total
        plan = _Draft(snapshot, room)
        for job in snapshot.jobs:
            members = [c for c in snapshot.runs if c.job == job.id]
            if any(run.pinned for run in members):
                continue
            gang = job.spec.kind is JobKind.GANG
            for unit in [members] if gang else [[run] for run in members]:
                if not calm and all(run.running for run in unit) and rng.random() < 0.05:
                    for run in unit:
                        plan.suspend(run)
                    continue
                for run in unit:
                    if run.instance is None or (not calm and rng.random() < 0.2):
                        plan.place(run, rng, fresh=rng.random() < 0.5)
            if not calm and rng.random() < 0.1 and all(c.instance is None for c in members):
                for run in members:
                    plan.entries[run.id] = Hold(run.id, "a whim")
        return plan.finish(), memory


class _Draft:
    def __init__(self, snapshot: Snapshot, room: dict[Any, Any]) -> None:
        self._snapshot = snapshot
        self._room = room
        self._launches: dict[int, NewInstance] = {}
        self.entries: dict[RunId, Any] = {}

    def place(self, run: Any, rng: random.Random, *, fresh: bool) -> None:
        offerings = {v.id: v.offering for v in self._snapshot.instances}
        offerings.update({key: launch.offering for key, launch in self._launches.items()})
        fitting = [
            where
            for where, room in sorted(self._room.items(), key=str)
            if where != run.instance
            and (need := run.task.demand_on(offerings[where].type.family)) is not None
            and need.fits(room)
        ]
        if fitting and not fresh:
            where = rng.choice(fitting)
            offering = offerings[where]
        else:
            bought = [
                o
                for o in self._snapshot.catalog
                if o.purchase is not Purchase.OWNED
                if (need := run.task.demand_on(o.type.family)) is not None
                and need.fits(o.type.capacity)
            ]
            if not bought:
                return
            offering = rng.choice(bought)
            where = len(self._launches)
            self._launches[where] = NewInstance(where, offering)
            self._room[where] = offering.type.capacity
        self._room[where] = self._room[where] - run.task.demand_on(offering.type.family)
        self.entries[run.id] = Assign(run.id, where)

    def suspend(self, run: Any) -> None:
        """Stop it; whoever is placed later may have its room."""
        self.entries[run.id] = Suspend(run.id, "a whim")
        family = next(v.offering for v in self._snapshot.instances if v.id == run.instance)
        self._room[run.instance] += run.task.demand_on(family.type.family)

    def finish(self) -> Plan:
        used = {e.on for e in self.entries.values() if isinstance(e, Assign)}
        launches = tuple(launch for key, launch in self._launches.items() if key in used)
        return Plan(launches, tuple(self.entries.values()))
