"""What starts, stops and launches take is measured, and what policies reckon with from then on."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.measure import learn
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.delays import Delay
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Job, TaskRun
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, LARGE, MEDIUM, Script, job
from tests.fakes.learned.lessons import lessons_of

SETTINGS = Settings(checkpoint_ms=8_000, launch_ms=47_000)


def _world(script: Script, **delays: int) -> SimulatedCluster:
    measured = {"fetch_ms": 4_000, "start_ms": 25_000, "stop_ms": 13_000, "report_ms": 5_000}
    return SimulatedCluster(
        CATALOG, script, settings=SETTINGS, delays=EqualDelays(**{**measured, **delays})
    )


def _picture(world: SimulatedCluster) -> Snapshot:
    return snapshot(world.state, world.timeline.now(), SETTINGS)


def _until_steps(world: SimulatedCluster, name: str) -> None:
    def steps() -> bool:
        run = world.state.runs.get(RunId(name))
        return run is not None and run.state == "running" and run.progress.steps > 0

    assert world.run(steps, limit_ms=3_600_000)


def _moved(world: SimulatedCluster, script: Script, name: str, place: str, moves: int = 1) -> None:
    script.wanted[name] = place
    script.offerings[place] = LARGE
    world.submit(job(f"nudge-{place}", 1, minutes=0.01))
    assert world.run(lambda: world.state.runs[RunId(name)].moves == moves, limit_ms=3_600_000)
    assert world.run(lambda: world.state.runs[RunId(name)].state == "running")


def test_a_move_teaches_how_long_its_workload_takes_to_stop_and_start() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    world.submit(job("other", 2, minutes=60))
    _until_steps(world, "a-1/0")
    world.submit(replace(job("a", 2, minutes=60), name="like-a"))
    assert world.run(lambda: JobId("like-a-3") in world.state.jobs)
    before = next(view for view in _picture(world).jobs if view.id == "a-1")
    # To the first report of a step, which comes 5 s after the program's start.
    assert (before.delays.checkpoint_ms, before.delays.launch_ms) == (8_000, 30_000)

    _moved(world, script, "a-1/0", "bigger")
    after = {view.id: view for view in _picture(world).jobs}
    assert after[JobId("a-1")].delays.checkpoint_ms == 13_000
    assert after[JobId("like-a-3")].delays.checkpoint_ms == 13_000
    assert after[JobId("other-2")].delays.checkpoint_ms == 8_000


def test_a_start_that_was_heard_of_late_teaches_nothing() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    assert world.run(lambda: bool(world.state.runs) and _state(world, "a-1/0") == "starting")
    world.workers.cut(next(iter(world.state.live)), back_after_ms=100_000)
    assert world.run(lambda: world.state.runs[RunId("a-1/0")].progress.steps > 300)
    assert not [name for kind, name in _known(world) if kind is Delay.START]


def _state(world: SimulatedCluster, name: str) -> str:
    return world.state.runs[RunId(name)].state


def test_a_job_that_nothing_happens_to_is_pictured_with_what_another_one_taught() -> None:
    state = State(CATALOG)
    for number in (1, 2):
        name = JobId(f"a-{number}")
        history = (("pending", 0),)
        state.put_job(Job(name, job("a", 2), Millis(0), history, command=str(number)))
        state.put_run(TaskRun(RunId(f"{name}/0"), name, 0, (("waiting", 0),)))
    seen = []
    for measured in (None, 20_000, 20_100):
        if measured:
            latency = (Delay.START, measured)
            learn.from_latency(state, state.runs[RunId("a-1/0")], latency, Millis(1))
        seen += [view.delays.launch_ms for view in snapshot(state, Millis(1), SETTINGS).jobs]
    assert seen == [47_000, 47_000, 20_000, 20_000, 20_000, 20_000]


def test_a_job_s_slowest_task_counts() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    _until_steps(world, "a-1/0")
    _moved(world, script, "a-1/0", "bigger")
    tasks = (job("a", 1).tasks[0], job("b", 1).tasks[0])
    world.submit(replace(job("both", 1), tasks=tasks, kind=JobKind.ARRAY))
    assert world.run(lambda: JobId("both-3") in world.state.jobs)
    both = next(view for view in _picture(world).jobs if view.id == "both-3")
    assert both.delays.checkpoint_ms == 13_000


def test_a_hint_holds_until_there_are_three_measurements() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60, checkpoint_ms=2_000))
    _until_steps(world, "a-1/0")
    seen = []
    for moves, place in enumerate(("p", "q", "r"), 1):
        _moved(world, script, "a-1/0", place, moves)
        seen.append(next(v for v in _picture(world).jobs if v.id == "a-1").delays.checkpoint_ms)
    assert seen == [2_000, 2_000, 13_000]


def test_a_stop_without_a_checkpoint_teaches_nothing() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    _until_steps(world, "a-1/0")
    world.workers.work(RunId("a-1/0")).publishes = False
    _moved(world, script, "a-1/0", "bigger")
    assert not [name for kind, name in _known(world) if kind is Delay.CHECKPOINT]


def _known(world: SimulatedCluster) -> list[tuple[Delay, str]]:
    return [*world.state.learned.delays.known, *lessons_of(world.state).delays.known]


def test_an_instance_teaches_how_long_its_type_takes() -> None:
    slow = replace(MEDIUM, type=replace(MEDIUM.type, acquisition_ms=9_876, setup_ms=61_234))
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = SimulatedCluster((slow, LARGE), script, settings=SETTINGS)
    world.submit(job("a", 2, minutes=60))
    _until_steps(world, "a-1/0")
    assert {(kind, name) for kind, name in _known(world) if name == "c.4"} == {
        (Delay.ACQUISITION, "c.4"),
        (Delay.SETUP, "c.4"),
    }
    picture = _picture(world)
    assert {view.offering.type.name for view in picture.instances} == {"c.4"}
    known = {offering.type.name: offering.type for offering in picture.catalog}
    assert (known["c.4"].acquisition_ms, known["c.4"].setup_ms) == (9_900, 61_000)
    assert all(view.offering.type == known["c.4"] for view in picture.instances)
    assert known["c.8"] == LARGE.type
    # What was bought is on record as it was sold: a measurement is not an instance's property.
    bought = next(iter(world.state.instances.values()))
    assert bought.offering.type == slow.type


def test_what_was_learned_outlives_the_master() -> None:
    script = Script({"a-1/0": "box"}, {"box": MEDIUM})
    world = _world(script)
    world.submit(job("a", 2, minutes=60))
    _until_steps(world, "a-1/0")
    _moved(world, script, "a-1/0", "bigger")
    world.submit(job("nudge-again", 1, minutes=0.01))
    assert world.run(lambda: JobId("nudge-again-3") in world.state.jobs)
    assert world.run(lambda: world.state.jobs[JobId("nudge-again-3")].state == "succeeded")
    learned = world.state.learned
    taught = lessons_of(world.state).delays.known[Delay.CHECKPOINT, "a"]
    assert taught.value == 13_000
    world.restart()
    kept = world.state.learned
    assert lessons_of(world.state).delays.known[Delay.CHECKPOINT, "a"] == taught
    assert kept.delays.known[Delay.SETUP, "c.4"] == learned.delays.known[Delay.SETUP, "c.4"]
