"""What tenants owe each other to the last integer, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.rpc.server import explain
from eva_master.adapters.rpc.server.shown import tenants
from eva_master.adapters.rpc.server.shown.lending import worth_of
from eva_master.control.settings import Settings
from eva_master.control.state.parts.lending import Lending
from eva_master.control.state.parts.tenant_tally import TenantTally
from eva_master.control.state.store import State
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.accounting.totals import TenantTotals, Totals
from eva_master.model.accounting.worth import Worth
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes, Documents
from eva_master.model.events import CancelRequested, JobSubmitted, Phase, PlanReady
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, Loans, NewInstance, Plan
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.model.tenants.tenancy import LoanTerms, Transfer
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import Exact, Family, JobId, Millis, Price, RunId, Workload, micro_usd
from tests.fakes.archive import LoadedArchive
from tests.fakes.hand_driven import Cluster
from tests.fakes.models import model_of
from tests.fakes.snapshots import hypothetical

MINUTE = 60_000
GPU = Family("g")
MACHINE = Offering(InstanceType("g.4", GPU, Resources(4, 8_000, 8_192)), Price(3_000_000))
TASK = TaskSpec(Workload("w"), Program("x"), ((GPU, Resources(2, 1_000, 1_024)),))
SETTINGS = Settings(
    round_gap_ms=0,
    profile=False,
    tenancy=Tenancy(dict.fromkeys("abc", ((GPU, 4),))),
    partitions=Partitions(whole=Partition(default=True, lends=True)),
)
JOB = JobId("job-1")
RUN = RunId("job-1/0")
BY_TWO = LoanTerms(JOB, 2, (("b", 240_000), ("c", 120_000)), (1_500, 500))
"""$0.36 an hour: b lends 1.5 GPUs, c half of one."""


class Tenants(Cluster):
    """A job of tenant `a` that came after a second, and runs from then on."""

    def __init__(self, terms: LoanTerms = BY_TWO, worth: Worth | None = None) -> None:
        super().__init__(State((MACHINE,)), SETTINGS)
        spec = JobSpec("job", "me", (TASK,), tenant="a", worth=worth)
        self.handle(JobSubmitted("first", spec), at=1_000)
        plan = Plan((NewInstance(0, MACHINE),), (Assign(RUN, 0),), loans=Loans((terms,)))
        self.adopt(plan, at=1_000)
        (instance,) = self.state.instances
        self.register(instance, at=1_000)
        self.say(RUN, Phase.RUNNING, at=1_000)

    def adopt(self, plan: Plan, *, at: int) -> PlanReady:
        assert self.request is not None
        ready = PlanReady(self.request.round, plan, None)
        self.request = None
        self.handle(ready, at=at)
        return ready

    def ask(self, *, at: int) -> None:
        """Have a plan asked for."""
        spec = JobSpec(f"other{at}", "me", (TASK,), tenant="b")
        self.handle(JobSubmitted(f"other-{at}", spec), at=at)

    def succeed(self, *, at: int) -> None:
        self.say(RUN, Phase.EXITED, at=at, exit_code=0)

    def of(self, tenant: str) -> TenantTotals:
        return self.state.totals.tenants.get(tenant, TenantTotals())

    def money(self) -> tuple[int, int, int]:
        """What a paid, and what b and c earned, in micro-dollars."""
        parts = self.of("a").paid, self.of("b").earned, self.of("c").earned
        assert parts[0] == parts[1] + parts[2]
        return micro_usd(parts[0]), micro_usd(parts[1]), micro_usd(parts[2])


def test_ten_minutes_at_36_cents_an_hour_are_6_cents_and_end_with_the_job() -> None:
    cluster = Tenants()
    assert cluster.money() == (0, 0, 0)
    cluster.succeed(at=1_000 + 10 * MINUTE)
    assert cluster.money() == (60_000, 40_000, 20_000)
    # 20 minutes on two GPUs, of which 15 are b's and 5 c's.
    assert cluster.of("a").borrowed_ms == 20 * MINUTE
    assert (cluster.of("b").lent_ms, cluster.of("c").lent_ms) == (15 * MINUTE, 5 * MINUTE)
    assert not cluster.state.tally.lending.in_force()
    cluster.ask(at=60 * MINUTE)
    assert cluster.money() == (60_000, 40_000, 20_000)


def test_a_job_that_is_cancelled_owes_until_its_tasks_hold_nothing() -> None:
    cluster = Tenants()
    cluster.handle(CancelRequested("stop", JOB, "me"), at=1_000 + 5 * MINUTE)
    cluster.say(RUN, Phase.EXITED, at=1_000 + 10 * MINUTE, exit_code=143)
    assert cluster.money() == (60_000, 40_000, 20_000)
    assert not cluster.state.tally.lending.in_force()


def test_other_terms_hold_from_the_plan_that_states_them() -> None:
    cluster = Tenants()
    cluster.ask(at=1_000 + 5 * MINUTE)
    assert cluster.money() == (0, 0, 0)
    dearer = LoanTerms(JOB, 2, (("b", 720_000),))
    cluster.adopt(Plan(loans=Loans((dearer,))), at=1_000 + 5 * MINUTE)
    assert cluster.money() == (30_000, 20_000, 10_000)
    cluster.succeed(at=1_000 + 10 * MINUTE)
    assert cluster.money() == (90_000, 80_000, 10_000)


def test_a_plan_that_states_no_terms_ends_them() -> None:
    cluster = Tenants()
    cluster.ask(at=1_000 + 5 * MINUTE)
    cluster.adopt(Plan(), at=1_000 + 5 * MINUTE)
    assert cluster.money() == (30_000, 20_000, 10_000)
    cluster.succeed(at=1_000 + 10 * MINUTE)
    assert cluster.money() == (30_000, 20_000, 10_000)


def test_a_linear_worth_is_booked_as_of_the_moment_of_success() -> None:
    cluster = Tenants(worth=Worth(6_000_000, loses_per_hour=3_000_000))
    assert cluster.of("a").value == 0
    cluster.succeed(at=1_000 + 10 * MINUTE)
    assert cluster.of("a").value == 5_500_000


def test_transfers_are_booked_once_though_the_master_dies_after_the_adoption() -> None:
    cluster, journal = Tenants(), MemoryJournal()
    cluster.ask(at=5 * MINUTE)
    paid = Transfer("c", "b", 1_234)
    ready = cluster.adopt(Plan(loans=Loans((BY_TWO,), (paid,))), at=5 * MINUTE)
    journal.commit(cluster.machine.take_changes())
    again = Cluster(State.restored((MACHINE,), journal.load()), SETTINGS)
    again.machine.recover(Millis(5 * MINUTE))
    # The answer that the dead master has carried out comes once more.
    again.handle(ready, at=5 * MINUTE)
    sums = again.state.totals.tenants
    assert (sums["c"].given, sums["b"].received) == (1_234, 1_234)
    assert (sums["b"].given, sums["c"].received) == (0, 0)
    assert again.state.tally.lending.in_force()[JOB].terms == BY_TWO


def test_readers_see_transfers_at_once() -> None:
    cluster = Tenants()
    cluster.ask(at=5 * MINUTE)
    assert "c" not in cluster.machine.published().totals.tenants
    cluster.adopt(Plan(loans=Loans((BY_TWO,), (Transfer("c", "b", 7),))), at=5 * MINUTE)
    assert cluster.machine.published().totals.tenants["c"].given == 7
    # Even if nothing else changes.
    cluster.state.tally.lending.transfer([Transfer("c", "b", 1)])
    assert cluster.machine.published().totals.tenants["c"].given == 8


def test_sums_and_terms_of_older_journals_are_zero() -> None:
    tally = TenantTally(Documents())
    old = {"charged": "17", "alone": "23", "jobs": {"pending": 2}}
    tally.restore({"tenants/a": old}, Totals())
    sums = tally.totals()["a"]
    assert (sums.charged, sums.alone) == (17, 23)
    assert replace(sums, charged=TenantTotals().charged, alone=TenantTotals().alone) == (
        TenantTotals(jobs=sums.jobs)
    )
    lending = Lending(Documents(), tally)
    lending.restore({"tenants/a": old})
    assert not lending.in_force()


def test_a_job_that_borrows_says_from_whom_and_for_how_much() -> None:
    cluster = Tenants()
    subject = explain.find(
        model_of(cluster.state, SETTINGS), LoadedArchive(Changes), "me", "job", Millis(MINUTE)
    )
    assert isinstance(subject, explain.Subject)
    told = subject.message.borrowing
    assert (told.gpus, told.micro_usd_per_hour) == (2, 360_000)
    assert [(it.tenant, it.micro_usd_per_hour, it.gpus_thousandths) for it in told.lenders] == [
        ("b", 240_000, 1_500),
        ("c", 120_000, 500),
    ]
    cluster.succeed(at=2 * MINUTE)
    over = explain.find(
        model_of(cluster.state, SETTINGS), LoadedArchive(Changes), "me", "job", Millis(3 * MINUTE)
    )
    assert isinstance(over, explain.Subject)
    assert not over.message.HasField("borrowing")


def test_a_preview_tells_what_a_job_would_be_worth() -> None:
    state = State((MACHINE,))
    spec = JobSpec("new", "me", (TASK,), tenant="a", duration_ms=120 * MINUTE)
    seen = hypothetical(state, spec, Millis(5_000), SETTINGS)
    assert [view.name for view in seen.tenants] == ["a", "b", "c"]
    worth = worth_of(seen.jobs[0])
    assert worth is not None
    # Its machine is $3 an hour: $6 after two hours, and nothing after four.
    assert (worth.done_micro_usd, worth.length_ms) == (6_000_000, 120 * MINUTE)
    assert (worth.at_once_micro_usd, worth.loss_micro_usd_per_hour) == (12_000_000, 3_000_000)
    stated = replace(spec, worth=Worth(1_000_000), duration_ms=None)
    told = worth_of(hypothetical(state, stated, Millis(5_000), SETTINGS).jobs[0])
    assert told is not None
    assert (told.at_once_micro_usd, told.HasField("done_micro_usd")) == (1_000_000, False)
    plain = hypothetical(state, spec, Millis(5_000), Settings())
    assert worth_of(plain.jobs[0]) is None


def test_sums_beyond_64_bits_are_shown_as_the_largest_number_after_a_restart_too() -> None:
    """A journal that was written when jobs could be worth more opens, and shows its tenants."""
    most, huge, before, journal = 2**63 - 1, Exact(10**30), Tenants().state, MemoryJournal()
    sums = TenantTotals(value=most + 1, paid=huge, earned=huge, received=10**25, given=7)
    before.tally.lending.tenants.add("a", sums)
    journal.commit(before.take_changes())
    state = State.restored((MACHINE,), journal.load())
    shown = tenants.response(model_of(state), TenantRules({"a": ("me",)}), Millis(0)).tenants[0]
    sent = pb.Tenant.FromString(shown.SerializeToString())
    assert (sent.value_micro_usd, sent.received_micro_usd) == (most, most)
    assert (sent.paid_micro_usd, sent.earned_micro_usd, sent.given_micro_usd) == (most, most, 7)
