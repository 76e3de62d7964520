"""Users state priorities up to a limit; operators state any."""

from __future__ import annotations

from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.events import JobSubmitted
from eva_wire.values.errors import LimitExceeded
from eva_wire.values.ids import Millis
from tests.fakes.jobs import CATALOG, job


def _submit(machine: Machine, name: str, priority: int, *, operator: bool = False) -> Reply:
    event = JobSubmitted(name, job(name, 1, priority=priority), (), operator)
    actions = machine.handle([event], Millis(0))
    return next(it for it in actions if isinstance(it, Reply))


def test_who_may_state_which() -> None:
    machine = Machine(State(CATALOG), Settings(limits=Limits(priority=3)))
    assert _submit(machine, "a", 3).job == "a-1"
    refused = _submit(machine, "b", 4)
    assert refused.job is None
    assert isinstance(refused.error, LimitExceeded)
    assert "priority 4, and users may state 3" in refused.error.message
    assert "limits.priority" in refused.error.message
    assert refused.error.hint
    assert _submit(machine, "c", 10**6, operator=True).job == "c-2"
    assert len(machine.state.jobs) == 2


def test_without_a_limit_anybody_may_state_any() -> None:
    machine = Machine(State(CATALOG), Settings())
    assert _submit(machine, "a", 10**6).job == "a-1"
