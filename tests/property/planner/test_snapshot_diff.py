"""A snapshot that is sent piece by piece arrives whole."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.snapshot_diff import Sender, SnapshotDiff, SnapshotReceiver
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, run_id
from tests.fakes.snapshots import offer, task

OFFERING = offer("c", (0, 4, 8), 0.2)
TASK = task(any=(0, 1, 1))

Content = dict[int, tuple[int, int | None]]
"""Job -> its priority and its instance."""
contents: st.SearchStrategy[Content] = st.dictionaries(
    st.integers(0, 12), st.tuples(st.integers(0, 2), st.none() | st.integers(0, 3)), max_size=8
)


def _picture(content: Content, before: Snapshot | None) -> Snapshot:
    """Views that are as before are the same objects, and a job keeps its spec."""
    jobs, runs, instances = [], [], {}
    specs = {job.id: job.spec for job in before.jobs} if before else {}
    for number, (priority, place) in sorted(content.items()):
        job, host = JobId(f"j{number:02}"), None if place is None else InstanceId(f"i{place}")
        view = job_view(job, JobKind.GANG, (run_id(job, 0),), Millis(0), priority)
        jobs.append(replace(view, spec=specs.get(job, view.spec)))
        runs.append(RunView(run_id(job, 0), job, TASK, host, pinned=False, running=False))
        if host is not None:
            instances[host] = InstanceView(host, OFFERING, (), ready=True)
    kept = (
        {view: view for view in (*before.jobs, *before.runs, *before.instances)} if before else {}
    )
    return Snapshot(
        Millis(0 if before is None else before.now_ms + 1),
        (OFFERING,),
        tuple(kept.get(view, view) for view in jobs),
        tuple(kept.get(view, view) for view in runs),
        tuple(kept.get(view, view) for _, view in sorted(instances.items())),
    )


def _arrived(diff: SnapshotDiff) -> SnapshotDiff:
    parcel: FastPickle[SnapshotDiff] = pickle.loads(pickle.dumps(FastPickle(diff)))
    return parcel.content


@given(st.lists(contents, max_size=6), st.sets(st.integers(0, 5)))
def test_every_picture_arrives_as_it_was_sent(story: list[Content], forgotten: set[int]) -> None:
    sender, receiver, picture = Sender(), SnapshotReceiver(), None
    for number, content in enumerate(story):
        picture = _picture(content, picture)
        if number in forgotten:
            sender.forget()
            receiver = SnapshotReceiver()
        assert receiver.snapshot(_arrived(sender.diff(picture))) == picture


def test_only_what_changed_is_sent() -> None:
    sender = Sender()
    content: Content = {number: (0, number % 4) for number in range(10)}
    first = _picture(content, None)
    whole = sender.diff(first)
    assert (len(whole.jobs), len(whole.runs), len(whole.instances)) == (10, 10, 4)
    again = sender.diff(replace(first, now_ms=Millis(9)))
    assert (again.jobs, again.runs, again.instances) == ((), (), ())
    del content[3]
    changed = sender.diff(_picture({**content, 5: (1, 1)}, first))
    assert [view.id for view in changed.jobs] == ["j05"]
    assert changed.dropped[:2] == (("j03",), ("j03/0",))


def test_a_picture_that_adds_to_one_that_never_came_is_refused() -> None:
    sender, receiver, picture = Sender(), SnapshotReceiver(), _picture({1: (0, 0)}, None)
    sender.diff(picture)
    lost = sender.diff(picture)
    with pytest.raises(LookupError):
        receiver.snapshot(lost)
    sender.forget()
    assert receiver.snapshot(sender.diff(picture)) == picture


def test_the_spec_of_a_job_is_sent_once() -> None:
    sender, receiver = Sender(), SnapshotReceiver()
    first = _picture({1: (0, None)}, None)
    assert receiver.snapshot(_arrived(sender.diff(first))) == first
    (job,) = first.jobs
    second = replace(first, jobs=(replace(job, priority=7),))
    diff = _arrived(sender.diff(second))
    assert [view.spec.name for view in diff.jobs] == [""]
    assert receiver.snapshot(diff) == second
    renamed = replace(second, jobs=(replace(job, spec=replace(job.spec, partition="ml")),))
    assert receiver.snapshot(_arrived(sender.diff(renamed))) == renamed
    sender.forget()
    assert receiver.snapshot(_arrived(sender.diff(renamed))) == renamed
