"""Kill matrix: a host that nobody reaches for a while, neither the master nor the object store."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.e2e.kill_matrix import matrix
from tests.e2e.kill_matrix.matrix import TWO_EACH

pytestmark = [pytest.mark.hosts, pytest.mark.waits]


@pytest.mark.long
@pytest.mark.parametrize(
    "cut_s", [5.0, *(pytest.param(it, marks=pytest.mark.explore) for it in (20.0, 60.0))]
)
def test_cut_that_is_waited_for(make_hosts: Hosts, cut_s: float) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, objects_in_s3=True)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)

    cluster.cut(instance)
    known = cluster.lines(going_on)
    cluster.finish(ending)
    until(lambda: cluster.lines(ending, event="end"), "one task ends on the other side")

    def unheard() -> bool:
        """Whether the master knows of nothing that has happened on the other side since."""
        assert cluster.job(ending).state == "running"
        checkpoints = [line for line in known if line.event == "checkpoint"]
        told = cluster.task(going_on)
        return told.steps <= known[-1].step and told.generation <= len(checkpoints)

    matrix.hold(cut_s, unheard, "nobody hears of the other side")
    assert cluster.lines(going_on)[-1].step > known[-1].step + cut_s
    cluster.mend(instance)

    until(lambda: cluster.job(ending).finished_ms, "the end is told")
    now = cluster.lines(going_on)
    until(lambda: cluster.task(going_on).steps >= now[-1].step, "steps are told again")
    saved = [line for line in now if line.event == "checkpoint"]
    until(lambda: cluster.task(going_on).generation >= len(saved), "checkpoints are stored again")
    assert matrix.container_of(cluster, going_on) == container
    assert list(cluster.instances()) == [instance]
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    matrix.stop(cluster)
    with cluster.journal() as journal:
        (ended,) = (run for run in journal.load().runs if run.job == ending)
    states = [state for state, _ in ended.history]
    assert states == ["waiting", "starting", "running", "succeeded"], "was told once"


@pytest.mark.explore
def test_cut_that_is_not(make_hosts: Hosts) -> None:
    cluster = make_hosts(
        settings=matrix.settings(lost_worker_timeout="5s"), catalog=TWO_EACH, objects_in_s3=True
    )
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    stored = {job: cluster.task(job).generation for job in jobs}

    cluster.cut(instance)
    cluster.finish(ending)

    # Nobody will ever hear how it ended, so it is done again from its last checkpoint on.
    until(lambda: cluster.lines(ending, event="end"), "one task ends on the other side")
    for job in jobs:
        until(lambda job=job: cluster.task(job).attempt == 2, f"a second attempt of {job}")
    cluster.until_steps(going_on)
    matrix.end(cluster, *jobs)
    for job in jobs:
        matrix.check_resumed(cluster, job, stored[job])
        matrix.check_replaced_when_gone(cluster, job, instance)
    matrix.stop(cluster)
