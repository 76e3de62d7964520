"""Injects faults into a simulated cloud, from a seed: refusals, failures, interruptions, noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.cloud import SimulatedCloud, SimulatedInstance
from eva_lab.simulator.cluster.work import SimulatedAttempt
from eva_lab.simulator.cluster.workers import SimulatedWorkers
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, InstanceId, OfferingId


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults to inject; none by default.

    Attributes:
        refusals: Share of all launches that the cloud refuses for lack of capacity.
        stock: By instance type, how many the cloud has. The scheduler learns of it only from
            refusals; limits that it knows are in the catalog.
        failures_per_hour: Rate at which each running instance dies without notice.
        interruptions: Factor on the interruption rates of the offerings. Offerings without a rate
            are never interrupted.
        notice_ms: Time from the notice of an interruption to the end.
        checkpoint_ms: Interval of the checkpoints that programs write by themselves; 0 if they
            write one only when stopped. Work after the last one is lost with its instance.
        noise: Standard deviation of measured throughput, relative to the true one.
    """

    refusals: float = 0.0
    stock: Mapping[str, int] = field(default_factory=dict)
    failures_per_hour: float = 0.0
    interruptions: float = 0.0
    notice_ms: int = 120_000
    checkpoint_ms: int = 1_800_000
    noise: float = 0.0


class FaultInjector:
    """Injects faults into a simulated cloud and its workers.

    Each kind of fault has its own random generator, so that one does not affect another.

    Args:
        faults: The faults to inject.
        seed: Seed of all random generators.
        timeline: The virtual time.
        cloud: Refuses launches and loses machines on order.
        workers: Get notices of interruptions, and report noisily.
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

    def _watch(self, machine: SimulatedInstance) -> None:
        """Decide when a running machine fails or is interrupted, if it is not terminated before."""
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
        self._timeline.after(notice, lambda: self._cloud.fail(instance, reclaimed=True))

    def _told(self, attempt: SimulatedAttempt, done_ms: float) -> float:
        """The work that a task reports: the true work since the last report, with noise."""
        factor = max(0.0, 1.0 + self._faults.noise * self._noise.standard_normal())
        attempt.told_ms += (done_ms - attempt.seen_ms) * factor
        attempt.seen_ms = done_ms
        return attempt.told_ms
