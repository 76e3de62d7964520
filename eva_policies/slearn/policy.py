"""The rounds of the policy SLearn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Again, Plan, PolicyMemory
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.bins.placement_groups import grouped, waiting_runs
from eva_master.packing.toolkit import (
    FirstRoom,
    OwnNodes,
    PlannerCache,
    UnplacedGroup,
    build_plan,
    open_instances,
    place,
    without_interference,
)
from eva_master.ports import Planned, Policy, PolicyKind
from eva_policies.slearn.config import PRESETS, Config
from eva_policies.slearn.dags import is_later, is_small, own_ms, whole
from eva_policies.slearn.explanations import behind_others, explained
from eva_policies.slearn.memory import NAME, Memory, Sampled
from eva_policies.slearn.ordered_backing import Backed
from eva_policies.slearn.queues import PILOTS_QUEUE, Queued, lines
from eva_policies.slearn.sampling import chosen_of
from eva_policies.slearn.shares import weighed
from eva_policies.slearn.sizes import JobWork, is_thin, outgrows_ms, queue_of, work_of
from eva_wire.values.ids import MILLION, JobId, Millis

_LOOKED_AT_PART = 10
"""A job's place is looked at again once one in so many of its tasks that were left has ended."""
_SOONEST_MS = 1_000
_BEHIND = "a gang that comes first waits for room"


class SLearn:
    """Small jobs first, in queues by size that share the operator's own nodes.

    The size of a job is learned: a few of its tasks, its pilots, run first. Gangs do not stand in
    lines: one that waits for room holds up all jobs behind it. For whoever fits no node the
    cheapest instances with room are bought.

    With another policy behind it, that one buys and packs all instances, the operator's own nodes
    among them; nobody stands in lines, and the queues say who gets room first.

    Args:
        config: The options.
        back: The policy behind; `None` for none.
    """

    name = NAME

    def __init__(self, config: Config, back: Policy | None = None) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._behind = None if back is None else Backed(config, back)

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """State the queues; place tasks that do not stand in them."""
        config, now = self._config, snapshot.now_ms
        runs: dict[JobId, list[RunView]] = {}
        for run in snapshot.runs:
            runs.setdefault(run.job, []).append(run)
        before = Memory.read(memory)
        sorting = _Sorting(config, before)
        works = {job.id: work_of(job, runs.get(job.id, ()), now) for job in snapshot.jobs}
        if config.whole_dags:
            works = whole(snapshot.jobs, works)
        unsorted = [sorting.queued(job, works[job.id]) for job in snapshot.jobs]
        queued = sorted(unsorted, key=lambda it: it.order(config, now))
        nodes = OwnNodes(snapshot)
        shared = nodes.views if self._behind is None else snapshot.instances
        queued = weighed(queued, runs, shared)
        after = replace(sorting.memory(snapshot.jobs, now), back=before.back)
        if self._behind is not None:
            plan, back, asked = self._behind.plan(
                snapshot, queued, before.asked, before.back, partial(behind_others, config)
            )
            after = replace(after, back=back, asked=asked)
            times = (plan.again.at_ms, self._again_ms(queued, now))
            again = min((time for time in times if time is not None), default=None)
            plan = replace(plan, again=Again(again, _milestones(config, queued)))
            return plan, after.written()
        lined = {
            entry.job.id
            for entry in queued
            if _lines_up(entry.job, runs.get(entry.job.id, ()), nodes)
        }
        plan, behind = self._placed(snapshot, queued, lined, nodes)
        standing = [
            entry for entry in queued if entry.job.id in lined and entry.job.id not in behind
        ]
        if nodes.views:
            pool = nodes.pool("the operator's own nodes, whose room is given by queue")
            stated = lines(config, standing)
            plan = replace(plan, pools=(pool,), lines=explained(config, stated, standing))
        wishes = Again(self._again_ms(standing, now), _milestones(config, standing))
        return replace(plan, again=wishes), after.written()

    def _placed(
        self,
        snapshot: Snapshot,
        queued: Sequence[Queued],
        lined: set[JobId],
        nodes: OwnNodes,
    ) -> tuple[Plan, set[JobId]]:
        """Place tasks that do not stand in lines.

        Returns:
            The plan, and the jobs that no line gives room to, so that a gang before them gets it.
        """
        order = {entry.job.id: number for number, entry in enumerate(queued)}
        waits = sorted(waiting_runs(snapshot), key=lambda it: order[it[0].id])
        others = [
            group for job, runs in waits if job.id not in lined for group in grouped(job, runs)
        ]
        if not others and not self._config.explained:
            return Plan(), set()
        instances = open_instances(snapshot, self._cache)
        unplaced = place(instances, others, FirstRoom(instances, nodes).put)
        held_up = (
            unplaced_group.group
            for unplaced_group in unplaced
            if nodes.hold(unplaced_group.group.runs)
        )
        first = min((order[group.job.id] for group in held_up), default=None)
        behind = set[JobId]()
        if first is not None:
            behind = {entry.job.id for entry in queued[first + 1 :] if entry.job.id in lined}
        held = (group for job, runs in waits if job.id in behind for group in grouped(job, runs))
        unplaced += [UnplacedGroup(group, group.runs[0], _BEHIND) for group in held]
        occupants = without_interference if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants), behind

    def _again_ms(self, standing: Iterable[Queued], now: Millis) -> Millis | None:
        """When a job's place in the queues changes though no task has ended."""
        config = self._config
        times: list[int] = []
        for entry in standing:
            due = entry.overdue_ms(config)
            if due is not None and due > now:
                times.append(due)
            if config.by_attained and (at := _demoted_ms(config, entry, now)) is not None:
                times.append(at)
        return Millis(max(min(times), now + _SOONEST_MS)) if times else None


class _Sorting:
    """Sorts jobs into queues.

    Args:
        config: The settings.
        before: Memory of the round before.
    """

    def __init__(self, config: Config, before: Memory) -> None:
        self._config = config
        self._ratios = before.ratios
        self._sampled = dict(before.sampled)
        self._placed = dict(before.placed)

    def queued(self, job: JobView, work: JobWork) -> Queued:
        """The queue of a job."""
        config = self._config
        if config.estimator == "fifo":
            return Queued(job, work, 0)
        if config.by_attained:
            return Queued(job, work, queue_of(config, work.had_ms))
        if is_small(config, job):
            return Queued(job, work, 0)
        if pilots := self._pilots(job):
            return Queued(job, work, PILOTS_QUEUE, pilots)
        if work.whole_ms is None or work.left_ms is None:
            return Queued(job, work, min(PILOTS_QUEUE, config.queues - 1))
        if (sampled := self._sampled.get(job.id)) and not sampled.work_ms:
            self._sampled[job.id] = replace(sampled, work_ms=own_ms(job, work.whole_ms))
        if config.requeue:
            return Queued(job, work, queue_of(config, work.left_ms))
        queue = self._placed.setdefault(job.id, queue_of(config, work.whole_ms))
        return Queued(job, work, queue)

    def _pilots(self, job: JobView) -> tuple[int, ...]:
        """The pilots of a job that waits for them."""
        config = self._config
        if (
            not (config.samples and job.stands_in_line)
            or is_thin(config, job)
            or job.array.size < 2
        ):
            return ()
        estimated = job.progress.estimate is not None or config.estimator == "slearn-dag"
        if config.whole_dags and is_later(job) and estimated:
            return ()  # by other stages; its DAG is not to wait again
        sampled = self._sampled.get(job.id)
        if sampled is None:
            if job.progress.succeeded or (job.spec.array.pilots is None and self._sure(job)):
                return ()
            sampled = self._sampled[job.id] = Sampled(self._ratio(job), job.submitted_ms)
        if job.progress.pilots_left == 0 or job.progress.over == job.array.size:
            return ()
        return chosen_of(job, sampled.ratio_ppm, config.seed)

    def _ratio(self, job: JobView) -> int:
        """The share of a job's tasks that its pilots are; 0 if its user says how many there are."""
        if job.spec.array.pilots is not None:
            return 0
        ratio = self._config.ratio_ppm or self._ratios.next()
        self._ratios = self._ratios.begun()
        return ratio

    def _sure(self, job: JobView) -> bool:
        estimate = job.progress.estimate if self._config.estimator == "posterior" else None
        return estimate is not None and estimate.spread_ppm < self._config.sure_ppm

    def memory(self, jobs: Iterable[JobView], now: Millis) -> Memory:
        """Memory once all jobs are sorted, with the scores of jobs that ended."""
        present = {job.id for job in jobs}
        ratios = self._ratios
        for name, sample in self._sampled.items():
            if name not in present and sample.work_ms and sample.ratio_ppm:
                took_ms = now - sample.submitted_ms
                ratios = ratios.ended(sample.ratio_ppm, took_ms * MILLION // sample.work_ms)
        return Memory(
            {name: sample for name, sample in self._sampled.items() if name in present},
            {name: queue for name, queue in self._placed.items() if name in present},
            ratios,
        )


def _lines_up(job: JobView, runs: Sequence[RunView], nodes: OwnNodes) -> bool:
    """Whether a line gives a job's tasks their places: each of them fits a node."""
    return job.stands_in_line and not nodes.divided(runs)[1]


def _milestones(config: Config, queued: Iterable[Queued]) -> tuple[tuple[JobId, int], ...]:
    return tuple(_milestone(config, entry) for entry in queued if entry.job.array.size > 1)


def _milestone(config: Config, queued: Queued) -> tuple[JobId, int]:
    """Number of its done tasks at which a job's place is to be reconsidered."""
    job = queued.job
    if queued.pilots:
        rest = len(queued.pilots) if job.progress.pilots_left is None else job.progress.pilots_left
        return job.id, job.progress.over + max(1, rest)
    settled = not config.requeue or config.by_attained or config.estimator == "fifo"
    if settled or not queued.work.waiting:  # a job that has all that it wants is in no other's way
        return job.id, job.array.size
    rest = job.array.size - job.progress.over
    return job.id, job.progress.over + max(1, rest // _LOOKED_AT_PART)


def _demoted_ms(config: Config, queued: Queued, now: Millis) -> int | None:
    """When a job has had so much that it comes to the next queue, running as it does now."""
    edge = outgrows_ms(config, queued.work.had_ms)
    running = queued.job.array.size - queued.job.progress.over - queued.work.waiting
    if edge is None or running <= 0:
        return None
    return now + -(-(edge - queued.work.had_ms) // running)


def _reads(config: Config) -> tuple[str, ...]:
    """The optional keys of job files that it reads."""
    dag, sampled = ("dag",) if config.whole_dags else (), config.samples or config.thin_first
    return (*dag, "pilots") if sampled else dag


def _backed(config: Config, back: Policy) -> SLearn:
    """Make the policy of a `Config`, with another one that buys and packs instances for it."""
    return SLearn(config, back)


def _estimates(config: Config) -> Estimates:
    """Source of run-time estimates, by the settings."""
    return config.mode


def _refusals(config: Config) -> Iterator[tuple[str, str, str]]:
    """Why it cannot decide where nobody says how long jobs take."""
    if config.estimator == "oracle":
        yield (
            "estimator",
            "oracle knows how long every task takes, and nobody says that here",
            "have estimator: posterior, which learns it; oracle is for simulations in which "
            "durations are stated",
        )


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=SLearn,
    presets=PRESETS,
    gives_lines=True,
    reads=_reads,
    backed=_backed,
    estimates=_estimates,
    refusals=_refusals,
)
