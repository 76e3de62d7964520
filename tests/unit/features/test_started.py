"""A master that starts follows what the journal has, as if it had been there from the beginning."""

from __future__ import annotations

from eva_master.control.machine import Machine
from eva_master.control.measure import learn
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.changes import Changes
from eva_master.model.events import Phase, PlanReady, RunReport, SecretChanged, SecretsListed
from eva_master.model.planning.plan import Plan
from eva_master.model.secrets import Holder
from eva_master.model.values import replace
from eva_wire.values.ids import Millis, RunId
from tests.fakes.hand_driven import CATALOG, JOB, SETTINGS, Cluster

MINUTE = 60_000


def started_again(cluster: Cluster, settings: Settings = SETTINGS) -> Cluster:
    """A new master with the records of another one; its first plan changes nothing."""
    state = cluster.state
    written = Changes(
        jobs=tuple(state.jobs.values()),
        runs=tuple(state.runs.values()),
        instances=tuple(state.instances.values()),
    )
    again = Cluster(State.restored(CATALOG, written), settings)
    (request,) = (
        action
        for action in again.machine.recover(Millis(cluster.now))
        if isinstance(action, RequestPlan)
    )
    again.handle(PlanReady(request.round, Plan((), ()), None), at=cluster.now)
    for instance in state.live:
        reports = [
            RunReport(run.id, run.attempt, Phase.RUNNING) for run in state.occupants(instance)
        ]
        again.register(instance, *reports, at=cluster.now)
    return again


def elapse(cluster: Cluster, until: int) -> None:
    """Wake the master whenever it asks for that, and let its plans change nothing."""
    machine: Machine = cluster.machine
    while (at := machine.next_alarm()) is not None and at <= until:
        cluster.handle(at=max(at, cluster.now))
        if cluster.request is not None:
            request, cluster.request = cluster.request, None
            cluster.handle(PlanReady(request.round, Plan((), ()), None), at=cluster.now)


def test_a_program_that_reports_nothing_is_learned_of() -> None:
    settings = replace(SETTINGS, profile=True)
    before = Cluster(settings=settings)
    before.start(JOB)
    for cluster in (before, started_again(before, settings)):
        run = cluster.state.runs[RunId("job-1/0")]
        assert learn.unprofiled(cluster.state, run)
        elapse(cluster, 30 * MINUTE)
        assert not learn.unprofiled(cluster.state, run)


def test_late_tasks_are_looked_for() -> None:
    before = Cluster()
    before.start(JOB + "kind: array\ntasks: 6\nstragglers: duplicate\nduration: 1m\n")
    for index in range(5):
        before.say(RunId(f"job-1/{index}"), Phase.EXITED, at=MINUTE, exit_code=0)
    elapse(before, 2 * MINUTE)
    for cluster in (started_again(before), before):
        rounds = cluster.rounds
        elapse(cluster, 60 * MINUTE)
        assert cluster.rounds > rounds


def test_a_job_waits_for_its_secret_and_goes_on_once_it_is_set() -> None:
    secret = (Holder.user("me"), "TOKEN")
    before = Cluster()
    before.handle(SecretsListed(frozenset()), at=0)
    before.submit(JOB + "secrets: [TOKEN]\n", name="job")
    again = started_again(before)
    again.handle(SecretsListed(frozenset()), at=1)
    elapse(again, MINUTE)
    assert again.state.runs[RunId("job-1/0")].target is None
    again.handle(SecretChanged("c", secret, present=True, owner="me"), at=MINUTE)
    assert again.request is not None
    assert [run.id for run in again.request.snapshot.runs] == ["job-1/0"]
