"""Jobs wait while a secret of theirs is not set, and hold up nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.app.policy_registry import policies
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.model.events import (
    InstanceInterrupted,
    SecretChanged,
    SecretsListed,
    SecretsRefused,
)
from eva_master.model.job import Deadline, JobSpec, Stragglers
from eva_master.model.records import StopReason
from eva_master.model.secrets import Holder, SecretName
from eva_master.ports import Policy
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import job
from tests.simulation.test_suspends import MINUTE_MS, World

TOKEN = "TOKEN"
OWNER = job("a", 1).owner
OWN: SecretName = (Holder.user(OWNER), TOKEN)
OF_TENANT: SecretName = (Holder.tenant(job("a", 1).tenant), TOKEN)
OF_ANOTHER: SecretName = (Holder.user("somebody"), TOKEN)


def using(spec: JobSpec) -> JobSpec:
    """A job that uses the secret."""
    return replace(spec, secrets=(TOKEN,))


ARRAY = job("a", 2, 2, 2, 2, array=True)
SHAPES = {
    "single": job("a", 2),
    "gang": job("a", 2, 2),
    "array": ARRAY,
    "limited array": replace(ARRAY, array=replace(ARRAY.array, concurrency=2)),
    "doubled array": replace(ARRAY, array=replace(ARRAY.array, stragglers=Stragglers.DUPLICATE)),
    "elastic gang": replace(job("a", 2, 2, 2), elastic=replace(job("a", 2).elastic, least=1)),
    "forks": replace(
        job("a", 2, array=True), forking=replace(job("a", 2).forking, forks=3), total_steps=10_000
    ),
    "with a deadline": replace(job("a", 2), deadline=Deadline(within_ms=600 * MINUTE_MS)),
}


class Secrets(World):
    """A cluster that keeps secrets; none is set at first."""

    def __init__(self, *present: SecretName, policy: Policy | None = None) -> None:
        super().__init__(policy=policy)
        self.inbox.post(SecretsListed(frozenset(present)))

    def set(self, secret: SecretName, *, present: bool = True) -> None:
        self.told += 1
        self.inbox.post(SecretChanged(f"command-{self.told}", secret, present))

    def launched(self) -> int:
        return len(self.state.instances)

    def ends(self, name: str) -> None:
        """Have a job come to its end."""
        jobs, of = self.state.jobs, JobId(name)
        self.play(0.1)
        assert self.run(lambda: jobs[of].state is JobState.SUCCEEDED, limit_ms=600 * MINUTE_MS), (
            jobs[of]
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_waits_for_a_secret_and_holds_up_nobody(shape: str) -> None:
    world = Secrets(OF_ANOTHER)
    world.submit(using(SHAPES[shape]))
    world.play(10)
    waiting = world.state.jobs[JobId("a-1")]
    assert (waiting.state, waiting.missing_secrets) == (JobState.PENDING, (TOKEN,))
    assert world.launched() == 0
    assert world.state.unplaced == {}
    assert snapshot(world.state, world.timeline.now(), Settings()).jobs == ()
    rounds = world.state.counters.rounds
    world.play(300)
    assert world.state.counters.rounds == rounds, "no plan is about it"
    world.submit(job("b", 2))
    world.ends("b-2")
    assert (world.launched(), world.states("a-1")) == (1, {"waiting"})
    world.set(OWN)
    world.ends("a-1")
    assert world.state.jobs[JobId("a-1")].failures == 0


@pytest.mark.parametrize("secret", [OWN, OF_TENANT])
def test_the_owners_secret_counts_and_the_tenants(secret: SecretName) -> None:
    world = Secrets(secret)
    world.submit(using(job("a", 2)))
    world.ends("a-1")


def test_a_secret_of_another_kind_of_holder_with_the_same_name_does_not_count() -> None:
    world = Secrets((Holder.tenant(OWNER), TOKEN), (Holder.user(job("a", 1).tenant), TOKEN))
    world.submit(using(job("a", 2)))
    world.play(10)
    assert world.state.jobs[JobId("a-1")].missing_secrets == (TOKEN,)


@pytest.mark.parametrize("shape", SHAPES)
def test_tasks_that_run_keep_a_secret_that_is_removed(shape: str) -> None:
    world = Secrets(OWN)
    world.submit(using(SHAPES[shape]))
    world.play(5)
    running = [run for run in world.runs("a-1") if run.state is RunState.RUNNING]
    assert running
    world.set(OWN, present=False)
    world.play(3)
    for run in running:
        now = world.state.runs[run.id]
        assert (now.state, now.attempt, now.instance) == (run.state, run.attempt, run.instance)
    begun = {run.id for run in world.runs("a-1") if run.attempt}
    # No other task of it has a place, or an instance that is there for it.
    assert begun == {run.id for run in running}
    assert all(run.target == run.instance for run in world.runs("a-1"))
    world.set(OWN)
    world.ends("a-1")


@pytest.mark.parametrize("shape", ["single", "gang", "array", "forks"])
def test_a_task_that_loses_its_place_waits_for_the_secret(shape: str) -> None:
    world = Secrets(OWN)
    world.submit(using(SHAPES[shape]))
    world.play(5)
    world.set(OWN, present=False)
    for instance in list(world.state.live):
        session, soon = world.state.sessions[instance], Millis(world.timeline.now() + MINUTE_MS)
        world.inbox.post(InstanceInterrupted(instance, session, soon, "taken back"))
    world.play(10)
    assert world.states("a-1") <= {"waiting", "cancelled"}
    assert not world.state.live, "no instance is kept for it"
    assert world.state.jobs[JobId("a-1")].failures == 0
    world.set(OWN)
    world.ends("a-1")
    assert max(run.attempt for run in world.runs("a-1")) == 2


def test_time_without_a_secret_is_no_part_of_the_longest_duration() -> None:
    usual = job("a", 2)
    limited = replace(usual, failing=replace(usual.failing, max_duration_ms=30 * MINUTE_MS))
    world = Secrets(OWN)
    world.submit(using(limited))
    world.play(5)
    world.set(OWN, present=False)
    for instance in list(world.state.live):
        session, soon = world.state.sessions[instance], Millis(world.timeline.now() + MINUTE_MS)
        world.inbox.post(InstanceInterrupted(instance, session, soon, "taken back"))
    world.play(300)
    waiting = world.state.jobs[JobId("a-1")]
    assert (waiting.state, waiting.ran_ms(world.timeline.now()) < 10 * MINUTE_MS) == (
        JobState.PENDING,
        True,
    )
    world.set(OWN)
    world.ends("a-1")


def test_a_master_that_starts_again_knows_what_is_set_and_what_is_missing() -> None:
    world = Secrets()
    world.submit(using(job("a", 2)))
    world.play(5)
    # The master died after the secret was set, before its control loop had heard of that.
    world.restart()
    world.inbox.post(SecretsListed(frozenset({OWN})))
    world.play(5)
    assert world.states("a-1") == {"running"}
    world.restart()
    world.inbox.post(SecretsListed(frozenset()))
    world.play(2)
    assert world.states("a-1") == {"running"}
    assert world.state.jobs[JobId("a-1")].missing_secrets == (TOKEN,)
    world.ends("a-1")


def test_an_order_that_could_not_go_out_is_taken_back() -> None:
    world = Secrets(OWN)
    world.submit(using(job("a", 2)))
    world.play(0.1)
    assert world.run(lambda: world.states("a-1") == {"starting"}, limit_ms=60 * MINUTE_MS)
    world.inbox.post(SecretsRefused(world.runs("a-1")[0].id, 1, (OWN, OF_TENANT)))
    world.play(5)
    (run,) = world.runs("a-1")
    assert (run.state, run.target) == (RunState.WAITING, None)
    assert world.state.jobs[JobId("a-1")].missing_secrets == (TOKEN,)
    assert world.state.jobs[JobId("a-1")].failures == 0
    world.set(OWN)
    world.ends("a-1")
    assert world.runs("a-1")[0].past[0].why == "a secret that it uses was not set"


def test_a_refusal_of_an_earlier_attempt_stops_no_later_one() -> None:
    world = Secrets(OWN)
    world.submit(using(job("a", 2)))
    world.play(5)
    world.inbox.post(SecretsRefused(world.runs("a-1")[0].id, 1, ()))
    world.inbox.post(SecretsRefused(world.runs("a-1")[0].id, 0, ()))
    world.play(1)
    assert world.states("a-1") == {"running"}


def test_without_a_store_of_secrets_no_job_waits() -> None:
    world = World()
    world.submit(using(job("a", 2)))
    world.play(5)
    assert world.states("a-1") == {"running"}
    assert StopReason.SECRET not in {run.stop for run in world.runs("a-1")}
    assert InstanceId("nowhere") not in world.state.live


@pytest.mark.parametrize("name", sorted(policies()))
@pytest.mark.parametrize("shape", ["gang", "array"])
def test_jobs_wait_for_secrets_under_every_policy(name: str, shape: str) -> None:
    kind = policies()[name]
    world = Secrets(policy=kind.build(kind.config()))
    world.submit(using(SHAPES[shape]))
    world.play(20)
    assert world.launched() == 0
    world.set(OWN)
    world.play(12)
    world.set(OWN, present=False)
    world.play(2)
    world.submit(job("b", 2))
    world.ends("b-2")
    world.set(OWN)
    world.ends("a-1")
    assert world.state.jobs[JobId("a-1")].failures == 0
