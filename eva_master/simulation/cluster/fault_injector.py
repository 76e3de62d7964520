"""What goes wrong in a simulated cloud, from a seed: refusals, failures, interruptions, noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from eva_master.model.ids import MILLION, MILLIS_PER_HOUR, InstanceId, OfferingId
from eva_master.simulation.cluster.clock import Timeline
from eva_master.simulation.cluster.cloud import Machine, SimulatedCloud
from eva_master.simulation.cluster.work import Attempt
from eva_master.simulation.cluster.workers import SimulatedWorkers


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong; nothing does by default.

    Attributes:
        refusals: Part of all launches that the cloud refuses for want of capacity.
        stock: By instance type, how many the cloud has at most. The scheduler learns of it from
            refusals alone; a limit that it knows is a matter of the catalog.
        failures_per_hour: Of each instance while it is up: it dies without notice.
        interruptions: How many times more often instances are interrupted than their offering
            says; those of which it says nothing never are.
        notice_ms: From the notice of an interruption to the end.
        checkpoint_ms: From one checkpoint that a program writes by itself to the next, 0 for
            none but when it is stopped; with an instance that dies goes what came after the last.
        noise: Standard deviation of measured throughput, as a part of the true one.
    """

    refusals: float = 0.0
    stock: Mapping[str, int] = field(default_factory=dict)
    failures_per_hour: float = 0.0
    interruptions: float = 0.0
    notice_ms: int = 120_000
    checkpoint_ms: int = 1_800_000
    noise: float = 0.0


class FaultInjector:
    """Brings faults upon a simulated cloud and its workers.

    Each kind has a source of randomness of its own, so that one changes nothing about another.

    Args:
        faults: Which.
        seed: Of all of them.
        timeline: The virtual time.
        cloud: To be told when to refuse, and which machines to take away.
        workers: To be told of interruptions, and how to report.
    """

    def __init__(
        self,
        faults: Faults,
        seed: int,
        *,
        timeline: Timeline,
        cloud: SimulatedCloud,
        workers: SimulatedWorkers,
    ) -> None:
        sources = np.random.SeedSequence(seed).spawn(4)
        refusals, failures, interruptions, noise = map(np.random.default_rng, sources)
        self._faults = faults
        self._timeline = timeline
        self._cloud = cloud
        self._workers = workers
        self._refusals = refusals
        self._failures = failures
        self._interruptions = interruptions
        self._noise = noise
        cloud.sold_out = self._sold_out
        cloud.watch = self._watch
        if faults.noise > 0:
            workers.told = self._told

    def _sold_out(self, offering: OfferingId) -> bool:
        name = offering.partition("@")[0]
        limit = self._faults.stock.get(name)
        if limit is not None and self._cloud.count(name) >= limit:
            return True
        return bool(self._faults.refusals and self._refusals.random() < self._faults.refusals)

    def _watch(self, machine: Machine) -> None:
        """A machine is up: decide when it ends, if its owner does not end it before."""
        rate = self._faults.failures_per_hour
        if rate > 0:
            life = self._life_ms(self._failures, rate)
            self._timeline.after(life, lambda: self._cloud.fail(machine.instance))
        rate = self._faults.interruptions * machine.offering.interruptions_ppm / MILLION
        if rate > 0:
            life = self._life_ms(self._interruptions, rate)
            self._timeline.after(life, lambda: self._interrupt(machine.instance))

    @staticmethod
    def _life_ms(source: np.random.Generator, per_hour: float) -> int:
        return round(source.exponential(MILLIS_PER_HOUR / per_hour))

    def _interrupt(self, instance: InstanceId) -> None:
        notice = self._faults.notice_ms
        self._workers.interrupt(instance, self._timeline.now() + notice)
        self._timeline.after(notice, lambda: self._cloud.fail(instance))

    def _told(self, attempt: Attempt, done_ms: float) -> float:
        """What a task says that it has done: what it did since the last time, more or less."""
        factor = max(0.0, 1.0 + self._faults.noise * self._noise.standard_normal())
        attempt.told_ms += (done_ms - attempt.seen_ms) * factor
        attempt.seen_ms = done_ms
        return attempt.told_ms
