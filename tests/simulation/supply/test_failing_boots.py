"""What is bought while instances fail to boot, under every policy: little, less and less, and told.

The cloud sells whatever it is asked for; what becomes of an instance is decided by the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.attempt_log import History
from eva_lab.simulator.cluster.cloud import LifeStages
from eva_lab.simulator.cluster.work import SimulatedAttempt
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.events import (
    CancelRequested,
    Event,
    Phase,
    RunReport,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from tests.drawing import NEW
from tests.fakes.policies.whole import WHOLE

MINUTE_MS = 60_000
HALF_AN_HOUR_MS = 30 * MINUTE_MS
REGISTER_MS = 5 * MINUTE_MS
SIZE = Resources(0, 1000, 1024)
FORMS = ("boot", "launch", "registered", "silent", "unfit", "ran", "left", "engine")
REASONS = {"silent": "did not register within 300 s", "left": "its worker leaves"}
POLICIES = sorted(policies())
FEW = ("cloudcoaster", "eva", "stratus")
"""Policies that are tried with every change; the others are by `make explore`."""
HEAVY = "cloudcoaster"
"""It keeps instances of its own, so that its hours take long."""
WHY = "Client.InternalError: Client error on launch"
RUN = RunId("a-1/0")


def sold(name: str, price: int, zone: str = "za") -> Offering:
    family = Family(name.split(".", maxsplit=1)[0])
    kind = InstanceType(name, family, SIZE, acquisition_ms=10_000, setup_ms=50_000)
    return Offering(kind, Price(price), zone=zone)


ONE = (sold("c.1", 100_000),)
FORTY = tuple(
    sold(f"{family}.{size}", 100_000, zone)
    for family in ("c", "d", "m", "r")
    for size in range(5)
    for zone in ("za", "zb")
)

CATALOGS = {"one": ONE, "forty": FORTY}


class Ordered(History):
    """Tells of each attempt that was ordered."""

    def __init__(self, tell: Callable[[SimulatedAttempt], None]) -> None:
        super().__init__()
        self._tell = tell

    def ordered(self, attempt: SimulatedAttempt) -> None:
        super().ordered(attempt)
        self._tell(attempt)


class World(SimulatedCluster):
    """A cluster in which instances end as soon as `fails` says.

    Args:
        form: When they do: ``boot``, some time after they are up; ``launch``, before;
            ``registered``, as soon as their workers have; ``ran``, as soon as a task runs there; or
            ``left``, when their workers sign off at that time. Of the form ``engine`` they stay,
            and no task can be started there; of the form ``silent`` they never register; of the
            form ``unfit`` they register and say that no task may run there.
    """

    def __init__(
        self,
        catalog: Catalog,
        policy: str,
        form: str,
        fails: Callable[[Offering], bool] = lambda _offering: True,
        *,
        reclaimed: bool = False,
    ) -> None:
        kind = policies()[policy]
        self.bought: list[tuple[int, Offering]] = []
        self.orders = 0
        self._form, self._fails, self._reclaimed = form, fails, reclaimed
        settings = Settings(round_gap_ms=1_000, register_timeout_ms=REGISTER_MS)
        super().__init__(
            catalog,
            kind.build(kind.config()),
            settings=settings,
            attempt_log=Ordered(self._ordered),
        )
        self._seen: set[InstanceId] = set()
        self.cloud.life_of = self._life_of
        if form == "unfit":
            self._post = self.inbox.post
            self.inbox.post = self._post_unfit  # type: ignore[method-assign]

    def _post_unfit(self, event: Event) -> None:
        if isinstance(event, WorkerRegistered):
            event = replace(event, unfit=WHY)
        self._post(event)

    def _life_of(self, instance: InstanceId, offering: Offering) -> LifeStages:
        setup_ms = offering.type.setup_ms
        if instance not in self._seen:
            self._seen.add(instance)
            self.bought.append((int(self.timeline.now()), offering))
            if self._fails(offering) and self._form in ("boot", "launch", "registered"):
                after = {"boot": 70_000, "launch": 5_000, "registered": 61_000}[self._form]
                self.timeline.after(after, lambda: self._end(instance))
        elif self._fails(offering) and self._form in ("boot", "launch", "silent"):
            setup_ms = 10**9
        return LifeStages(offering.type.acquisition_ms, setup_ms, 1_000)

    def _ordered(self, attempt: SimulatedAttempt) -> None:
        instance, order = attempt.instance, attempt.order
        self.orders += 1
        if not self._fails(self.state.instances[instance].offering):
            return
        if self._form == "ran":
            self.timeline.after(20_000, lambda: self._end(instance))
        elif self._form == "left":
            self.timeline.after(20_000, lambda: self.workers.leave(instance))
        elif self._form == "engine":
            attempt.phase = Phase.EXITED
            attempt.report = RunReport(
                order.run,
                order.attempt,
                Phase.EXITED,
                never_started=True,
                blameless=True,
                message=WHY,
            )
            reported = WorkerReported(instance, self.state.sessions[instance], (attempt.report,))
            self.timeline.after(1_000, lambda: self.inbox.post(reported))

    def _end(self, instance: InstanceId) -> None:
        self.cloud.fail(instance, WHY, reclaimed=self._reclaimed)

    def play(self, until_ms: int) -> None:
        self.timeline.after(until_ms - self.timeline.now(), lambda: None)
        self.run(lambda: self.timeline.now() >= until_ms)

    def job(
        self, name: str = "a", *, tasks: int = 1, kind: JobKind = JobKind.ARRAY, minutes: int = 60
    ) -> None:
        families = sorted({offering.type.family for offering in self._catalog})
        demand = tuple((family, SIZE) for family in families)
        task = TaskSpec(Workload("w"), Program("true"), demand)
        duration_ms = minutes * MINUTE_MS
        self.submit(JobSpec(name, "me", (task,) * tasks, kind=kind, duration_ms=duration_ms))

    @property
    def told(self) -> str:
        """What `eva status` tells of the first job."""
        run = self.state.runs[RUN]
        return f"{run.waiting_for} {self.state.jobs[run.job].reason}"


@pytest.mark.parametrize(
    ("catalog", "policy"),
    [(it, policy) for it in CATALOGS for policy in (POLICIES if NEW else FEW)],
)
@pytest.mark.parametrize("form", FORMS)
def test_four_are_bought_in_half_an_hour_at_most(catalog: str, form: str, policy: str) -> None:
    world = World(CATALOGS[catalog], policy, form)
    world.job()
    world.play(HALF_AN_HOUR_MS)
    assert 2 <= len(world.bought) <= 4
    assert REASONS.get(form, WHY) in world.told
    # And less and less, down to one an hour.
    if NEW or (catalog == "one" and (policy != HEAVY or form == "boot")):
        world.play(8 * 60 * MINUTE_MS)
        assert len(world.bought) <= 13


@pytest.mark.parametrize("form", ["boot", "launch"])
def test_many_jobs_do_not_buy_once_each(form: str) -> None:
    world = World(FORTY, "eva", form)
    for number in range(10):
        world.timeline.after(number * MINUTE_MS, lambda n=number: world.job(f"job{n}"))
    world.play(HALF_AN_HOUR_MS)
    # The second of them finds out by itself at most.
    assert len(world.bought) <= 5


def test_of_an_array_one_tries_for_all_once_boots_have_failed() -> None:
    world = World(FORTY, "no_packing", "boot")
    world.job(tasks=10)
    world.play(HALF_AN_HOUR_MS)
    assert len(world.bought) <= 10 + 3


@pytest.mark.parametrize("kind", [JobKind.ARRAY, JobKind.GANG])
def test_a_job_that_brings_its_instances_down_buys_one_at_a_time(kind: JobKind) -> None:
    """Its neighbours' purchases go on: nothing is wrong with what is on sale."""
    world = World(ONE, "no_packing", "ran", lambda _: world.timeline.now() < HALF_AN_HOUR_MS)
    world.job(tasks=6, kind=kind, minutes=2)
    world.play(HALF_AN_HOUR_MS)
    most = 6 + 6 + 1 + 1 if kind is JobKind.ARRAY else 4 * 6
    assert len(world.bought) <= most
    assert all(offering.available(world.timeline.now()) for offering in world.state.catalog)
    # Once one outlives its task, the others follow.
    assert world.run(world.quiet, limit_ms=2 * 60 * MINUTE_MS)
    assert world.state.jobs[JobId("a-1")].state == "succeeded"


def test_a_job_that_can_be_started_nowhere_is_no_matter_to_others() -> None:
    """Its image may be larger than any disk."""
    world = World(ONE, "no_packing", "engine")
    world.job()
    world.play(HALF_AN_HOUR_MS)
    assert len(world.bought) <= 4
    assert all(offering.available(world.timeline.now()) for offering in world.state.catalog)


def test_where_no_job_can_be_started_nothing_is_bought_for_any() -> None:
    size = replace(ONE[0].type, capacity=Resources(0, 8000, 8192))
    world = World((replace(ONE[0], type=size),), "eva", "engine")
    for name in "abcd":
        world.job(name)
    world.play(HALF_AN_HOUR_MS)
    assert len(world.bought) <= 4
    (offering,) = world.state.catalog
    assert WHY in offering.why_unavailable


def test_one_instance_that_is_lost_soon_is_replaced_at_once() -> None:
    world = World(ONE, "eva", "ran", lambda _: len(world.bought) == 1)
    world.job(minutes=5)
    assert world.run(world.quiet, limit_ms=12 * MINUTE_MS)
    assert len(world.bought) == 2


def test_instances_that_are_lost_now_and_then_are_no_streak() -> None:
    """Each of them outlived its task for longer than a minute."""
    world = World(ONE, "eva", "registered", lambda _: False)
    world.job(minutes=60)
    for cycle in range(1, 6):
        world.play(cycle * 5 * MINUTE_MS)
        (instance,) = world.state.live
        world.cloud.fail(instance, WHY)
    world.play(27 * MINUTE_MS)
    assert len(world.bought) == 6


def test_a_gang_that_needs_two_still_tries_with_two() -> None:
    broken = [True]
    world = World(ONE, "no_packing", "boot", lambda _: broken[0])
    world.job(tasks=2, kind=JobKind.GANG, minutes=5)
    world.play(5 * MINUTE_MS)
    broken[0] = False
    assert world.run(world.quiet, limit_ms=HALF_AN_HOUR_MS)
    assert len(world.bought) == 4


@pytest.mark.parametrize("policy", WHOLE)
def test_what_does_boot_is_found_and_nothing_waits_for_what_does_not(policy: str) -> None:
    world = World(FORTY, policy, "boot", lambda o: o.zone == "za" and o.type.family == "c")
    world.job(minutes=5)
    assert world.run(world.quiet, limit_ms=HALF_AN_HOUR_MS)
    assert len(world.bought) <= 3


def test_when_it_is_mended_all_go_on_after_one_has_booted() -> None:
    broken = [True]
    world = World(FORTY, "no_packing", "boot", lambda _: broken[0])
    world.job(tasks=8, minutes=5)
    world.play(20 * MINUTE_MS)
    broken[0] = False
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    times = [at for at, _ in world.bought]
    assert len([at for at in times if at == times[-1]]) == 7, "the others at once"
    # What has failed and works again is no worse than what never failed.
    world.job("b", minutes=5)
    at = world.timeline.now()
    assert world.run(world.quiet, limit_ms=60 * MINUTE_MS)
    assert world.bought[-1][0] - at < MINUTE_MS


def test_a_job_that_finds_nothing_that_boots_is_told_while_others_go_on() -> None:
    """Broken families one after the other, in a cluster in which others boot all the time."""
    gpus = tuple(sold(f"g{n}.1", 1_000_000) for n in range(20))
    world = World((*gpus, *ONE), "eva", "boot", lambda o: o.type.family != "c")
    task = TaskSpec(Workload("g"), Program("true"), tuple((o.type.family, SIZE) for o in gpus))
    world.submit(JobSpec("a", "me", (task,), duration_ms=MINUTE_MS))
    small = TaskSpec(Workload("s"), Program("true"), ((Family("c"), SIZE),))
    for number in range(30):
        spec = JobSpec(f"s{number}", "me", (small,), duration_ms=1_000)
        world.submit(spec, Millis(number * MINUTE_MS))
    world.play(HALF_AN_HOUR_MS)
    assert len([o for _, o in world.bought if o.type.family != "c"]) <= 4
    assert len([o for _, o in world.bought if o.type.family == "c"]) >= 10, "others go on"
    assert "nothing is bought for it until" in world.told
    assert WHY in world.told


def test_broken_gpu_instances_are_no_matter_to_who_needs_none() -> None:
    gpus = tuple(
        replace(it, type=replace(it.type, capacity=replace(SIZE, gpus=1)))
        for it in (sold(f"g{n}.1", 1_000_000) for n in range(4))
    )
    world = World((*gpus, *ONE), "eva", "boot", lambda o: o.type.family != "c")
    task = TaskSpec(Workload("g"), Program("true"), tuple((o.type.family, SIZE) for o in gpus))
    world.submit(JobSpec("a", "me", (task,) * 3, kind=JobKind.ARRAY))
    world.play(15 * MINUTE_MS)
    small = TaskSpec(Workload("s"), Program("true"), ((Family("c"), SIZE),))
    world.submit(JobSpec("s", "me", (small,), duration_ms=1_000))
    world.play(18 * MINUTE_MS)
    assert world.state.jobs[JobId("s-2")].state == "succeeded"


def test_what_the_cloud_takes_back_or_nobody_wants_any_more_is_no_failure() -> None:
    spot = tuple(sold("c.1", 100_000, zone) for zone in ("za", "zb"))
    world = World(spot, "eva", "boot", reclaimed=True)
    world.job()
    world.play(10 * MINUTE_MS)
    assert len(world.bought) >= 7
    world = World(ONE, "eva", "boot")
    for number in range(6):
        world.job(f"j{number}")
        world.play(number * MINUTE_MS + 30_000)
        world.inbox.post(CancelRequested(f"cancel-{number}", JobId(f"j{number}-{number + 1}")))
        world.run(lambda: not world.state.active)
        world.play((number + 1) * MINUTE_MS)
    assert len(world.bought) == 6
    assert all(offering.available(world.timeline.now()) for offering in world.state.catalog)


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_master_that_starts_again_remembers(catalog: str) -> None:
    world = World(CATALOGS[catalog], "eva", "boot")
    world.job()
    for minute in range(1, 30):
        world.play(minute * MINUTE_MS)
        world.restart()
    world.play(HALF_AN_HOUR_MS)
    assert 2 <= len(world.bought) <= 4


def test_an_instance_that_lets_no_task_run_is_given_back_before_any_is_ordered() -> None:
    world = World(ONE, "eva", "unfit")
    world.job()
    world.play(5 * MINUTE_MS)
    assert not world.orders
    assert f"was of no use: {WHY}" in world.told
    instances = list(world.state.instances.values())
    assert instances
    assert {instance.reason for instance in instances if instance.gone_ms is not None} == {WHY}
