"""One run of a world: what it submits and orders, and what cloud and workers see of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from eva_lab.simulator.cluster import work as simulated
from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Checkpoint, Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.partition import Placement
from eva_master.app.config import MasterConfig
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.model.actions import CloudAction, LaunchInstance, TerminateInstance
from eva_master.model.catalog import Catalog, Offering, Purchase, base_family
from eva_master.model.events import (
    CancelRequested,
    ClosingDown,
    DrainRequested,
    Event,
    JobSubmitted,
    MoveRequested,
    NodeRequested,
    ResumeRequested,
    SecretChanged,
    SecretsListed,
    SuspendRequested,
    Tick,
)
from eva_master.model.fleet.nodes import NodeVerb
from eva_master.model.job import JobSpec
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.secrets import Holder, SecretName
from eva_master.ports import Policy
from eva_wire.values.bounds import ASKS_FOR_RETRY
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, OfferingId, RunId
from eva_wire.values.states import TERMINAL_JOB
from tests.worlds.listening import Asked, Heard, Watched
from tests.worlds.records import Attempt, Fate, Headed, Launch, Ordered, Preview, Story, Told
from tests.worlds.world import Job, Order, World

START_MS, STOP_MS, FETCH_MS, ENDING_MS = 5_000, 3_000, 2_000, 1_000
_REPORT_MS = 5_000
_NOTICE_MS = 120_000
_MOST_TURNS = 40_000
_PLANNING_MS = 100
_PARTS = (0.25, 0.5, 0.75)
"""When users ask how long a task still takes."""


class Life(SimulatedCluster):
    """One run of a world, which is the log of attempts and the cloud's watcher as well."""

    def __init__(
        self,
        world: World,
        story: Story,
        config: MasterConfig,
        catalog: Catalog,
        settings: Settings,
        policy: Policy | Mapping[str, Policy],
        *,
        trace: bool,
    ) -> None:
        self._world, self._story, self._config, self._trace = world, story, config, trace
        self._chosen = policy
        self._open: dict[tuple[str, int], Attempt] = {}
        self._restarts = 0
        self._secrets: set[SecretName] = set()
        self._sold_out_until = 0
        self._seen: set[tuple[str, str]] = set()
        self._events = 0
        self._foreseen: list[tuple[Preview, JobId, int, object]] = []
        self._headed: dict[RunId, Headed] = {}
        self._asked: dict[JobId, tuple[int, object]] = {}
        """When a plan was first asked for that is about a job, and what was known then."""
        super().__init__(
            catalog,
            policy,
            settings=settings,
            delays=EqualDelays(FETCH_MS, START_MS, STOP_MS, _REPORT_MS),
            truth=lambda _workload, others: world.shared ** len(others),
            work_of=self._work,
            speed_of=self._speed,
            terminate_ms=ENDING_MS,
            attempt_log=self,
        )
        self.cloud.sold_out = self._sold_out
        for name, kind in world.nodes.items():
            story.launches[name] = Launch(
                name,
                kind,
                "",
                0,
                spot=False,
                owned=True,
                partition="",
                asked_ms=0,
                up_ms=0,
                ready_ms=0,
                disk_gib=kind.disk_gib,
            )
        if any(order.verb in ("set", "unset") for order in world.orders):
            self.inbox.post(SecretsListed(frozenset()))
        for job in world.jobs:
            self._at(job.at_s, lambda it=job: self._submit(it))
        for order in world.orders:
            self._at(order.at_s, lambda it=order: self._carry_out_order(it))

    def _at(self, at_s: float, happens: Callable[[], None]) -> None:
        self.timeline.after(round(at_s * 1000), happens)

    # -- the run ---------------------------------------------------------------------------------

    def lived(self, until_ms: int | None = None) -> Story:
        """Let it go on until everything has ended, or has had the time to.

        Args:
            until_ms: The time at which it stops before that.
        """
        story, limit = self._story, 2 * serial_ms(self._world, self._story.gap_ms) + 600_000
        limit = limit if until_ms is None else min(limit, until_ms)
        turns = closed = 0
        while turns < _MOST_TURNS and self.timeline.now() < limit:
            turns += 1
            if self._ended():
                if self._empty():
                    story.quiet = True
                    break
                if not closed and story.pools:
                    self.inbox.post(ClosingDown())
                    closed = 1
            self.loop.step()
            self._look()
            if self._restarts:
                self._restarts = 0
                self.restart()
                self.inbox.post(SecretsListed(frozenset(self._secrets)))
        story.end_ms = self.timeline.now()
        self._settle()
        return story

    def _ended(self) -> bool:
        arrived = len(self._story.fates) == len(self._world.jobs)
        return arrived and not self.state.active and self.timeline.now() >= self._last_order_ms()

    def _last_order_ms(self) -> int:
        return round(max((it.at_s for it in self._world.orders), default=0) * 1000)

    def _empty(self) -> bool:
        live = any(not self.state.instances[it].owned for it in self.state.live)
        return not live and not self.cloud.existing()

    def _settle(self) -> None:
        """Write down what is known at the end alone."""
        bill = self.cloud.bill()
        for launch in self._story.bought():
            machine = bill.get(InstanceId(launch.id))
            if machine is not None:
                launch.up_ms, launch.gone_ms = machine.up_ms, machine.gone_ms
            record = self.state.instances.get(InstanceId(launch.id))
            if record is not None:
                launch.why_gone = record.reason
        for fate in self._story.fates.values():
            job = self.state.jobs.get(JobId(fate.id)) if fate.id else None
            if job is not None:
                fate.state = job.state.value

    def _look(self) -> None:
        """Note what has changed in this turn: ends of jobs, and for people all else."""
        now = self.timeline.now()
        for fate in self._story.fates.values():
            if not fate.id or fate.ended_ms is not None:
                continue
            job = self.state.jobs.get(JobId(fate.id))
            if job is not None and job.state in TERMINAL_JOB:
                fate.ended_ms = now
                self._tell(f"{fate.name} {job.state.value}")
        self._note_headed()
        if self._trace:
            for run in self.state.runs.values():
                said = run.waiting_for
                if said and (run.id, said) not in self._seen:
                    self._seen.add((run.id, said))
                    self._tell(f"{self._name_of(run.id)} waits: {said}")

        self._compare_previews()

    def _note_headed(self) -> None:
        """Note to which instances tasks that wait are on their way."""
        now, headed = self.timeline.now(), self._headed
        for run in self.state.runs.values():
            there, place = headed.get(run.id), run.target if run.instance is None else None
            if there is not None and there.instance != place:
                headed.pop(run.id).to_ms = now
                there = None
            if there is None and place is not None:
                name = self.state.jobs[run.job].spec.name
                headed[run.id] = Headed(run.id, name, run.index, str(place), now)
                self._story.headed.append(headed[run.id])

    def _tell(self, said: str) -> None:
        if self._trace:
            self._story.told.append((self.timeline.now(), said))

    # -- jobs ------------------------------------------------------------------------------------

    def _job(self, run: str) -> Job:
        return self._world.job(self.state.jobs[self.state.runs[RunId(run)].job].spec.name)

    def _name_of(self, run: str) -> str:
        job, _, rest = run.rpartition("/")
        return f"{self.state.jobs[JobId(job)].spec.name}/{rest}"

    def _work(self, run: RunId) -> Work:
        job, index = self._job(run), self.state.runs[run].index
        # A second run of a task that takes long is as quick as the others.
        seconds = min(job.seconds) if "+" in run and job.array else job.work_s(index)
        return Work(
            total_ms=round(seconds * 1000),
            steps_per_s=job.rate,
            failures=[ASKS_FOR_RETRY] * (0 if "+" in run else job.failures),
            tells_steps=job.tells_steps,
            tells_total=job.tells_total,
        )

    def _speed(self, run: RunId, family: Family) -> float:
        return self._job(run).speeds.get(base_family(family), 1.0)

    def _submit(self, job: Job) -> None:
        fate = self._story.fates[job.name] = Fate(job.name, submitted_ms=self.timeline.now())
        try:
            spec = self._parsed(job)
        except EvaError as error:
            fate.refused, fate.ended_ms = error.message, self.timeline.now()
            self._tell(f"{job.name} is refused: {error.message}")
            self.inbox.post(Tick())
            return
        self._tell(f"{job.name} is submitted: {json.dumps(job.keys, default=str)}")
        self._preview(job)
        self._events += 1
        self.inbox.post(JobSubmitted(job.name, spec, operator=True))

    def _parsed(self, job: Job, *, preview: bool = False) -> JobSpec:
        model = self.machine.published()

        def found(names: Any) -> dict[str, JobId]:
            jobs = {it.spec.name: it.id for it in self.state.jobs.values()}
            return {name: jobs[name] for name in names if name in jobs}

        return parse_job(
            yaml.safe_dump(job.file),
            file_name=f"{job.name}.yaml",
            owner=job.owner,
            tenant=self._config.tenant_rules.of(job.owner),
            catalog=self.state.catalog,
            workdir=None,
            containers=False,
            find=None if preview else found,
            spec_of=lambda name: self.state.jobs[name].spec,
            placement=Placement(model.partitions, model.partition_of, anywhere=True),
        )

    def _make_loop(self, machine: Machine) -> Loop:
        return Loop(
            machine,
            clock=self.timeline,
            inbox=self.inbox,
            journal=self.journal,
            cloud=Watched(self.cloud, self._clouded),
            workers=self.workers,
            planner=Asked(self._planner, self._note_asked),
            checkpoints=self.checkpoints,
            replies=Heard(self.answers, self._answered),
        )

    def _answered(self, reply: Any) -> None:
        fate = self._story.fates.get(reply.command)
        if fate is None:
            if reply.error is not None:
                self._tell(f"{reply.command} is refused: {reply.error.message}")
            return
        if reply.error is not None:
            fate.refused, fate.ended_ms = reply.error.message, self.timeline.now()
            self._tell(f"{fate.name} is refused: {reply.error.message}")
        else:
            fate.id = reply.job or ""

    # -- what users are told ---------------------------------------------------------------------

    def _preview(self, job: Job) -> None:
        """Foresee what a submission will do, if it does not have to wait for other jobs."""
        before = [self._story.fates[name] for name in job.after if name in self._story.fates]
        if any(it.ended_ms is None for it in before):
            return
        spec = self._parsed(job, preview=True)
        preview = self.machine.published().preview(spec, self.timeline.now())
        plan = None
        if preview.question is not None:
            asked = self._chosen
            policy = asked[preview.partition] if isinstance(asked, Mapping) else asked
            plan, _ = policy.plan(preview.question, preview.memory)
        told = preview.foreseen(plan)
        places = {}
        for run in told.runs:
            place = told.places.get(run)
            if isinstance(place, int):
                places[run] = f"new {told.offerings[place].id}"
            elif place is not None:
                places[run] = str(place)
            elif not told.suspends:
                places[run] = "waits"
        made = Preview(spec.name, self.timeline.now(), dict(places))
        self._story.previews.append(made)
        # The submission itself is the next event.
        self._foreseen.append((made, preview.job, self._events + 1, self._known()))
        self._tell(f"{spec.name} is foreseen: {made.places}")

    def _note_asked(self, snapshot: Snapshot) -> None:
        for job in snapshot.jobs:
            self._asked.setdefault(job.id, (self.timeline.now(), self._known()))

    def _known(self) -> object:
        """Instances that are there, and what was measured: no preview foresees more of either."""
        state = self.state
        there = frozenset((name, state.instances[name].state) for name in state.live)
        return there, state.figures.resolved.throughput, state.figures.resolved.standalone

    def _compare_previews(self) -> None:
        """Note what became of jobs once the first plan about them is adopted."""
        for entry in list(self._foreseen):
            made, name, events, known = entry
            if self._events != events:
                self._foreseen.remove(entry)
                continue
            asked = self._asked.get(name)
            if asked is None or self.timeline.now() < asked[0] + _PLANNING_MS:
                continue
            self._foreseen.remove(entry)
            runs = [it for it in self.state.members(name) if not it.extra]
            for run in runs if known == asked[1] else ():
                made.became[run.id] = "waits" if run.target is None else self._place(run.target)

    def _place(self, name: InstanceId) -> str:
        launch = self._story.launches.get(name)
        instance = self.state.instances[name]
        new = launch is None or launch.asked_ms == self.timeline.now()
        return f"new {instance.offering.id}" if new and not instance.owned else str(name)

    def _sample(self, attempt: simulated.SimulatedAttempt, parts: tuple[float, ...]) -> None:
        """Note the ETA of an attempt whenever a part of its work is done."""
        now, key = self.timeline.now(), (attempt.order.run, attempt.order.attempt)
        if key not in self._open or not parts:
            return
        done = attempt.done(now) / attempt.work.total_ms
        if done >= parts[0] - 1e-6:
            self._note_eta(attempt, done)
            parts = tuple(it for it in parts if it > done)
        if parts:
            left = (parts[0] - done) * attempt.work.total_ms
            wait = max(1_000, round(left / attempt.speed)) if attempt.speed > 0 else 1_000
            self.timeline.after(wait, lambda: self._sample(attempt, parts))

    def _note_eta(self, attempt: simulated.SimulatedAttempt, part: float) -> None:
        order, now = attempt.order, self.timeline.now()
        model = self.machine.published()
        record = model.record(order.job, now)
        whole, each = model.outlooks(record, now)
        told = whole
        if order.gang is None:
            shown = zip(record.runs, each, strict=True)
            told = next((it for run, it in shown if run.id == order.run), whole)
        eta = None if told.eta_ms is None else int(told.eta_ms)
        name = self.state.jobs[order.job].spec.name
        self._story.etas.append(Told(order.run, name, order.attempt, now, part, eta))
        said = "nothing" if eta is None else f"in {(eta - now) / 1000:.1f} s"
        self._tell(f"{self._name_of(order.run)} is {part:.0%} done; its end is told: {said}")

    # -- orders ----------------------------------------------------------------------------------

    def _carry_out_order(self, order: Order) -> None:
        subject, event = order.subject, self._event(order)
        if order.verb in ("drain", "interrupt", "node-drain", "node-resume"):
            subject = self._instance(order) or ""
        if order.verb == "restart":
            self._restarts += 1
        elif order.verb == "sold-out":
            self._sold_out_until = self.timeline.now() + round(float(order.to) * 1000)
        elif order.verb == "interrupt" and subject:
            self._interrupt(InstanceId(subject))
        elif event is None:
            return
        self._events += 1
        self._story.orders.append(Ordered(self.timeline.now(), order.verb, subject, order.to))
        self._tell(f"order: {order.verb} {subject} {order.to}".rstrip())
        self.inbox.post(event or Tick())

    def _event(self, order: Order) -> Event | None:
        command = f"{order.verb}-{len(self._story.orders)}"
        if order.verb in ("drain", "node-drain", "node-resume"):
            name = self._instance(order)
            if name is None:
                return None
            if order.verb == "drain":
                self._story.launches[name].drained = True
                return DrainRequested(command, name, moves=order.to == "moves")
            verb = NodeVerb.DRAIN if order.verb == "node-drain" else NodeVerb.RESUME
            return NodeRequested(command, name, verb)
        if order.verb in ("restart", "sold-out", "interrupt"):
            return Tick()
        if order.verb in ("set", "unset"):
            (job,) = (job for job in self._world.jobs if job.name == order.subject)
            secret, present = (Holder.user(job.owner), "TOKEN"), order.verb == "set"
            (self._secrets.add if present else self._secrets.discard)(secret)
            return SecretChanged(command, secret, present)
        fate = self._story.fates.get(order.subject)
        job = self.state.jobs.get(JobId(fate.id)) if fate is not None and fate.id else None
        if job is None or job.state in TERMINAL_JOB:
            return None
        match order.verb:
            case "move":
                return MoveRequested(command, job.id, order.to, operator=True)
            case "suspend":
                return SuspendRequested(command, job.id)
            case "resume":
                return ResumeRequested(command, job.id)
            case "cancel":
                return CancelRequested(command, job.id)
        raise ValueError(order.verb)

    def _instance(self, order: Order) -> InstanceId | None:
        """A live instance by its number; of ``interrupt`` one on the spot market."""
        if order.subject in self._world.nodes:
            return InstanceId(order.subject)
        spot = order.verb == "interrupt"
        there = [
            name
            for name in sorted(self.state.live)
            if not (it := self.state.instances[name]).owned
            and (not spot or it.offering.purchase is Purchase.SPOT)
            and it.drain is None
        ]
        return there[int(order.subject or 0) % len(there)] if there else None

    def _interrupt(self, name: InstanceId) -> None:
        at = Millis(self.timeline.now() + _NOTICE_MS)
        self._story.launches[name].taken = True
        self.workers.interrupt(name, at)

        def taken() -> None:
            if name in self.cloud.existing():
                self.cloud.fail(name, reclaimed=True)

        self.timeline.after(_NOTICE_MS, taken)

    def _sold_out(self, offering: OfferingId) -> bool:
        return offering.endswith("spot") and self.timeline.now() < self._sold_out_until

    # -- what the cloud is told ------------------------------------------------------------------

    def _clouded(self, action: CloudAction) -> None:
        now = self.timeline.now()
        if isinstance(action, LaunchInstance) and action.instance not in self._story.launches:
            self._launched(action, now)
        elif isinstance(action, TerminateInstance):
            launch = self._story.launches.get(action.instance)
            if launch is not None and launch.ending_ms is None:
                launch.ending_ms = now
                self._events += 1
                record = self.state.instances.get(action.instance)
                launch.why_gone = "" if record is None else record.reason
                self._tell(f"{launch.id} {launch.kind.name} is given back: {launch.why_gone}")

    def _launched(self, action: LaunchInstance, now: int) -> None:
        offering: Offering = action.offering
        record = self.state.instances[action.instance]
        kind = self._world.kind(offering.type.name)
        launch = Launch(
            action.instance,
            kind,
            offering.id,
            offering.price,
            spot=offering.purchase is Purchase.SPOT,
            owned=False,
            partition=record.partition,
            asked_ms=now,
            pool=record.pool,
            failed=self.cloud.sold_out(offering.id),
            disk_gib=offering.type.capacity.disk_mib >> 10,
        )
        self._story.launches[action.instance] = launch
        where = f" for {record.partition}" if record.partition else ""
        self._tell(f"{launch.id} {offering.id} is bought{where}")
        boot_ms = kind.boot_s * 1000

        def ready() -> None:
            if launch.gone_ms is None and action.instance in self.cloud.existing():
                launch.ready_ms = self.timeline.now()
                self._events += 1
                self._tell(f"{launch.id} is ready")

        self.timeline.after(boot_ms, ready)

    # -- the log of attempts ---------------------------------------------------------------------

    def ordered(self, attempt: simulated.SimulatedAttempt) -> None:
        """See `AttemptLog.ordered`."""
        order, now = attempt.order, self.timeline.now()
        job = self._job(order.run)
        made = Attempt(order.run, job.name, order.index, order.attempt, attempt.instance, now)
        self._story.attempts.append(made)
        self._open[order.run, order.attempt] = made
        self._events += 1
        self._tell(f"{self._name_of(order.run)} starts on {attempt.instance}")
        if order.fork is None:
            parts = tuple(it for it in _PARTS if it > attempt.done_ms / attempt.work.total_ms)
            self.timeline.after(START_MS, lambda: self._sample(attempt, parts))

    def began_from(self, attempt: simulated.SimulatedAttempt, origin: Checkpoint | None) -> None:
        """See `AttemptLog.began_from`."""
        made = self._open[attempt.order.run, attempt.order.attempt]
        made.resumed_ms = origin.done_ms if origin else 0.0

    def over(self, attempt: simulated.SimulatedAttempt, now: Millis) -> None:
        """See `AttemptLog.over`."""
        made = self._open.pop((attempt.order.run, attempt.order.attempt))
        self._events += 1
        made.ran_ms, made.to_ms = attempt.together_ms, now
        made.done_ms = attempt.done_ms
        if attempt.report is not None:
            made.code, made.stopped = attempt.report.exit_code, attempt.report.stopped
        how = (
            "is lost"
            if made.code is None
            else "is stopped"
            if made.stopped
            else f"ends: {made.code}"
        )
        self._tell(f"{self._name_of(made.run)} {how} on {made.instance}")


def serial_ms(world: World, gap_ms: int) -> int:
    """When all has ended at the latest: one task after another, each with a boot and a round.

    Failures, suspensions and moves come on top.
    """
    boot = max((it.boot_s for it in world.kinds), default=0) * 1000
    each = boot + 2 * gap_ms + START_MS + STOP_MS + ENDING_MS
    last = max([it.at_s for it in world.jobs] + [it.at_s for it in world.orders])
    total = round(last * 1000)
    for job in world.jobs:
        tasks = 1 if job.elastic else job.size
        slowest = min(job.speeds.values(), default=1.0) * min(1.0, world.shared**3)
        total += sum(round(job.work_s(it) * 1000 / slowest) for it in range(tasks))
        total += job.size * each * (1 + job.failures)
    return total + len(world.orders) * each * max(it.size for it in world.jobs)
