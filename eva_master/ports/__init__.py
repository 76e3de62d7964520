"""What the control loop needs of the world, as protocols; adapters and simulation implement them.

No method blocks, but `Inbox.wait`; whatever takes time is answered by an event in the inbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from eva_master.model.actions import (
    CloudAction,
    ListCheckpoints,
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
        """Milliseconds since the epoch."""
        ...


class Inbox(Protocol):
    """Where everything that happens arrives; any thread may post."""

    def post(self, event: Event) -> None:
        """Append an event; never blocks."""
        ...

    def wait(self, until: Millis | None) -> Sequence[Event]:
        """Block until there is an event or the time has come.

        Args:
            until: Milliseconds since the epoch; `None` waits for an event however long.

        Returns:
            All events that have arrived, in order; empty when the time came first.
        """
        ...


class Cloud(Protocol):
    """Something that sells instances."""

    def execute(self, action: CloudAction) -> None:
        """Begin to carry out an action.

        `LaunchInstance` is answered by `InstanceUp` or `LaunchFailed`, `TerminateInstance` by
        `InstanceGone`, `SyncCloud` by `CloudListed`; `InstanceGone` also comes unasked when an
        instance dies. Repeating an action that is under way or done makes nothing happen twice,
        but its answer is posted again; a launch of an instance that is gone is answered by
        `InstanceGone`. Times in the answers are the cloud's own records, the
        same however often they are posted.
        """
        ...


class WorkerLink(Protocol):
    """The way to the workers."""

    def execute(self, action: WorkerAction) -> None:
        """Send a command; silently dropped when the worker has no session.

        The machine sends what still holds again when the worker registers.
        """
        ...


class Planner(Protocol):
    """Runs the policy, in this thread or elsewhere."""

    def request(self, request: RequestPlan) -> None:
        """Have a plan made; `PlanReady` or `PlanFailed` is posted."""
        ...


class Checkpoints(Protocol):
    """What the object store holds of tasks' checkpoints."""

    def request(self, request: ListCheckpoints) -> None:
        """Have the complete generations of task runs listed; `CheckpointsListed` is posted, once.

        What is to be given up is gone by then. An answer tells of an error too: no question stays
        without one, and none is carried out after its answer.
        """
        ...


class Replies(Protocol):
    """Who waits for answers to commands, and who watches."""

    def reply(self, reply: Reply) -> None:
        """Hand an answer to whoever sent the command."""
        ...

    def publish(self, changes: Changes, model: Callable[[], ReadModel]) -> None:
        """Show readers and watchers what was just committed; called once a turn.

        Args:
            changes: What was committed, which may be nothing.
            model: Makes the model of the cluster as of this commit. To be called at once or not
                at all: where nobody reads, none is made.
        """
        ...


class Journal(Protocol):
    """Where the state survives."""

    def load(self, since: Millis | None = None) -> Changes:
        """What was committed, the latest version of each record.

        Rounds are left out, they are for reading only.

        Args:
            since: Jobs that had ended and instances that were gone by then are left out, with
                their task runs and accounts; `None` leaves out nothing.
        """
        ...

    def commit(self, changes: Changes) -> None:
        """Write in one transaction; when this returns the changes survive a power cut.

        Committing the same changes twice is harmless.
        """
        ...


class RoundHistory(Protocol):
    """Why rounds were planned as they were; any thread may ask."""

    def explained(self, upto: int | None = None) -> Round | None:
        """The newest round whose reasons are kept, with them.

        Args:
            upto: Its number is no more than this; `None` for the newest of all.
        """
        ...


class ObjectStore(Protocol):
    """Bytes by name, outliving every instance.

    Keys are slash-separated paths. A put is atomic: readers see the old object, or the new one.
    """

    async def put(self, key: str, data: bytes | AsyncIterator[bytes]) -> None:
        """Store an object."""
        ...

    async def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read an object or a part of it; raises `NotFound`."""
        ...

    async def size(self, key: str) -> int | None:
        """Bytes of an object, `None` if there is none."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Keys below a prefix, sorted."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        ...


class Policy(Protocol):
    """A scheduler: a pure function from what is to what should be."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Decide.

        Must be deterministic, must not exceed any capacity or offering limit, must keep gangs
        whole, must not move pinned task runs, and must return an empty plan when nothing that
        matters has changed.
        """
        ...


class PolicyKind(Protocol):
    """What a policy package exports as ``POLICY``, and an entry point ``eva.policies`` refers to.

    It may also have ``presets``, a mapping from names to choices of options; ``renamed_options``,
    a mapping from earlier names of options to those of today; and its config a field
    ``round_gap_s``: the seconds at whose multiples it likes to plan, `None` for whenever something
    happens.
    """

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    @property
    def config(self) -> type[Any]:
        """A frozen dataclass; every field has a default."""
        ...

    def build(self, config: Any) -> Policy:
        """Make the policy."""
        ...
