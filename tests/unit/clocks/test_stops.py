"""How long a container may run on that is to stop, whatever is done to the clocks."""

from __future__ import annotations

import pytest

from eva_worker.runtime.docker import stops

HOUR_MS = 3_600_000
NOON_NS = 1_800_000_000_000_000_000


class Machine:
    """Clocks that are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up_ms, self.boot, self.wall_ns = 5_000, "boot-1", NOON_NS
        monkeypatch.setattr(stops.lease, "now_ms", lambda: self.up_ms)
        monkeypatch.setattr(stops.lease, "boot_id", lambda: self.boot)
        monkeypatch.setattr(stops.time, "time_ns", lambda: self.wall_ns)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("by_ms", [-3 * HOUR_MS, 2 * HOUR_MS])
def test_the_grace_is_what_passes(machine: Machine, by_ms: int) -> None:
    stop = stops.within(30_000)
    machine.wall_ns += by_ms * 1_000_000
    machine.up_ms += 10_000
    assert stops.left_ms(stop) == 20_000
    machine.up_ms += 20_001
    assert stops.left_ms(stop) == 0


def test_after_another_boot_there_is_nothing_to_wait_for(machine: Machine) -> None:
    stop = stops.within(30_000)
    machine.boot = "boot-2"
    assert stops.left_ms(stop) == 0


@pytest.mark.parametrize(
    ("ahead_ms", "left"), [(30_000, 30_000), (-5, 0), (10**13, 86_400_000)], ids=str
)
def test_a_stop_of_an_earlier_agent_has_a_time_of_day(
    machine: Machine, ahead_ms: int, left: int
) -> None:
    assert stops.left_ms({"deadline_ms": machine.wall_ns // 1_000_000 + ahead_ms}) == left
