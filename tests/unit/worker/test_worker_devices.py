"""Who has which GPU and CPU."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_worker.errors import DevicesExhausted
from eva_worker.tasks.devices import Assignment, CpuMap, Devices, discover_gpus, nominal_gpus

GPUS = nominal_gpus("i-1", 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 3), st.integers(0, 5000)),
        st.tuples(st.just("stop"), st.integers(0, 20), st.just(0)),
    ),
    max_size=40,
)


def milli(assignment: Assignment) -> int:
    return 1000 * len(assignment.cpus) + sum(part for _, part in assignment.shared)


@given(steps=STEPS, capacity=st.integers(1, 9000))
def test_nobody_has_what_another_has(steps: list[tuple[str, int, int]], capacity: int) -> None:
    devices = Devices(GPUS, capacity)
    held: dict[int, Assignment] = {}
    for number, (what, first, demand) in enumerate(steps):
        if what == "stop":
            if held:
                holder = sorted(held)[first % len(held)]
                devices.release(holder)
                del held[holder]
            continue
        gpus_left = len(GPUS) - sum(len(a.gpus) for a in held.values())
        milli_left = capacity - sum(milli(a) for a in held.values())
        if first > gpus_left or demand > milli_left:
            with pytest.raises(DevicesExhausted):
                devices.assign(number, first, demand)
            continue
        # Whatever fits by its sums can be started.
        held[number] = devices.assign(number, first, demand)
        assert len(held[number].gpus) == first
        assert milli(held[number]) == demand
        gpus = [gpu for a in held.values() for gpu in a.gpus]
        assert len(gpus) == len(set(gpus))
        exclusive = [cpu for a in held.values() for cpu in a.cpus]
        assert len(exclusive) == len(set(exclusive))
        assert not set(exclusive) & {cpu for a in held.values() for cpu, _ in a.shared}
        assert set(exclusive) <= set(range(-(-capacity // 1000)))
    for holder in held:
        devices.release(holder)
    everything = devices.assign("last", len(GPUS), capacity)
    assert set(everything.gpus) == set(GPUS)
    assert len(everything.cpus) == capacity // 1000


@given(demands=st.lists(st.integers(1, 4), max_size=8))
def test_whole_cpus_are_never_shared(demands: list[int]) -> None:
    devices = Devices((), 1000 * sum(demands))
    given_out = [devices.assign(n, 0, 1000 * need).cpus for n, need in enumerate(demands)]
    assert [len(cpus) for cpus in given_out] == demands
    assert sorted(cpu for cpus in given_out for cpu in cpus) == list(range(sum(demands)))


def test_fractions_share_one_cpu() -> None:
    devices = Devices((), 2000)
    halves = [devices.assign(n, 0, 500) for n in range(4)]
    assert [half.all_cpus for half in halves] == [(0,), (0,), (1,), (1,)]


def test_restored_assignments_are_taken() -> None:
    before = Devices(GPUS, 4000)
    kept = before.assign("a", 2, 1500)
    after = Devices(GPUS, 4000)
    after.restore("a", kept)
    other = after.assign("b", 2, 2000)
    assert not set(other.gpus) & set(kept.gpus)
    assert not set(other.cpus) & set(kept.all_cpus)


def test_nominal_gpus_are_the_same_every_time_and_nobody_elses() -> None:
    assert nominal_gpus("i-1", 4) == GPUS
    assert not set(nominal_gpus("i-2", 4)) & set(GPUS)


def test_stated_cpus_are_real_cpus_unless_emulated() -> None:
    assert CpuMap("i-1", 4, real=(4, 5, 6, 7)).real((0, 3)) == (4, 7)


@given(instance=st.text(max_size=8), count=st.integers(1, 64), real=st.integers(1, 8))
def test_emulated_cpus_spread_evenly(instance: str, count: int, real: int) -> None:
    cpus = CpuMap(instance, count, real=range(10, 10 + real), emulated=True)
    assert len(cpus.real(range(count))) == min(count, real)
    assert set(cpus.real(range(count))) <= set(range(10, 10 + real))


def test_emulated_instances_do_not_all_begin_at_one_cpu() -> None:
    firsts = {CpuMap(f"i-{n}", 1, real=range(4), emulated=True).real((0,)) for n in range(32)}
    assert len(firsts) == 4


def test_gpus_are_found_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    down: list[bool] = []
    for name, stand_in in {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlShutdown": lambda: down.append(True),
    }.items():
        monkeypatch.setattr(pynvml, name, stand_in)
    assert discover_gpus() == ("GPU-0", "GPU-1")
    assert down


def test_a_broken_gpu_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    for name, stand_in in {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlShutdown": lambda: None,
    }.items():
        monkeypatch.setattr(pynvml, name, stand_in)
    assert discover_gpus() == ("GPU-1",)


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert discover_gpus() == ()
