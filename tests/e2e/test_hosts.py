"""Jobs in containers on hosts that are really apart: packed, moved, cut off and killed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import PROGRAMS, Line, until
from tests.e2e.conftest import Hosts
from tests.fakes.hosts.cluster import HostCluster

pytestmark = pytest.mark.hosts

EXAMPLE = Path(__file__).parents[2] / "examples" / "ring_digits"
MIB = 1024 * 1024
LEARNED, STEPS = 30, 240

# A large instance costs less than two small ones, but more than one.
LARGE = {"cpus": 4, "memory": "8GiB", "price": "$0.20/h"}
SMALL = {"cpus": 2, "memory": "4GiB", "price": "$0.11/h"}
SOON = {"acquisition": "1s", "setup": "2s"}


def steps(lines: list[Line]) -> list[int]:
    return [line.step for line in lines if line.event == "step"]


def starts(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.event == "start"]


def check_once(lines: list[Line]) -> None:
    """The task never ran twice at a time: attempts follow each other, in lock and line."""
    order = [line.attempt for line in lines]
    assert order == sorted(order)
    assert not any(line.event == "overlap" for line in lines)


@pytest.mark.explore
@pytest.mark.waits
def test_jobs_that_disturb_each_other_are_kept_on_different_hosts(make_hosts: Hosts) -> None:
    cluster = make_hosts(
        settings={
            "round_period": "5s",
            "round_min_interval": "1s",
        },
        catalog={"types": {"e2e.large": LARGE | SOON, "e2e.small": SMALL | SOON}, "only": ["e2e"]},
        read_rate=8 * MIB,
    )
    # A mebibyte a step: alone each makes eight steps a second, and together half of that.
    reader = {
        "envs": {"READ_BYTES": str(MIB)},
        "throughput": 7,
        "delays": {"checkpoint": "1s", "launch": "1s"},
    }
    jobs = [cluster.submit(name, workload="reader", **reader) for name in ("one", "two")]
    cluster.until_running(*jobs)
    (shared,) = {cluster.task(job).instance for job in jobs}
    assert cluster.instances()[shared].type == "e2e.large"
    for job in jobs:
        until(lambda job=job: 0 < cluster.task(job).normalised < 0.75, f"{job} is slow")

    until(lambda: any(cluster.task(job).attempt == 2 for job in jobs), "one of them moves")
    cluster.until_running(*jobs)
    until(lambda: len({cluster.task(job).instance for job in jobs}) == 2, "they are apart")
    for job in jobs:
        until(lambda job=job: cluster.task(job).normalised > 0.75, f"{job} is fast")
    cluster.finish(*jobs)
    cluster.until_ended(*jobs)
    cluster.until_empty()

    for job in jobs:
        lines = cluster.lines(job)
        check_once(lines)
        assert steps(lines) == list(range(1, lines[-1].step + 1)), "nothing is lost or done again"
        assert lines[-1].event == "end"
        moves = [line for line in starts(lines) if line.attempt > 1]
        assert all(line.step > 0 for line in moves), "each goes on from its checkpoint"
        assert cluster.task(job).moves == len(moves)
        assert cluster.job(job).failures == 0
    check_bill(cluster)
    until(lambda: not cluster.leftovers(), "nothing is left of the hosts")
    cluster.stop()
    check_accounts(cluster)


@pytest.fixture
def gang_workdir(tmp_path: Path) -> Path:
    """The example, and the program that keeps a record of it."""
    shutil.copytree(EXAMPLE, tmp_path / "gang", ignore=shutil.ignore_patterns("__pycache__"))
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, tmp_path / "gang")
    return tmp_path / "gang"


def learned(cluster: HostCluster, gang: str) -> int:
    """The first generation with enough steps, 0 while there is none; rank 0 alone publishes."""
    published = enumerate(cluster.lines(gang, event="checkpoint"), start=1)
    return next((number for number, line in published if line.step >= LEARNED), 0)


# For so long that the members notice by themselves; and so shortly that none has when the host
# dies, so that it is the master who stops the one that waits for the other.
@pytest.mark.long
@pytest.mark.waits
@pytest.mark.parametrize("cut_s", [pytest.param(60.0, marks=pytest.mark.explore), 5.0])
def test_a_gang_goes_on_elsewhere_when_the_host_of_a_member_is_cut_off_and_dies(
    make_hosts: Hosts, gang_workdir: Path, cut_s: float
) -> None:
    # All that concerns lost workers is as in production: three minutes until one is given up.
    # So the cut alone replaces nothing.
    cluster = make_hosts(
        catalog={"types": {"e2e.small": SMALL}, "only": ["e2e"]}, objects_in_s3=True
    )
    gang = cluster.submit(
        "gang",
        workdir=gang_workdir,
        run="exec python3 gang.py",
        tasks=2,
        total_steps=STEPS,
        throughput=None,
        # Threads that wait for each other are slow where several tasks share a CPU. Steps are so
        # slow that the gang is not over before the test has seen what it waits for.
        envs={
            "STEPS": str(STEPS),
            "STEP_S": "0.15",
            "CHECKPOINT_S": "0.5",
            "OMP_NUM_THREADS": "1",
        },
        grace_period="2s",
    )
    cluster.until_running(gang)
    places = [task.instance for task in cluster.job(gang).tasks]
    assert len(set(places)) == 2
    generation = until(lambda: learned(cluster, gang), "a checkpoint is worth going back to")
    until(lambda: cluster.task(gang).generation >= generation, "it is stored")

    cluster.cut(places[1])
    began = time.monotonic()
    while time.monotonic() < began + cut_s:
        assert all(len(starts(cluster.lines(gang, index))) == 1 for index in (0, 1))
        time.sleep(1)
    assert cluster.instances()[places[1]].state == "ready"
    cluster.machine(places[1]).kill()
    cluster.until_ended(gang)
    cluster.until_empty()

    check_gang(cluster, gang, places[1])
    check_bill(cluster)
    until(lambda: not cluster.leftovers(), "nothing is left of the hosts")
    cluster.stop()
    check_accounts(cluster)


def check_gang(cluster: HostCluster, gang: str, lost: str) -> None:
    """It ran twice, and the second time it went on from a checkpoint of the first."""
    members = [cluster.lines(gang, index) for index in (0, 1)]
    for lines in members:
        check_once(lines)
        assert [line.attempt for line in starts(lines)] == [1, 2]
    # Both of the second attempt begin at one step, at which rank 0 had published.
    begun = {starts(lines)[1].step for lines in members}
    (resumed,) = begun
    first = [line for line in members[0] if line.attempt == 1]
    assert resumed in {line.step for line in first if line.event == "checkpoint"}
    assert resumed >= LEARNED
    for lines in members:
        before = {it.step: it.loss for it in lines if it.event == "step" and it.attempt == 1}
        after = {it.step: it.loss for it in lines if it.event == "step" and it.attempt == 2}
        assert list(before) == list(range(1, len(before) + 1))
        assert list(after) == list(range(resumed + 1, STEPS + 1))
        # The same parameters and the same batches: what is done again gives the same curve.
        again = before.keys() & after.keys()
        assert [after[step] for step in again] == pytest.approx([before[step] for step in again])
        assert after[resumed + 1] < 0.8 * before[1]
        # A member may have been cut off in the very step after which the first one published.
        last = min(resumed, max(before))
        assert after[resumed + 1] == pytest.approx(before[last], rel=0.3)
        assert after[STEPS] < after[resumed + 1]
    # Nobody of the second attempt began before everybody of the first was gone for certain.
    begins = min(line.at_ms for lines in members for line in lines if line.attempt == 2)
    gone_ms = cluster.records()[lost].gone_ms
    assert gone_ms is not None
    assert begins >= gone_ms
    assert begins >= max(line.at_ms for lines in members for line in lines if line.attempt == 1)
