"""Whatever a policy says about money and wherever the master dies, what is paid is earned."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.work import Work
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import JobSubmitted
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Loans, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.model.tenants.tenancy import LoanTerms, Transfer
from eva_wire.values.ids import Exact, Family, Price, Workload
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld

CHAOS_MS = 900_000
GPU = Family("g")
TENANTS = ("a", "b", "c")
QUICK = Settings(
    round_gap_ms=1_000,
    round_period_ms=30_000,
    register_timeout_ms=120_000,
    lost_worker_ms=60_000,
    cloud_resend_ms=30_000,
    sync_period_ms=30_000,
    backoff_ms=2_000,
    tenancy=Tenancy(dict.fromkeys(TENANTS, ((GPU, 4),))),
)
MACHINE = InstanceType("g.4", GPU, Resources(4, 8_000, 8_192), acquisition_ms=7_000, setup_ms=9_000)


class Moneyed:
    """Says at random on what terms jobs borrow, much of it impossible."""

    name = "moneyed"

    def __init__(self, seed: int) -> None:
        self._inner = CapriciousPolicy(seed, CHAOS_MS)
        self._seed = seed

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        plan, memory = self._inner.plan(snapshot, memory)
        rng = random.Random(f"{self._seed}/money/{snapshot.now_ms}")
        terms = []
        for job in snapshot.jobs:
            if rng.random() < 0.7:
                lenders = rng.sample([*TENANTS, "nobody"], rng.randint(1, 3))
                amounts = tuple((it, rng.randint(-1, 10**7)) for it in sorted(lenders))
                lent = tuple(rng.randint(0, 700) for _ in amounts)
                terms.append(LoanTerms(job.id, rng.randint(0, 3), amounts, lent))
        payer, payee = rng.sample(TENANTS, 2)
        payments = (Transfer(payer, payee, rng.randint(-5, 1_000)),)
        return replace(plan, loans=Loans(tuple(terms), payments)), memory


def _world(seed: int, trouble: float, fuses: list[int]) -> ChaoticWorld:
    world = ChaoticWorld(
        (Offering(MACHINE, Price(3_000_001)),),
        Moneyed(seed),
        seed=seed,
        trouble=trouble,
        fuses=fuses,
        settings=QUICK,
        terminate_ms=1_000,
        work_of=lambda _: Work(200_000),
    )
    task = TaskSpec(Workload("w"), Program("true"), ((GPU, Resources(2, 1_000, 1_024)),))
    for number, tenant in enumerate(TENANTS):
        spec = JobSpec(f"job{number}", "me", (task,) * 2, tenant=tenant)
        _submit(world, number, spec)
    return world


def _submit(world: ChaoticWorld, number: int, spec: JobSpec) -> None:
    command = f"submit-{number}"

    def arrive() -> None:
        if command not in world.answers.replies:
            world.inbox.post(JobSubmitted(command, spec))
            world.timeline.after(20_000, arrive)

    world.timeline.after(number * 60_000, arrive)


def _check(state: State) -> None:
    sums = state.totals.tenants.values()
    assert sum(of.paid for of in sums) == sum(of.earned for of in sums)
    assert sum(of.given for of in sums) == sum(of.received for of in sums)
    assert sum(of.lent_thousandths for of in sums) <= 1_000 * sum(of.borrowed_ms for of in sums)
    assert all(min(of.paid, of.earned, of.given, of.received) >= 0 for of in sums)
    assert "nobody" not in state.totals.tenants


@drawn(20)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.2]),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_what_is_paid_is_earned(seed: int, trouble: float, fuses: list[int]) -> None:
    world = _world(seed, trouble, fuses)
    while world.timeline.now() < 2 * CHAOS_MS:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            if not world.state.active and len(world.answers.replies) == len(TENANTS):
                break
        world.step()
        _check(world.state)
    whole = world.state.totals.tenants
    assert not world.state.active
    assert not world.state.tally.lending.in_force()
    assert set(whole) <= {*TENANTS}


def test_a_restarted_master_knows_all_terms_and_sums() -> None:
    world = _world(7, 0.0, [])
    seen = 0
    while world.timeline.now() < CHAOS_MS // 2:
        world.step()
        terms, sums = world.state.tally.lending.in_force(), world.state.totals.tenants
        if terms and any(of.paid for of in sums.values()) and seen < 5:
            seen += 1
            world.restart()
            assert world.state.tally.lending.in_force() == terms
            assert world.state.totals.tenants == sums
    assert seen == 5
    assert Exact(0) < sum(of.gpu_ms for of in world.state.totals.tenants.values())
