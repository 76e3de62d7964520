"""Active jobs that share a name: who may, and which one the name stands for."""

from __future__ import annotations

from eva_master.control.machine import Machine
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.job import JobSpec
from eva_wire.values.errors import DuplicateName
from eva_wire.values.ids import JobId, Millis
from tests.fakes.models import model_of
from tests.unit.control.test_limits import OFFERING, TASK

NOW = Millis(1_000)


class Cluster:
    """A control loop, and what readers see of it."""

    def __init__(self, state: State | None = None) -> None:
        self.machine = Machine(state or State((OFFERING,)), Settings(round_gap_ms=0))
        self.publisher = Publisher(self.machine.state, Settings())
        self.commands = 0

    def submit(
        self, name: str, *, owner: str = "ann", unique: bool = False, command: str = ""
    ) -> Reply:
        self.commands += 1
        spec = JobSpec(name, owner, (TASK,), unique=unique)
        event = JobSubmitted(command or f"c{self.commands}", spec)
        return self._reply(event)

    def cancel(self, job: str) -> None:
        self._reply(CancelRequested(f"cancel-{job}", JobId(job), "ann"))

    def _reply(self, event: JobSubmitted | CancelRequested) -> Reply:
        return next(it for it in self.machine.handle([event], NOW) if isinstance(it, Reply))

    def meant(self, name: str, owner: str = "ann") -> str | None:
        """The job that readers take a name for; the model goes on from the one before."""
        job = self.publisher.publish(NOW).find(owner, name)
        return job and job.id

    def sharing(self, name: str, owner: str = "") -> list[str]:
        return [it.id for it in self.publisher.publish(NOW).active_named(name, owner)]


def test_several_active_jobs_may_have_one_name() -> None:
    cluster = Cluster()
    assert [cluster.submit("t").job for _ in range(3)] == ["t-1", "t-2", "t-3"]
    assert cluster.sharing("t", "ann") == ["t-3", "t-2", "t-1"]


def test_a_repeated_submission_makes_no_second_job_of_the_name() -> None:
    cluster = Cluster()
    assert cluster.submit("t", command="once").job == "t-1"
    assert cluster.submit("t", command="once").job == "t-1"
    assert cluster.sharing("t") == ["t-1"]


def test_a_name_means_the_newest_active_job_or_else_the_newest() -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.submit("t")
    assert cluster.meant("t") == "t-3"
    cluster.cancel("t-3")
    assert cluster.meant("t") == "t-2"
    cluster.cancel("t-1")
    assert cluster.meant("t") == "t-2"
    cluster.cancel("t-2")
    assert cluster.meant("t") == "t-3"
    cluster.submit("t")
    assert cluster.meant("t") == "t-4"
    assert cluster.meant("t", "ben") is None


def test_names_of_others_and_names_that_begin_alike_are_kept_apart() -> None:
    cluster = Cluster()
    for name, owner in (("t", "ann"), ("t", "ben"), ("t-", "ann"), ("t1", "ann"), ("s", "ann")):
        cluster.submit(name, owner=owner)
    assert cluster.sharing("t", "ann") == ["t-1"]
    assert cluster.sharing("t", "ben") == ["t-2"]
    assert cluster.sharing("t") == ["t-2", "t-1"]
    assert cluster.sharing("t", "eve") == []


def test_a_unique_job_is_the_only_active_one_of_its_name() -> None:
    """Be it the first or the second of the two that says so; other owners have their own names."""
    for first, second in ((True, True), (True, False), (False, True)):
        cluster = Cluster()
        assert cluster.submit("t", unique=first).error is None
        refused = cluster.submit("t", unique=second)
        assert (refused.job, type(refused.error)) == (None, DuplicateName)
        assert "t-1" in str(refused.error)
        assert cluster.submit("t", owner="ben", unique=True).error is None
        assert cluster.submit("s", unique=True).error is None
        cluster.cancel("t-1")
        assert cluster.submit("t", unique=True).error is None


def test_a_restored_master_knows_who_shares_a_name() -> None:
    before = Cluster()
    before.submit("t")
    before.submit("t")
    before.submit("u", unique=True)
    state = State.restored((OFFERING,), Changes(jobs=tuple(before.machine.state.jobs.values())))
    assert [it.id for it in model_of(state).active_named("t")] == ["t-2", "t-1"]
    after = Cluster(state)
    after.commands = before.commands
    assert isinstance(after.submit("u").error, DuplicateName)
    assert isinstance(after.submit("t", unique=True).error, DuplicateName)
