"""Members of a gang in groups, for readers: looked at one by one."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.state.derived.gang_places import GangParts, KeyOf, Likeness
from eva_master.control.state.records import Records
from eva_master.model.records import TaskRun


def parts_of(records: Records, members: Iterable[TaskRun], key_of: KeyOf) -> GangParts:
    """Members of a gang that have an instance; see `GangPlaces.parts`."""
    alike: dict[Likeness, list[TaskRun]] = {}
    kinds: dict[object, TaskRun] = {}
    for run in members:
        if run.instance is None:
            continue
        family, task = records.instances[run.instance].offering.type.family, records.task(run)
        alike.setdefault((id(task), family, run.batch_ppm), []).append(run)
        runs = records.company.runs_on(run.id, run.instance)
        kinds.setdefault((run.instance, task.workload, runs), run)
    keys = set(map(key_of, kinds.values()))
    accompanied = any(others for _, others in keys)
    return GangParts([(runs[0], len(runs)) for runs in alike.values()], keys, accompanied)
