"""Protocols of what the control loop needs from outside. Adapters and the simulator implement them.

No method blocks except `Inbox.wait`. Whatever takes time is answered by an event in the inbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from eva_master.model.actions import (
    CloudAction,
    ListCheckpoints,
    PlaceOutputs,
    Reply,
    RequestPlan,
    WorkerAction,
)
from eva_master.model.changes import Changes, Round
from eva_master.model.events import Event
from eva_master.model.ids import Millis
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports.reading import ReadModel


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> Millis:
        """The present time in milliseconds since the epoch."""
        ...


class Inbox(Protocol):
    """The queue of events for the control loop. Any thread may post."""

    def post(self, event: Event) -> None:
        """Append an event; never blocks."""
        ...

    def wait(self, until: Millis | None) -> Sequence[Event]:
        """Block until there is an event or a given time has come.

        Args:
            until: Milliseconds since the epoch; `None` waits for an event without limit.

        Returns:
            All events that have arrived, in order; empty when the time came first.
        """
        ...


class Cloud(Protocol):
    """A cloud that launches and terminates instances."""

    def execute(self, action: CloudAction) -> None:
        """Start to carry out an action.

        `LaunchInstance` is answered by `InstanceUp` or `LaunchFailed`, `TerminateInstance` by
        `InstanceGone`, `SyncCloud` by `CloudListed`; `InstanceGone` is also posted when an instance
        dies by itself. Repeating an action has no further effect, but its answer is posted again. A
        launch of an instance that is gone is answered by `InstanceGone`. Times in the answers are
        those that the cloud recorded, so that repeated answers are equal.
        """
        ...


class WorkerLink(Protocol):
    """The connection to the workers of all instances."""

    def execute(self, action: WorkerAction) -> None:
        """Send a command; without a session of the worker it is dropped silently.

        The control loop repeats what still applies when the worker registers.
        """
        ...


class Planner(Protocol):
    """Runs the policy, in this thread or elsewhere."""

    def request(self, request: RequestPlan) -> None:
        """Start to make a plan; `PlanReady` or `PlanFailed` is posted."""
        ...


class Checkpoints(Protocol):
    """The checkpoints and outputs of tasks in the object store."""

    def request(self, request: ListCheckpoints) -> None:
        """List the complete generations of task runs; `CheckpointsListed` is posted once.

        Generations to give up are removed before. Every request is answered, also in case of an
        error, and nothing is done for it after its answer.
        """
        ...

    def place(self, request: PlaceOutputs) -> None:
        """Copy the outputs of an extra run over its task's; `OutputsPlaced` is posted.

        Files that the task's own run has left there are removed. A request that is repeated while
        it is carried out is dropped; afterwards it is carried out again, to the same effect.
        """
        ...


class Replies(Protocol):
    """Delivers answers to commands, and changes to watchers."""

    def reply(self, reply: Reply) -> None:
        """Deliver an answer to the sender of the command."""
        ...

    def publish(self, changes: Changes, model: Callable[[], ReadModel]) -> None:
        """Show readers and watchers what was just committed; called once a turn.

        Args:
            changes: Committed changes, which may be empty.
            model: Makes the model of the cluster as of this commit. To be called at once or not
                at all: where nobody reads, none is made.
        """
        ...


class Journal(Protocol):
    """Durable storage of the control loop's state."""

    def load(self, since: Millis | None = None) -> Changes:
        """Committed records, the latest version of each.

        Rounds are left out, they are for reading only.

        Args:
            since: Jobs that had ended and instances that were gone by then are left out, with
                their task runs and accounts; `None` leaves out nothing.
        """
        ...

    def commit(self, changes: Changes) -> None:
        """Write changes in one transaction. When this returns they survive a power cut.

        Committing the same changes twice is harmless.
        """
        ...


class RoundHistory(Protocol):
    """The reasons of past planning rounds. Any thread may ask."""

    def explained(self, upto: int | None = None) -> Round | None:
        """The newest round whose reasons are kept, with its reasons.

        Args:
            upto: Greatest number of the round; `None` for the newest of all.
        """
        ...


class ObjectStore(Protocol):
    """Storage of bytes by name, which outlives every instance.

    Keys are slash-separated paths. `put` is atomic: readers see the old object or the new one.
    """

    async def put(self, key: str, data: bytes | AsyncIterator[bytes]) -> None:
        """Store an object under a key, replacing any earlier one."""
        ...

    async def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read an object or a part of it; raises `NotFound`."""
        ...

    async def size(self, key: str) -> int | None:
        """The size of an object in bytes; `None` if there is none."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """List the keys below a prefix, sorted."""
        ...

    async def modified(self, prefix: str) -> Mapping[str, int]:
        """When each object below a prefix was stored last, in milliseconds since the epoch."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        ...


class Policy(Protocol):
    """A scheduler: a pure function from a snapshot of the cluster to a plan."""

    @property
    def name(self) -> str:
        """The policy's name in the settings."""
        ...

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Decide which task run runs where.

        Planning must be deterministic, must not exceed any capacity or offering limit, must keep
        gangs whole, must not move pinned task runs, and must return an empty plan when nothing
        relevant has changed.
        """
        ...


class PolicyKind(Protocol):
    """The object that a policy package exports as ``POLICY``, for its entry point.

    The kind may also have ``presets``, a mapping from names to choices of options;
    ``renamed_options``, a mapping from earlier names of options to those of today; ``time_shares``,
    true if it suspends tasks so that others have their turn; ``orders``, true if it gives no turns,
    and seats jobs in an order of its own all the same; ``elastic``, true if it chooses the sizes of
    elastic gangs, which are gangs of a fixed size to all others; ``lends``, true if it sees to the
    quotas of tenants itself, and may give one what others leave; ``packs``, false if it never puts
    two tasks on one instance; ``shares``, true if its tasks may use room on instances of the policy
    that it stands in front of; ``doubts``, a method that is given a config and the catalog and
    yields what an operator may not have meant; ``estimates``, a method that is given a config and
    returns what run times are to be estimated from where nobody states it, or `None` if it does not
    mind; ``spot_choice``, a method that is given a config and returns how jobs with deadlines
    choose, or `None` likewise; ``forking``, a method that is given a config and returns how it has
    jobs forked, or `None` to leave that to job files; ``reads``, a method that is given a config
    and returns the keys of job files that it reads, of those that not every policy reads
    (`model.fleet.job_keys.DECLARED`), so that users of others are told; ``refusals``, a method that
    is given a config and yields what keeps it from deciding where nobody says how long jobs take,
    as in a live master: the option, why, and what to do; ``backed``, a method that is given a
    config and another policy and makes one that has this one buy and pack instances for it;
    ``gives_lines``, true if lines give away its room, so that it cannot be that other one; and its
    config a field ``round_gap_s``: the seconds at whose multiples it likes to plan, `None` for
    whenever something happens. The config of one that time-shares has a field ``lease_s``: for so
    many seconds a task that was given a place keeps it; or ``slot_s`` if it gives out whole slots,
    for which tasks may wait though there is room.
    """

    @property
    def name(self) -> str:
        """The policy's name in the settings."""
        ...

    @property
    def config(self) -> type[Any]:
        """The class of its options: a frozen dataclass whose fields all have defaults."""
        ...

    def build(self, config: Any) -> Policy:
        """Create the policy with the given options."""
        ...
