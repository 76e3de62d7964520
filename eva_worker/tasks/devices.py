"""Assigns GPUs and CPUs of the instance to attempts."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml
import structlog

from eva_worker.errors import DevicesExhausted

_MILLI = 1000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of one attempt.

    Attributes:
        gpus: UUIDs of GPUs that it has for itself.
        cpus: CPUs of the instance that it has for itself.
        shared: A CPU and the thousandths of it that are this attempt's. Others may have the rest.
    """

    gpus: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    shared: tuple[tuple[int, int], ...] = ()

    @property
    def all_cpus(self) -> tuple[int, ...]:
        """Every CPU of the instance that the attempt may run on, sorted."""
        return tuple(sorted({*self.cpus, *(cpu for cpu, _ in self.shared)}))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Assignment:
        """Restore an assignment from the JSON of its fields."""
        return cls(
            tuple(document["gpus"]),
            tuple(document["cpus"]),
            tuple((cpu, milli) for cpu, milli in document["shared"]),
        )


class Devices:
    """The instance's devices, handed out and taken back.

    Whole CPUs are exclusive. A fraction of a CPU shares one with other fractions. So does a whole
    CPU if fractions are spread over too many CPUs to leave one free. Every set of demands that fits
    the instance in sum can therefore be started.

    Args:
        gpus: UUIDs of the GPUs.
        milli_cpus: Thousandths of a vCPU that tasks may use.
    """

    def __init__(self, gpus: Sequence[str], milli_cpus: int) -> None:
        self._gpus = tuple(gpus)
        self._milli_cpus = milli_cpus
        self._cpus = range(-(-milli_cpus // _MILLI))
        self._held: dict[object, Assignment] = {}

    def assign(self, holder: object, gpus: int, milli_cpus: int) -> Assignment:
        """Assign devices to a holder that has none.

        Raises:
            DevicesExhausted: Too few devices are free.
        """
        assert holder not in self._held, f"{holder} has devices"
        taken = {gpu for held in self._held.values() for gpu in held.gpus}
        free = [gpu for gpu in self._gpus if gpu not in taken]
        if gpus > len(self._gpus):
            raise DevicesExhausted(
                f"{gpus} GPUs wanted, the worker found {len(self._gpus)}; `nvidia-smi -L` lists "
                f"what the instance's driver has"
            )
        if gpus > len(free):
            raise DevicesExhausted(f"{gpus} GPUs wanted, {len(free)} of {len(self._gpus)} free")
        room = self._milli_cpus - sum(_milli(held) for held in self._held.values())
        if milli_cpus > room:
            raise DevicesExhausted(f"{milli_cpus} milli-CPUs wanted, {room} free")
        cpus, shared = self._take_cpus(milli_cpus)
        self._held[holder] = Assignment(tuple(free[:gpus]), cpus, shared)
        return self._held[holder]

    def restore(self, holder: object, assignment: Assignment) -> None:
        """Note devices that a holder was assigned by an earlier agent."""
        self._held[holder] = assignment

    def release(self, holder: object) -> None:
        """Free the devices of a holder, if it has any."""
        self._held.pop(holder, None)

    def _take_cpus(self, milli_cpus: int) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        load: dict[int, int] = {}
        for held in self._held.values():
            for cpu, milli in held.shared:
                load[cpu] = load.get(cpu, 0) + milli
        exclusive = {cpu for held in self._held.values() for cpu in held.cpus}
        free = [cpu for cpu in self._cpus if cpu not in exclusive and cpu not in load]
        whole = min(milli_cpus // _MILLI, len(free))
        cpus, free = tuple(free[:whole]), free[whole:]
        shared: dict[int, int] = {}
        rest = milli_cpus - whole * _MILLI
        while rest > 0:
            part = min(rest, _MILLI)
            rest -= part
            others = {cpu: milli for cpu, milli in load.items() if cpu not in shared}
            roomy = [cpu for cpu, milli in others.items() if milli + part <= _MILLI]
            if roomy:
                cpu = max(roomy, key=lambda cpu: (others[cpu], -cpu))
            elif free:
                cpu = free.pop(0)
            elif others:
                cpu = min(others, key=lambda cpu: (others[cpu], cpu))
            else:
                # The task already has a share of every shared CPU; its part stays counted in the
                # sums.
                cpu = min(shared)
            shared[cpu] = shared.get(cpu, 0) + part
        return cpus, tuple(sorted(shared.items()))


def _milli(assignment: Assignment) -> int:
    return len(assignment.cpus) * _MILLI + sum(milli for _, milli in assignment.shared)


def discover_gpus() -> tuple[str, ...]:
    """UUIDs of the machine's NVIDIA GPUs; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.debug("no GPUs", reason=str(error))
        return ()
    try:
        uuids = [_uuid(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(uuid for uuid in uuids if uuid is not None)
    finally:
        pynvml.nvmlShutdown()


def _uuid(index: int) -> str | None:
    """A GPU's UUID; `None` if it is broken, so that the others can still be used."""
    try:
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError as error:
        _log.error("GPU left out", index=index, reason=str(error))
        return None


def nominal_gpus(instance: str, count: int) -> tuple[str, ...]:
    """Made-up UUIDs for the GPUs of an emulated instance, the same every time."""
    return tuple(
        f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{instance}/{number}')}" for number in range(count)
    )


class CpuMap:
    """Maps the instance's CPUs to those of the machine.

    Args:
        instance: Id of the instance. An emulated instance derives its first CPU from it, so that
            several on one machine do not all use the machine's first CPU.
        count: CPUs of the instance.
        real: CPUs of the machine, those of this process if not given.
        emulated: Whether others share the machine.
    """

    def __init__(
        self, instance: str, count: int, *, real: Sequence[int] = (), emulated: bool = False
    ) -> None:
        self._real = tuple(real) or tuple(sorted(os.sched_getaffinity(0)))
        digest = hashlib.sha256(instance.encode()).digest()
        self._offset = int.from_bytes(digest[:8]) if emulated else 0
        if count > len(self._real) and not emulated:
            _log.warning("fewer CPUs than stated", stated=count, found=len(self._real))

    def real(self, cpus: Sequence[int]) -> tuple[int, ...]:
        """The machine's CPUs for some CPUs of the instance, sorted, without duplicates."""
        count = len(self._real)
        return tuple(sorted({self._real[(cpu + self._offset) % count] for cpu in cpus}))
