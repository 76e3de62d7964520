"""The control loop, the same in production and in simulation."""

from __future__ import annotations

from eva_master.control.machine import Machine
from eva_master.model.actions import (
    Action,
    FetchFiles,
    FindExpired,
    ForgetTask,
    LaunchInstance,
    ListCatalog,
    ListCheckpoints,
    PlaceOutputs,
    RemoveResults,
    Reply,
    RequestPlan,
    StartTask,
    StopTask,
    SyncCloud,
    SyncWorker,
    TellMerge,
    TerminateInstance,
)
from eva_master.ports import (
    Checkpoints,
    Clock,
    Cloud,
    Inbox,
    Journal,
    Planner,
    Replies,
    WorkerLink,
)


class Loop:
    """Drain the inbox, let the machine decide, write it down, publish it, then carry it out.

    An answer comes after its result can be read. Single-threaded and synchronous; its only blocking
    calls are `Inbox.wait` and `Journal.commit`.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        clock: Clock,
        inbox: Inbox,
        journal: Journal,
        cloud: Cloud,
        workers: WorkerLink,
        planner: Planner,
        checkpoints: Checkpoints,
        replies: Replies,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._inbox = inbox
        self._journal = journal
        self._cloud = cloud
        self._workers = workers
        self._planner = planner
        self._checkpoints = checkpoints
        self._replies = replies

    def start(self) -> None:
        """Repeat all outstanding orders of the journal; call it once, before the first step."""
        self._carry_out(self._machine.recover(self._clock.now()))

    def step(self) -> None:
        """Wait for events or for the next alarm, and handle them."""
        heard = self._inbox.wait(self._machine.next_alarm())
        self._carry_out(self._machine.handle(heard, self._clock.now()))

    def _carry_out(self, actions: list[Action]) -> None:
        changes = self._machine.take_changes()
        if changes:
            self._journal.commit(changes)
        self._replies.publish(changes, self._machine.published)
        for action in actions:
            self._execute(action)

    def _execute(self, action: Action) -> None:
        match action:
            case LaunchInstance() | TerminateInstance() | SyncCloud() | ListCatalog():
                self._cloud.execute(action)
            case (
                StartTask() | StopTask() | FetchFiles() | ForgetTask() | TellMerge() | SyncWorker()
            ):
                self._workers.execute(action)
            case ListCheckpoints():
                self._checkpoints.request(action)
            case PlaceOutputs():
                self._checkpoints.place(action)
            case RemoveResults():
                self._checkpoints.remove(action)
            case FindExpired():
                self._checkpoints.expired(action)
            case RequestPlan():
                self._planner.request(action)
            case Reply():
                self._replies.reply(action)
