"""Memory as workers measure it: what offerings and instances have for tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.ec2.memory import offered_mib
from eva_master.control.machine import Machine
from eva_master.control.measure.memory import fit
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.planning.validate_plan import reconcile
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.changes import Changes
from eva_master.model.events import (
    CancelRequested,
    InstanceGone,
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    RunReport,
    WorkerRegistered,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState


@pytest.mark.parametrize(
    ("listed", "offered"),
    [
        (4_096, 3_388),  # 3788.8 of it, and 400 are the system's
        (393_216, 363_324),
        (512, 73),
        (256, 32),
    ],
)
def test_less_is_offered_than_is_listed(listed: int, offered: int) -> None:
    assert offered_mib(listed) == offered


def catalog(mib: int = 1_000) -> Catalog:
    machine = InstanceType("c7i.large", Family("c7i"), Resources(0, 2_000, mib))
    return tuple(Offering(machine, Price(1), zone=zone) for zone in ("a", "b"))


def test_the_least_that_was_measured_counts() -> None:
    sizes: MemorySizes | None = MemorySizes.of(catalog())
    assert sizes is not None
    assert sizes.wanted("c7i.large") == 1_000
    assert sizes.heard("c7i.large", 0) is None, "nobody has measured"
    for heard, wanted in ((1_100, 1_100), (1_098, 1_098), (1_101, 1_098), (1_098, 1_098)):
        sizes = sizes.heard("c7i.large", heard) or sizes
        assert sizes.wanted("c7i.large") == wanted
    # Another image, or another generation of the machine.
    assert (sizes.heard("c7i.large", 1_110) or sizes).wanted("c7i.large") == 1_110
    assert sizes.heard("g5.xlarge", 1_000) is None, "not in the catalog"


@pytest.mark.parametrize(("heard", "wanted"), [(1, 800), (10**9, 1_110)])
def test_what_cannot_be_does_not_count(heard: int, wanted: int) -> None:
    sizes = MemorySizes.of(catalog()).heard("c7i.large", heard)
    assert sizes is not None
    assert sizes.wanted("c7i.large") == wanted


def test_all_offerings_of_a_type_change_and_nothing_else_does() -> None:
    state = State(catalog())
    before = state.catalog
    fit(state)
    assert state.catalog is before
    learned = state.sizes.heard("c7i.large", 950)
    assert learned is not None
    state.remember(learned)
    fit(state)
    assert [it.type.capacity for it in state.catalog] == [Resources(0, 2_000, 950)] * 2
    assert [it.zone for it in state.catalog] == ["a", "b"]


C = Family("c")
HALF, WHOLE = Resources(0, 500, 500), Resources(0, 1_000, 1_000)
KIND = Offering(InstanceType("c.1", C, WHOLE), Price(1_000_000), zone="za")
RUN, ONE = RunId("job-1/0"), InstanceId("i00001")


def running(demand: Resources, measured: int) -> Machine:
    """A job runs, on an instance whose worker has measured something as it registered."""
    it = Machine(State((KIND,)), Settings(round_gap_ms=0))
    task = TaskSpec(Workload("w"), Program("true"), ((C, demand),))
    asked = it.handle([JobSubmitted("command", JobSpec("job", "me", (task,)))], Millis(0))
    plan = Plan((NewInstance(0, KIND),), (Assign(RUN, 0),))
    it.handle([PlanReady(request(asked).round, plan, None)], Millis(1))
    it.handle([InstanceUp(ONE, Millis(10))], Millis(10))
    it.handle([WorkerRegistered(ONE, 1, WHOLE, (), measured_mib=measured)], Millis(20))
    report = RunReport(RUN, 1, Phase.RUNNING)
    it.handle([WorkerRegistered(ONE, 2, WHOLE, (report,), measured_mib=measured)], Millis(30))
    assert it.state.runs[RUN].state is RunState.RUNNING
    return it


def request(actions: list[Action]) -> RequestPlan:
    (found,) = (it for it in actions if isinstance(it, RequestPlan))
    return found


def sizes(state: State) -> tuple[int, int]:
    """Memory of the offering, and of the instance."""
    (offering,) = state.catalog
    instance = state.instances[ONE].offering
    return offering.type.capacity.memory_mib, instance.type.capacity.memory_mib


@pytest.mark.parametrize(("measured", "size"), [(950, 950), (1_050, 1_050), (0, 1_000)])
def test_what_a_worker_measures_applies_at_once_and_after_a_restart(
    measured: int, size: int
) -> None:
    it = running(HALF, measured)
    assert sizes(it.state) == (size, size)
    written = it.state.take_changes()
    restored = State.restored((KIND,), Changes(values=written.documents()))
    fit(restored)
    assert restored.catalog[0].type.capacity.memory_mib == size


def test_a_task_that_runs_keeps_its_place_when_its_machine_turns_out_smaller() -> None:
    it = running(WHOLE, 950)
    assert sizes(it.state) == (1_000, 1_000)
    # What every policy sees of it fits, so none has to move it.
    now = snapshot(it.state, Millis(400_000), Settings())
    assert [view.offering.type.capacity for view in now.instances] == [WHOLE]
    assert [offering.type.capacity for offering in now.catalog] == [WHOLE]
    kept = reconcile(now, Plan(entries=(Assign(RUN, ONE),)))
    assert not kept.dropped
    # Nor has it when its instance is lost: what it was promised can be bought.
    it.handle([InstanceGone(ONE, Millis(10), Millis(500_000))], Millis(500_000))
    assert it.state.catalog[0].type.capacity == WHOLE


def test_when_nothing_needs_the_listed_size_any_more_nobody_gets_it() -> None:
    it = running(WHOLE, 950)
    it.handle([CancelRequested("command-2", it.state.runs[RUN].job)], Millis(400_000))
    it.handle([InstanceGone(ONE, Millis(10), Millis(500_000))], Millis(500_000))
    assert it.state.catalog[0].type.capacity.memory_mib == 950


def test_a_catalog_with_less_memory_leaves_what_runs_alone() -> None:
    """As that of a release that offered all that is printed on the box."""
    it = running(WHOLE, 0)
    written = it.state
    smaller = replace(KIND, type=replace(KIND.type, capacity=Resources(0, 1_000, 800)))
    restored = State.restored(
        (smaller,),
        Changes(
            jobs=tuple(written.jobs.values()),
            runs=tuple(written.runs.values()),
            instances=tuple(written.instances.values()),
            instance_accounts=tuple(written.instance_accounts.values()),
            job_accounts=tuple(written.job_accounts.values()),
        ),
    )
    fit(restored)
    assert sizes(restored) == (1_000, 1_000)
