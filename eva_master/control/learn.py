"""From measured windows to what the cluster knows about its workloads."""

from __future__ import annotations

from eva_master.control.progress import company, standalone_rate
from eva_master.control.state import State
from eva_master.learning.attribution import attribute
from eva_master.learning.colocation import observe, recorded
from eva_master.model.ids import MILLION
from eva_master.model.records import TaskCopy
from eva_master.model.states import CopyState

_NOISE_PPM = 20_000
"""A window that differs by less from what is recorded is not news; else every window would be,
and each would call for a new plan."""


def from_window(state: State, copy: TaskCopy) -> bool:
    """Learn from a complete window of a running copy.

    A window alone teaches the stand-alone throughput, where the user stated none. A window in
    company teaches how the company slows the workload down, once its stand-alone throughput is
    known; in a gang that is attributed to one member (see `learning.attribution`).

    Returns:
        Whether it is news that a plan may depend on.
    """
    members = _running_members(state, copy)
    entries = [company(state, member) for member in members]
    alone = standalone_rate(state, copy)
    if not any(others for _, others in entries):
        return _standalone(state, copy)
    if not alone:
        return False
    observed = max(1, min(MILLION, round(copy.progress.rate / alone * MILLION)))
    lesson = attribute(state.throughput, entries, observed)
    if lesson is None:
        return False
    entry, value = lesson
    before = recorded(state.throughput, entry)
    if before is not None and abs(before - value) < _NOISE_PPM:
        return False
    return state.set_learned(observe(state.throughput, entry, value), state.standalone)


def _standalone(state: State, copy: TaskCopy) -> bool:
    assert copy.instance is not None
    family = state.instances[copy.instance].offering.type.family
    task = state.task(copy)
    if task.throughput_on(family) is None:
        rates = state.standalone.observe(task.workload, family, copy.progress.rate)
        state.set_learned(state.throughput, rates)
    return False  # a plan depends on it only through what it makes of later windows


def _running_members(state: State, copy: TaskCopy) -> list[TaskCopy]:
    gang = state.jobs[copy.job].spec.kind == "gang"
    members = state.members(copy.job) if gang else (copy,)
    return [member for member in members if member.state is CopyState.RUNNING]
