"""The stage that launches nothing for tasks that end before it is up.

A task that runs, and ends as stated or measured before a new instance is up and the task has moved
there, stays where it is. Waiting tasks are never held back for that.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from eva_master.control.limits import Unit, units
from eva_master.model.ids import RunId
from eva_master.model.planning.plan import Assign, Duplicate, Plan, pooled
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.valuation.ending import in_time_ms


def without_late_launches(plan: Plan, present: Snapshot) -> Plan:
    """A plan without the new instances all of whose tasks would have ended before.

    Tasks of elastic gangs whose size changes, and on instances that go, are left to the policy.

    Args:
        plan: The policy's.
        present: The partition as it is.
    """
    if not plan.launches:
        return plan
    boots = {launch.key: launch.offering.type.boot_ms for launch in plan.launches}
    comers: defaultdict[int, list[Unit]] = defaultdict(list)
    kept = units(plan, present)
    for unit in kept:
        for key in _bought(unit) & boots.keys():
            comers[key].append(unit)
    late = _Late(plan, present)
    stay: set[RunId] = set()
    for key in sorted(comers.keys() - {*pooled(plan)}):
        if all(late.ends_before(unit, boots[key]) for unit in comers[key]):
            stay.update(entry.run for unit in comers[key] for entry in unit.entries)
    if not stay:
        return plan
    entries = tuple(entry for entry in plan.entries if entry.run not in stay)
    used = {entry.on for entry in entries if isinstance(entry, Assign)} | {*pooled(plan)}
    entries = tuple(
        entry
        for entry in entries
        if not (isinstance(entry, Duplicate) and entry.on in boots and entry.on not in used)
    )
    launches = tuple(launch for launch in plan.launches if launch.key in used)
    return without_late_launches(replace(plan, launches=launches, entries=entries), present)


class _Late:
    """Units that end before an instance is up."""

    def __init__(self, plan: Plan, present: Snapshot) -> None:
        self._views = {run.id: run for run in present.runs}
        self._live = {view.id for view in present.instances}
        self._resized = {entry.job for entry in plan.sizes}
        self._now = present.now_ms

    def ends_before(self, unit: Unit, boot_ms: int) -> bool:
        """Whether a unit runs, and ends before an instance is up and it has moved there."""
        if unit.job.id in self._resized:
            return False
        for run in (self._views[entry.run] for entry in unit.entries):
            within = in_time_ms(run, unit.job, self._now)
            if run.instance not in self._live or within is None or within >= boot_ms:
                return False
        return True


def _bought(unit: Unit) -> set[int]:
    return {entry.on for entry in unit.entries if isinstance(entry.on, int)}
