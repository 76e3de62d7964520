"""Users see what became of a job's forks: in its explanation, and beside the run of each fork."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from eva_master.adapters.rpc.server import explain, views
from eva_master.control.state.store import State
from eva_master.model.forks.merging import Merging
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec

NOW = Millis(5_000)


def test_a_fork_that_was_left_out_says_so_in_the_explanation_and_beside_its_run() -> None:
    state = State(CATALOG)
    forked = replace(spec("net", kind=JobKind.ARRAY), total_steps=800)
    job = add_job(state, replace(forked, forking=replace(forked.forking, forks=2)))
    merging = Merging(merged=1, steps=20, took_ms=1_500, left_out=((0, "it holds no step"),))
    state.put_job(replace(state.jobs[job], merging=merging))
    place = add_instance(state)
    (run,) = state.members(job)
    run = run.to(RunState.STARTING, NOW).to(RunState.RUNNING, NOW)
    state.put_run(replace(run, attempt=1, instance=place, target=place))
    model = model_of(state)

    archive: Any = None
    history: Any = SimpleNamespace(explained=lambda number=None: None)
    told = explain.explain(history, explain.find(model, archive, "ada", job, NOW), NOW)
    assert list(told.forks)[:2] == [
        "up to 2 forks: one merge, 20 of 800 steps in them; the last one took 1.5 s",
        f"{run.id} was left out of the last merge: it holds no step",
    ]
    assert len(told.forks) > 2  # and why there is no second fork

    shown = views.job(model, model.record(job, NOW), NOW)
    assert [it.why for it in shown.tasks] == ["its last part was left out: it holds no step"]
