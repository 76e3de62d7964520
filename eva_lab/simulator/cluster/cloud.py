"""A simulated cloud: it records instances and lets time pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eva_lab.simulator.cluster.clock import Timeline
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.catalog import Offering
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp, LaunchFailed
from eva_master.model.values import replace
from eva_master.ports import Inbox
from eva_wire.values.ids import InstanceId, Millis, OfferingId, Price


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """The simulated cloud's record of an instance.

    Attributes:
        going_ms: When its termination was requested.
        fence_ms: Of an owned node, the length of its agent's lease; 0 for others.
        paid: Earlier prices, each with the time until which it was the price.
    """

    instance: InstanceId
    offering: Offering
    up_ms: Millis | None = None
    going_ms: Millis | None = None
    gone_ms: Millis | None = None
    fence_ms: int = 0
    paid: tuple[tuple[Millis, Price], ...] = ()

    def at_price(self, price: Price, now: Millis) -> SimulatedInstance:
        """The machine with a new price from a given time on."""
        if price == self.offering.price:
            return self
        paid = (*self.paid, (now, self.offering.price))
        return replace(self, offering=replace(self.offering, price=price), paid=paid)


@dataclass(frozen=True, slots=True)
class LifeStages:
    """How long the stages of an instance's life take, in milliseconds.

    Attributes:
        acquisition_ms: From the request until it is known to run.
        known_ms: The part of that for which it was already billed.
        setup_ms: From then until its worker has registered.
        ending_ms: From the request to terminate it until it is known to be gone.
        unbilled_ms: The part of that which is no longer billed.
    """

    acquisition_ms: int
    setup_ms: int
    ending_ms: int
    known_ms: int = 0
    unbilled_ms: int = 0


class Hosts:
    """Workers on the machines; called when one has booted and when one is gone."""

    def boot(self, machine: SimulatedInstance) -> None:
        """Handle that the machine has booted."""

    def vanish(self, instance: InstanceId) -> None:
        """Handle that the machine and everything on it are switched off."""


class SimulatedCloud:
    """Implements `eva_master.ports.Cloud` on virtual time.

    Args:
        timeline: The virtual time.
        inbox: Where its answers go.
        hosts: Called when machines boot and end.
        terminate_ms: Time from the request to the end of a machine.
        terminate_grid_ms: Requests to terminate are carried out at multiples of it; 0 for at once.
        retry_ms: How long an offering has no capacity after a refused launch.
    """

    def __init__(
        self,
        timeline: Timeline,
        inbox: Inbox,
        hosts: Hosts,
        *,
        terminate_ms: int = 1_000,
        terminate_grid_ms: int = 0,
        retry_ms: int = 60_000,
    ) -> None:
        self._timeline = timeline
        self._inbox = inbox
        self._hosts = hosts
        self._terminate_ms = terminate_ms
        self._grid_ms = terminate_grid_ms
        self._retry_ms = retry_ms
        self._machines: dict[InstanceId, SimulatedInstance] = {}
        self._refused: set[InstanceId] = set()
        self._never: dict[InstanceId, Millis] = {}
        """Instances terminated before they were launched, and when; they are never launched."""
        self.launches = 0
        """Number of machines that were ever acquired."""
        self.sold_out: Callable[[OfferingId], bool] = lambda _offering: False
        """Called at each launch; returns whether the offering has no capacity."""
        self.life_of: Callable[[InstanceId, Offering], LifeStages] = self._listed_life
        """Returns how long the stages of a machine's life take."""
        self.watch: Callable[[SimulatedInstance], None] = lambda _machine: None
        """Called with each machine that runs."""
        self._there: Counter[str] = Counter()
        self._sold: Counter[OfferingId] = Counter()

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`."""
        match action:
            case LaunchInstance():
                self._launch(action)
            case TerminateInstance():
                self._terminate(action.instance)
            case SyncCloud():
                billed = tuple(
                    (machine.instance, machine.up_ms)
                    for machine in self._machines.values()
                    if machine.up_ms is not None and machine.gone_ms is None
                )
                self._inbox.post(CloudListed(billed))

    def bill(self) -> dict[InstanceId, SimulatedInstance]:
        """All machines that were ever billed, by instance."""
        return {key: m for key, m in self._machines.items() if m.up_ms is not None}

    def existing(self) -> list[InstanceId]:
        """The machines that are not gone."""
        return [key for key, machine in self._machines.items() if machine.gone_ms is None]

    def count(self, kind: str) -> int:
        """The number of machines of a type that exist or are being acquired."""
        return self._there[kind]

    def sold(self, offering: OfferingId) -> int:
        """The number of machines of an offering that exist or are being acquired."""
        return self._sold[offering]

    def is_there(self, instance: InstanceId) -> bool:
        """Whether a machine exists or is being acquired."""
        machine = self._machines.get(instance)
        return machine is not None and machine.gone_ms is None

    def reprice(self, prices: Mapping[OfferingId, Price]) -> None:
        """Have machines that exist cost what their offerings cost from now on."""
        now = self._timeline.now()
        for name, machine in self._machines.items():
            if machine.gone_ms is None and machine.offering.id in prices:
                price = prices[machine.offering.id]
                self._machines[name] = machine.at_price(price, now)

    def fail(self, instance: InstanceId, reason: str = "", *, reclaimed: bool = False) -> None:
        """Take a machine away without a request, as a failure does.

        Args:
            instance: Its id.
            reason: Reason that the cloud gives.
            reclaimed: Whether the cloud takes back what it sold on the spot market.
        """
        if self._machines[instance].gone_ms is None:
            self._end(instance, reason=reason, reclaimed=reclaimed)

    def _launch(self, action: LaunchInstance) -> None:
        machine = self._machines.get(action.instance)
        if action.instance in self._never:
            self._inbox.post(InstanceGone(action.instance, None, self._never[action.instance]))
            return
        refused = action.instance in self._refused
        if refused or (machine is None and self.sold_out(action.offering.id)):
            # A refusal is final for the instance, since its delayed message must remain true.
            self._refused.add(action.instance)
            retry_at = Millis(self._timeline.now() + self._retry_ms)
            reason = f"{action.offering.type.name} is out of stock in {action.offering.zone}"
            self._inbox.post(LaunchFailed(action.instance, retry_at, reason))
        elif machine is None:
            self._machines[action.instance] = SimulatedInstance(action.instance, action.offering)
            self.launches += 1
            self._there[action.offering.type.name] += 1
            self._sold[action.offering.id] += 1
            delay = self.life_of(action.instance, action.offering).acquisition_ms
            self._timeline.after(delay, lambda: self._up(action.instance))
        elif machine.gone_ms is not None:
            self._inbox.post(InstanceGone(machine.instance, machine.up_ms, machine.gone_ms))
        elif machine.up_ms is not None:
            self._inbox.post(InstanceUp(machine.instance, machine.up_ms))

    def _up(self, instance: InstanceId) -> None:
        machine = self._machines[instance]
        if machine.gone_ms is not None:
            return
        life = self.life_of(instance, machine.offering)
        up_ms = Millis(self._timeline.now() - life.known_ms)
        self._machines[instance] = machine = replace(machine, up_ms=up_ms)
        self._inbox.post(InstanceUp(instance, up_ms))
        self.watch(machine)
        self._timeline.after(life.setup_ms, lambda: self._boot(instance))

    def _boot(self, instance: InstanceId) -> None:
        if self._machines[instance].gone_ms is None:
            self._hosts.boot(self._machines[instance])

    def _terminate(self, instance: InstanceId) -> None:
        now = self._timeline.now()
        machine = self._machines.get(instance)
        if machine is None:
            gone_ms = self._never.setdefault(instance, now)
            self._inbox.post(InstanceGone(instance, None, gone_ms))
        elif machine.gone_ms is not None:
            self._inbox.post(InstanceGone(instance, machine.up_ms, machine.gone_ms))
        elif machine.going_ms is None:
            self._machines[instance] = replace(machine, going_ms=now)
            wait = -now % self._grid_ms if self._grid_ms else 0
            life = self.life_of(instance, machine.offering)
            self._timeline.after(
                wait + life.ending_ms, lambda: self._end(instance, life.unbilled_ms)
            )

    def _listed_life(self, _instance: InstanceId, offering: Offering) -> LifeStages:
        return LifeStages(offering.type.acquisition_ms, offering.type.setup_ms, self._terminate_ms)

    def _end(
        self,
        instance: InstanceId,
        unbilled_ms: int = 0,
        *,
        reason: str = "",
        reclaimed: bool = False,
    ) -> None:
        machine = self._machines[instance]
        if machine.gone_ms is None:
            now = Millis(self._timeline.now() - unbilled_ms)
            self._machines[instance] = replace(machine, gone_ms=now)
            self._there[machine.offering.type.name] -= 1
            self._sold[machine.offering.id] -= 1
            self._hosts.vanish(instance)
            gone = InstanceGone(instance, machine.up_ms, now, reason, reclaimed=reclaimed)
            self._inbox.post(gone)
