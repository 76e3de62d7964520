"""Jobs that limits forbid for ever: they would wait though nothing else ran.

Limits of the catalog, the partition, the user, the tenant and the cluster are looked at together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.state.records import Records
from eva_master.learning.voices.names import voice_of
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.fleet.partitions import Partition
from eva_master.model.job import JobSpec, TaskSpec, different
from eva_master.packing.alone.alike import together
from eva_master.packing.alone.fit import allowed, fit
from eva_master.packing.alone.room import NO_CAPS, Caps, InstanceSeat, Stock, alike
from eva_master.packing.quotas import QuotaUse
from eva_master.packing.valuation.on_demand import OnDemandPrices, value_on
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import Unplaceable
from eva_wire.values.ids import MILLION, Family

_HINT = "state fewer tasks, or less for each; see: eva catalog, eva nodes, eva partitions"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A single limit, with its explanation.

    Attributes:
        caps: The limit alone.
        told: The explanation, with the setting that states it.
    """

    caps: Caps
    told: str


def refusal(
    state: Records, settings: Settings, spec: JobSpec, partition: Partition
) -> Unplaceable | None:
    """Why tasks of a job could not run even if nothing else did.

    Members of a gang run together; each task of an array is checked by itself. Gangs of hundreds of
    different tasks are not always found out, and none that can run is refused.

    Args:
        state: The records, with the catalog and measured rates.
        settings: Settings, with the limits.
        spec: The job.
        partition: The partition where it is to run; the whole of a cluster that is not divided.

    Returns:
        The reason, with the room that exists; `None` if there is none.
    """
    room = _Room(state, settings, spec, partition)
    if spec.kind is JobKind.GANG:
        return room.refusal(spec.tasks[: spec.elastic.least])
    refusals = (room.refusal([task]) for task in different(spec.tasks))
    return next((reason for reason in refusals if reason is not None), None)


class _Room:
    """All that a job could have of a partition."""

    def __init__(
        self, state: Records, settings: Settings, spec: JobSpec, partition: Partition
    ) -> None:
        self._state = state
        self._settings = settings
        self._spec = spec
        self._partition = partition
        divided = settings.partitions.divided
        self._where = f"partition {partition.name}" if divided else "the cluster"
        self._sold = sold(state, settings, partition)
        self._stocks = tuple(map(_stock, self._sold))
        self._rules = tuple(self._limits())
        self._caps = _all(self._rules, apart=not partition.packs)

    def refusal(self, tasks: Sequence[TaskSpec]) -> Unplaceable | None:
        """Why tasks that run together never fit."""
        stocks, caps = self._stocks, self._caps
        if self._fits_apart(tasks) or not self._is_known(tasks):
            return None
        outcome = fit(tasks, stocks, caps)
        if outcome.seats is None and outcome.proven:
            return self._refused(tasks)
        rule = self._price_rule(tasks)
        if rule is None or (outcome.seats and allowed(outcome.seats, tasks, stocks, rule.caps)):
            return None
        outcome = fit(tasks, stocks, replace(caps, worth=rule.caps.worth))
        if outcome.seats is None and outcome.proven:
            return Unplaceable(f"{self._together(tasks)}: {rule.told}", hint=_HINT)
        return None

    def _fits_apart(self, tasks: Sequence[TaskSpec]) -> bool:
        """Whether each may have an instance of its own, of the cheapest that hold it."""
        cheapest_of: dict[TaskSpec, int] = {}
        for task in different(tasks):
            rented = [
                (stock.offering.price, index)
                for index, stock in enumerate(self._stocks)
                if stock.holds(task) and stock.offering.purchase is not Purchase.OWNED
            ]
            cheapest = min(rented, default=None)
            if cheapest is None or self._stocks[cheapest[1]].most is not None:
                return False
            cheapest_of[task] = cheapest[1]
        seats = [InstanceSeat(cheapest_of[task], number) for number, task in enumerate(tasks)]
        return allowed(seats, tasks, self._stocks, self._caps)

    def _is_known(self, tasks: Sequence[TaskSpec]) -> bool:
        """Whether there is a type for each task at all, in a catalog that may still be empty."""
        return all(any(stock.holds(task) for stock in self._stocks) for task in different(tasks))

    def _refused(self, tasks: Sequence[TaskSpec]) -> Unplaceable:
        """The refusal, naming the limit to blame if there is a single one."""
        stocks, apart = self._stocks, self._caps.apart
        because = ""
        if fit(tasks, stocks, replace(NO_CAPS, apart=apart)).seats is not None:
            culprits = [rule for rule in self._rules if self._forbids(rule, tasks)]
            because = "; ".join(rule.told for rule in culprits or self._rules)
        elif apart:
            policy = self._partition.policy
            named = f"its policy, {policy}," if policy else "the policy"
            because = f"{named} gives each task an instance of its own"
        if len(tasks) > 1 and alike(tasks):
            most = together(tasks[0], len(tasks), stocks, self._caps)
            parts = ", ".join(self._parts(tasks[0], most.used))
            message = (
                f"{self._together(tasks)}, and {self._where} has room for {most.tasks:,} of them"
            )
            message += " when it is empty" + (f": {parts}" if parts else "")
        else:
            message = self._together(tasks)
        separator = ": " if message.endswith("at the same time") else "; "
        return Unplaceable(message + (f"{separator}{because}" if because else ""), hint=_HINT)

    def _forbids(self, rule: _Rule, tasks: Sequence[TaskSpec]) -> bool:
        outcome = fit(tasks, self._stocks, replace(rule.caps, apart=self._caps.apart))
        return outcome.seats is None and outcome.proven

    def _together(self, tasks: Sequence[TaskSpec]) -> str:
        """Say in words what does not fit."""
        if len(tasks) == 1:
            return f"a task of the job cannot run in {self._where} even when it is empty"
        least = " at least" if self._spec.elastic.least is not None else ""
        what = f"the gang has {len(tasks):,} tasks{least} that run together"
        return what if alike(tasks) else f"{what}, and {self._where} cannot run them"

    def _parts(self, task: TaskSpec, used: Sequence[tuple[int, int]]) -> Iterator[str]:
        """Number of tasks of a kind on each type, by name."""
        counts: Counter[str] = Counter()
        for index, count in used:
            machine = self._stocks[index].offering.type
            need = task.demand_on(machine.family)
            each = None if need is None else need.times_in(machine.capacity)
            counts[machine.name] += count * (1 if self._caps.apart or each is None else each)
        return (f"{count:,} on {name}" for name, count in sorted(counts.items()))

    def _limits(self) -> Iterator[_Rule]:
        """The limits in force, each by itself."""
        settings, partition = self._settings, self._partition
        nodes = settings.nodes_of(partition)
        every, own, budget = settings.limits, partition.limits.instances, partition.budget
        name = partition.name
        for most, setting, whose in (
            (every.instances_per_job, "instances_per_job", "tasks of a job"),
            (every.instances_per_user, "instances_per_user", f"tasks of {self._spec.owner}"),
        ):
            if most < NO_LIMIT:
                message = f"{whose} may be on {most:,} instances (limits.{setting})"
                yield _Rule(Caps(places=most), message)
        if own is not None:
            message = f"it may have {own:,} instances (partitions.{name}.limits.instances)"
            yield _Rule(Caps(launches=max(0, own - nodes.count)), message)
        if every.instances < NO_LIMIT:
            message = f"the cluster may have {every.instances:,} instances (limits.instances)"
            yield _Rule(Caps(launches=max(0, every.instances - len(settings.nodes))), message)
        if budget.per_hour is not None:
            rest = max(0, budget.per_hour - nodes.per_hour)
            message = f"it may spend {_usd(budget.per_hour)} per hour"
            yield _Rule(Caps(per_hour=rest), f"{message} (partitions.{name}.budget.usd_per_hour)")
        quota = settings.tenancy.enforced(partition).get(self._spec.tenant)
        if quota is not None:
            tenant = self._spec.tenant

            def may_have(gpus: Mapping[Family, int]) -> bool:
                return QuotaUse(tenant, quota, {}).allows(gpus)

            yield _Rule(Caps(quota=may_have), f"the quota of tenant {tenant} allows no more GPUs")

    def _price_rule(self, tasks: Sequence[TaskSpec]) -> _Rule | None:
        """Limit of the price for the tasks, which a deadline lifts."""
        times = self._settings.price_limit_ppm
        if times is None or self._spec.deadline is not None:
            return None
        rented = tuple(
            offering for offering in self._sold if offering.purchase is not Purchase.OWNED
        )
        own = self._state.learned.of(voice_of(self._spec)).standalone.known
        prices = OnDemandPrices(rented, own)
        reservations = prices.of_tasks(tasks, split=self._spec.training.split_batch)

        def worth(task: int, offering: Offering) -> int:
            return times * value_on(reservations[task], offering)

        message = (
            "what holds them and may be had costs more than"
            f" {times / MILLION:g} times what they are worth (price_limit)"
        )
        return _Rule(Caps(worth=worth), message)


def _all(rules: Sequence[_Rule], *, apart: bool) -> Caps:
    """All limits together."""
    caps = [rule.caps for rule in rules]
    return Caps(
        launches=min((cap.launches for cap in caps if cap.launches is not None), default=None),
        places=min((cap.places for cap in caps if cap.places is not None), default=None),
        per_hour=next((cap.per_hour for cap in caps if cap.per_hour is not None), None),
        quota=next((cap.quota for cap in caps if cap.quota is not None), None),
        apart=apart,
    )


def _stock(offering: Offering) -> Stock:
    if offering.purchase is Purchase.OWNED:
        return Stock(offering, idle=offering.limit or 0, most=0)
    return Stock(offering, most=offering.limit)


def sold(state: Records, settings: Settings, partition: Partition | None) -> Catalog:
    """Offerings that a partition may have; of owned nodes only its own.

    Args:
        state: The records, with the catalog.
        settings: Settings, with the nodes.
        partition: The partition; `None` if the cluster is not divided.
    """
    if partition is None:
        return state.catalog
    nodes = settings.nodes_of(partition).of_offering
    return tuple(
        replace(offering, limit=nodes.get(offering.id, 0))
        if offering.purchase is Purchase.OWNED
        else offering
        for offering in partition.sold(state.catalog)
    )


def _usd(amount: int) -> str:
    return f"${amount / MILLION:,.2f}"
