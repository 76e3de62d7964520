"""Users are told of instances that have emptied, and of what these cost."""

from __future__ import annotations

from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.shown import costs
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog
from eva_wire.values.ids import MILLIS_PER_HOUR, InstanceId
from eva_wire.values.states import InstanceState
from tests.fakes.emptied.worlds import (
    BOOT_MS,
    FIRST,
    MINUTE_MS,
    Idle,
    Scripted,
    World,
    ended_ms,
    entered,
)
from tests.fakes.jobs import SMALL, job


def world() -> World:
    """A job that a policy holds waits beside an instance whose task ends at about 6 min."""
    made = Scripted(Idle("b-"), SMALL)
    made.come(job("a", 2, minutes=5))
    made.come(job("other", 2, minutes=60))
    made.come(job("b", 2, minutes=1), at_min=1)
    return made


def test_a_user_is_told_for_which_job_an_empty_instance_stays_and_until_when() -> None:
    cluster = world()
    cluster.play(6)
    assert views.instance(cluster.machine.published(), cluster.state.instances[FIRST]).empty_ms == 0
    cluster.play(7)
    since = ended_ms(cluster, "a-1/0")
    told = views.instance(cluster.machine.published(), cluster.state.instances[FIRST])
    assert (told.empty_ms, told.kept_for) == (since, "b-3")
    assert since + BOOT_MS <= told.kept_until_ms <= since + BOOT_MS + MINUTE_MS // 6
    cluster.play(15)
    told = views.instance(cluster.machine.published(), cluster.state.instances[FIRST])
    assert (told.empty_ms, told.kept_for, told.kept_until_ms) == (0, "", 0)


def test_the_bill_tells_what_empty_instances_have_cost_that_stayed() -> None:
    cluster = world()
    cluster.play(7)
    model, now = cluster.machine.published(), cluster.timeline.now()
    since = ended_ms(cluster, "a-1/0")
    assert costs.bill(model, now).kept_micro_usd == SMALL.price * (now - since) // MILLIS_PER_HOUR
    cluster.play(15)
    stayed = entered(cluster, InstanceState.TERMINATING) - since
    bill = costs.bill(cluster.machine.published(), cluster.timeline.now())
    assert bill.kept_micro_usd == SMALL.price * stayed // MILLIS_PER_HOUR
    assert bill.kept_micro_usd <= bill.idle_micro_usd
    restored = State.restored(catalog(), cluster.journal.load(cluster.timeline.now()))
    assert restored.totals.kept == SMALL.price * stayed


def catalog() -> Catalog:
    return (SMALL,)


def test_an_instance_that_goes_at_once_costs_nothing_in_addition() -> None:
    cluster = World(SMALL)
    cluster.come(job("a", 2, minutes=5))
    cluster.finish()
    assert InstanceId("i00001") in cluster.state.instances
    assert cluster.state.totals.kept == 0
