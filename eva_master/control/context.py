"""The context of a turn: every change of a record goes through it."""

from __future__ import annotations

from eva_master.control.attempts.record import with_attempt
from eva_master.control.state.records import crew
from eva_master.control.turn.turn import Turn
from eva_master.model.catalog import Purchase
from eva_master.model.records import Drain, Instance, Job, StopReason, TaskRun
from eva_master.model.values import replace
from eva_master.packing.zones import keeps_to_one_zone, same_zone
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import LIVE, TERMINAL_JOB, InstanceState, RunState


class Context(Turn):
    """A turn in which events are applied and entities converged.

    Every change of a record goes through here, so that features are told of it, and jobs, task runs
    and instances that may now have something to do are converged.
    """

    def _touch_place(self, instance: InstanceId) -> None:
        """Converge task runs that wait for room on an instance."""
        if self.touched.place(instance):
            for run in self.state.places.coming(instance):
                self.touch_run(run)

    # -- changing --------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Replace the record of a job."""
        old = self.state.jobs.get(job.id)
        if old is not None and job.state in TERMINAL_JOB and old.state not in TERMINAL_JOB:
            for job_ends in self.features.job_ends:
                job_ends(self, job)
        self.state.put_job(job)
        self.touch_job(job.id)
        for decided in self.state.dependencies.take_decided():
            self.touch_job(decided)
        self.plan_wanted |= self.state.dependencies.take_priority_change()
        for job_changed in self.features.job_changed:
            job_changed(self, old, job)

    def put_run(self, run: TaskRun) -> None:
        """Replace a task run, booking what its instances cost so far."""
        old = self.state.runs[run.id]
        if old.state is not run.state or old.instance != run.instance:
            for run_changes in self.features.run_changes:
                run_changes(self, old, run)
            run = with_attempt(self.state, old, run, self.now)
        self.state.replace_run(old, run)
        for run_changed in self.features.run_changed:
            run_changed(self, old, run)
        self.touch_run(run)
        settled = run.target == run.instance and old.target == run.target
        if settled and old.instance in (None, run.instance):
            return  # it gives room to no other task
        for place in {run.instance: None, run.target: None, old.instance: None, old.target: None}:
            if place is not None:
                self._touch_place(place)

    def add_run(self, run: TaskRun) -> None:
        """Add an extra run of a task, which waits for room at its target."""
        assert run.target is not None
        self.state.put_run(run)
        for run_changed in self.features.run_changed:
            run_changed(self, None, run)
        self.touch_run(run)
        self.touch_instance(run.target)

    def put_instance(self, instance: Instance) -> None:
        """Replace the record of an instance."""
        old = self.state.instances.get(instance.id)
        self.state.put_instance(instance)
        for instance_changed in self.features.instance_changed:
            instance_changed(self, old, instance)
        self.touch_instance(instance.id)
        self._touch_place(instance.id)
        for run in self.state.occupants(instance.id):
            self.touch_run(run)

    # -- task runs -------------------------------------------------------------------------------

    def stop(self, run: TaskRun, reason: StopReason) -> None:
        """Ask for a running attempt's stop, once."""
        if run.state in (RunState.STARTING, RunState.RUNNING):
            self.put_run(replace(run.to(RunState.STOPPING, self.now), stop=reason))

    def release(self, run: TaskRun, *, target: InstanceId | None, lost: bool = False) -> None:
        """Record the confirmed end of an attempt: its room is free, and the task run waits.

        Args:
            run: The task run.
            target: The instance where it continues, `None` if that has to be planned.
            lost: Whether its instance ended with it.
        """
        moved = run.stop is StopReason.MOVE
        self.put_run(
            replace(
                run.to(RunState.WAITING, self.now),
                instance=None,
                target=target,
                fetched=None,
                stop=None,
                moves=run.moves + moved,
                lost=run.attempt if lost else run.lost,
                pool="",
            )
        )
        if run.stop is StopReason.REPLICA:
            over = self.state.runs[run.id].to(RunState.CANCELLED, self.now)
            self.put_run(replace(over, target=None))
        if target is None or self._mate_without_place(run):
            self.plan_wanted = True

    def _mate_without_place(self, run: TaskRun) -> bool:
        """Whether another member of the gang waits for a plan; none was made while this stopped."""
        job = self.state.jobs[run.job]
        if not job.is_gang or not self.state.tasks[job.id].unplaced:
            return False  # no look at all members for each that stops
        return any(
            mate.state is RunState.WAITING and mate.target is None
            for mate in crew(self.state, run.job)
        )

    def retarget(self, run: TaskRun, target: InstanceId | None) -> None:
        """Change where a task run should be."""
        if run.target != target:
            self.outbox.forget_fetch(run)
            self.put_run(replace(run, target=target, fetched=None, pool=""))
            self.plan_wanted = self.plan_wanted or target is None

    def explain(self, run: TaskRun, reason: str) -> None:
        """Note why a task run waits; no change that calls for converging."""
        self.state.explain(run, reason)

    def abandon(self, instance: InstanceId) -> None:
        """Cancel all moves to an instance; task runs on their way stay where they are, or wait."""
        for run in self.state.places.targeting(instance):
            self.turn_back(run, instance)

    def turn_back(self, run: TaskRun, instance: InstanceId) -> None:
        """Have a task run stay where it is rather than go to an instance, or else wait.

        Its room may have been given to others, which now find none: the youngest of them, as many
        as have to, turn back too. So no task waits for a place that does not become free.
        """
        unsettled = [(run, instance)]
        while unsettled:
            run, instance = unsettled.pop()
            run = self.state.runs[run.id]
            if run.target != instance:
                continue  # The task run has turned back for another one.
            stays = run.instance if run.instance != instance else None
            if stays is None or not self.state.can_stay(stays) or self._starts_elsewhere(run):
                self.retarget(run, None)
                continue
            self.retarget(run, stays)
            unsettled += [(comer, stays) for comer in self.must_turn_back(stays)]
            unsettled += self._torn_off(run, stays)

    def _torn_off(self, run: TaskRun, stays: InstanceId) -> list[tuple[TaskRun, InstanceId]]:
        """Members of a gang that move to another zone than the one where this one stays."""
        job, instances = self.state.jobs[run.job], self.state.instances
        if not keeps_to_one_zone(job.spec):
            return []
        here = instances[stays].offering
        return [
            (mate, mate.target)
            for mate in self.state.members(run.job)
            if mate.target is not None and mate.instance not in (None, mate.target)
            if not same_zone(here, instances[mate.target].offering)
        ]

    def must_turn_back(self, place: InstanceId) -> list[TaskRun]:
        """Task runs headed for an instance without room for them, or with a job to be alone."""
        return self._without_room(place) + self._breaks_isolation(place)

    def _breaks_isolation(self, place: InstanceId) -> list[TaskRun]:
        """Task runs on the move that would join others though one of the jobs is to be alone.

        A waiting task run has to start somewhere, even beside others.
        """
        targeting = self.state.places.targeting(place)
        if not any(self.state.jobs[headed.job].buys.alone for headed in targeting):
            return []
        if len({headed.job for headed in targeting}) == 1:
            return []
        return [
            comer for comer in self.state.places.coming(place) if comer.state is RunState.RUNNING
        ]

    def _starts_elsewhere(self, run: TaskRun) -> bool:
        """Whether it is stopping already on a spot instance that its job is to be kept off."""
        if run.state is not RunState.STOPPING or not self.state.jobs[run.job].buys.kept:
            return False
        assert run.instance is not None
        return self.state.instances[run.instance].offering.purchase is Purchase.SPOT

    def _without_room(self, place: InstanceId) -> list[TaskRun]:
        """The youngest of those who are to come to an instance that has no room for all."""
        instance, comers = self.state.instances[place], self.state.places.coming(place)
        comers.sort(key=lambda run: (self.state.jobs[run.job].submitted_ms, run.id))
        taken = self.state.demand(self.state.places.targeting(place), instance)
        out: list[TaskRun] = []
        while comers and not taken.fits(instance.offering.type.capacity):
            out.append(comers.pop())
            taken = taken - self.state.demand(out[-1:], instance)
        return out

    # -- instances -------------------------------------------------------------------------------

    def dismiss(self, instance: Instance, reason: str) -> None:
        """Terminate an instance that is not needed; an owned node gets no tasks any more."""
        if instance.owned:
            self.put_instance(replace(instance, drain=instance.drain or Drain(reason)))
            self.abandon(instance.id)
        elif instance.state in LIVE:
            going = instance.to(InstanceState.TERMINATING, self.now)
            self.put_instance(replace(going, reason=reason))
            self.abandon(instance.id)
