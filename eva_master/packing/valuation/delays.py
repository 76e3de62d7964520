"""Durations of starts, stops and boots: measured ones, users' hints, or assumptions.

Only this module looks them up. Policies see the results in views and offerings.
"""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.learning.delays import Delay
from eva_master.learning.delays import DelayTable as Measured
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices.names import plain, voice_of
from eva_master.learning.voices.resolution import delay_of_others
from eva_master.model.catalog import InstanceType
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.job_view import Delays
from eva_master.model.values import replace
from eva_wire.values.ids import Workload


def booting(measured: Measured, machine: InstanceType, *, slowest: bool = False) -> InstanceType:
    """An instance type with measured times until an instance is ready, its first image included.

    Args:
        measured: Measurements of instance types.
        machine: The type, with assumed times.
        slowest: Whether to take times that few boots exceed, in place of expected ones.
    """
    look_up, name = measured.slowest if slowest else measured.lookup, machine.name
    acquisition_ms = look_up(Delay.ACQUISITION, name, hint=None, default=machine.acquisition_ms)
    setup_ms = look_up(Delay.SETUP, name, hint=None, default=machine.setup_ms)
    setup_ms += look_up(Delay.IMAGE, name, hint=None, default=0)
    return replace(machine, acquisition_ms=acquisition_ms, setup_ms=setup_ms)


def of_job(
    learned: Knowledge,
    spec: JobSpec,
    kinds: Iterable[TaskSpec],
    assumed: Delays,
    *,
    slowest: bool = False,
    of_others: bool = False,
) -> Delays:
    """Durations of a stop and of a start, which for a job are those of its slowest task.

    Args:
        learned: Measurements.
        spec: The job.
        kinds: Its tasks, or one of each kind.
        assumed: Delays where there is neither a hint nor a measurement.
        slowest: Whether to return durations that few changes exceed, in place of expected ones.
        of_others: Whether measurements of other owners take precedence over assumptions. No
            deadline may depend on these.
    """
    own = learned.of(voice_of(spec)).delays
    look_up = own.slowest if slowest else own.lookup

    def longest(kind: Delay, hint: int | None, default: int) -> int:
        return max(
            look_up(kind, name, hint=hint, default=_default(kind, name, hint, default))
            for name in names
        )

    def _default(kind: Delay, name: Workload, hint: int | None, default: int) -> int:
        if not of_others or hint is not None or (kind, name) in own.known:
            return default
        measured_ms = delay_of_others(learned.voices, kind, name)
        return default if measured_ms is None else measured_ms

    names = {plain(task.workload) for task in kinds}
    return Delays(
        longest(Delay.CHECKPOINT, spec.restarts.checkpoint_ms, assumed.checkpoint_ms),
        longest(Delay.START, spec.restarts.launch_ms, assumed.launch_ms),
    )
