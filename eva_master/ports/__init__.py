"""Protocols of what the control loop needs from outside. Adapters and the simulator implement them.

No method blocks except `Inbox.wait`. Whatever takes time is answered by an event in the inbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eva_master.model.actions import (
    CloudAction,
    FindExpired,
    ListCheckpoints,
    PlaceOutputs,
    RemoveResults,
    Reply,
    RequestPlan,
    WorkerAction,
)
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes, Round
from eva_master.model.events import Event
from eva_master.model.fleet.forking import Forking
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.secrets import NeededSecrets
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Millis


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
        `InstanceGone`, `SyncCloud` by `CloudListed`, and `ListCatalog` by `CatalogListed` in clouds
        whose catalog changes; `InstanceGone` is also posted when an instance dies by itself.
        Repeating an action has no further effect, but its answer is posted again. A launch of an
        instance that is gone is answered by `InstanceGone`. Times in the answers are those that the
        cloud recorded, so that repeated answers are equal.
        """
        ...


class WorkerLink(Protocol):
    """The connection to the workers of all instances."""

    def execute(self, action: WorkerAction) -> None:
        """Send a command; without a session of the worker it is dropped silently.

        The control loop repeats what still applies when the worker registers.
        """
        ...


class Secrets(Protocol):
    """Opens secrets. Any thread may use it."""

    def values(self, needs: NeededSecrets) -> Mapping[str, str]:
        """The values of secrets by name, for an order to start.

        Raises:
            UnreadableSecret: One is not set, or cannot be read.
            StorageError: The database cannot be read.
        """
        ...

    def missing(self, needs: NeededSecrets) -> tuple[str, ...]:
        """Names of needed secrets that are not set, or cannot be read."""
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

    def remove(self, request: RemoveResults) -> None:
        """Remove all that a job's tasks have stored; `ResultsRemoved` is posted.

        A request that is repeated while it is carried out is dropped; afterwards it is carried out
        again, to the same effect.
        """
        ...

    def expired(self, request: FindExpired) -> None:
        """Find jobs that ended in a time; `ResultsExpired` is posted, unless that fails."""
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


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store, without its content.

    Attributes:
        size: In bytes.
        modified_ms: When it was stored.
        version: Changes with the content.
    """

    key: str
    size: int
    modified_ms: Millis
    version: str


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

    async def find(self, key: str) -> StoredObject | None:
        """An object without its content; `None` if there is none."""
        ...

    async def piece(self, key: str, offset: int, length: int, version: str = "") -> bytes:
        """Read a piece of one version of an object; raises `ObjectChanged` if that is gone."""
        ...

    def below(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        """The objects below a prefix, in parts, in any order."""
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

    async def clear_partial(self, prefix: str, before_ms: int, *, dry_run: bool) -> Sequence[int]:
        """Remove files of puts below a prefix whose process died; returns their sizes in bytes."""
        ...


def _no_preference(_config: Any) -> None:
    return None


def _no_doubts(_config: Any, _catalog: Catalog) -> tuple[str, ...]:
    return ()


def _no_refusals(_config: Any) -> tuple[tuple[str, str, str], ...]:
    return ()


Planned = tuple[Plan, PolicyMemory | None]
"""A plan, and the memory with which the policy decides on the next one."""


class Policy(Protocol):
    """A scheduler: a pure function from a snapshot of the cluster to a plan."""

    @property
    def name(self) -> str:
        """The policy's name in the settings."""
        ...

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Decide which task run runs where.

        Planning must be deterministic, must not exceed any capacity or offering limit, must keep
        gangs whole, must not move pinned task runs, and must return an empty plan when nothing
        relevant has changed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """The object that a policy package exports as ``POLICY``, for its entry point.

    Each function is given a config of the class `config`. A config may have a field
    ``round_gap_s``: the policy is asked for plans at multiples of so many seconds; with `None`,
    whenever something happens. The config of a policy that time-shares has a field ``lease_s``: a
    task that was given a place keeps it for so many seconds; or ``slot_s`` if the policy gives out
    whole slots, for which tasks may wait though there is room.

    Attributes:
        name: The policy's name in the settings.
        config: The class of its options: a frozen dataclass whose fields all have defaults.
        build: Makes the policy.
        presets: Named choices of options.
        time_shares: Whether it suspends tasks so that others have their turn.
        orders: Whether it seats jobs in an order of its own without giving turns.
        elastic: Whether it chooses the sizes of elastic gangs, which other policies see as gangs of
            a fixed size.
        lends: Whether it answers for the quotas of tenants itself, and may lend what others leave.
        packs: Whether it may put several tasks on one instance.
        shares: Whether its tasks may use room on instances of the policy behind it.
        gives_lines: Whether lines give away its room, so that it cannot be behind another policy.
        reads: Returns the keys of job files that it reads, of those that not every policy reads
            (`model.fleet.job_keys.DECLARED`); `None` if it does not say. Users are told of the
            others.
        backed: Makes the policy with another one that buys and packs instances for it; `None` if
            it does that itself.
        estimates: Returns the source of estimates for jobs without stated run times; `None` for no
            preference.
        spot_choice: Returns its `SpotChoice`; `None` for no preference.
        forking: Returns how jobs are forked; `None` leaves that to job files.
        doubts: Yields doubts about settings that an operator may not have meant, given the catalog.
        refusals: Yields reasons why the policy cannot decide without stated run times, as in a live
            master: the option, why, and what to do.
    """

    name: str
    config: type[Any]
    build: Callable[[Any], Policy]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    time_shares: bool = False
    orders: bool = False
    elastic: bool = False
    lends: bool = False
    packs: bool = True
    shares: bool = False
    gives_lines: bool = False
    reads: Callable[[Any], Iterable[str] | None] = _no_preference
    backed: Callable[[Any, Policy], Policy] | None = None
    estimates: Callable[[Any], Estimates | None] = _no_preference
    spot_choice: Callable[[Any], SpotChoice | None] = _no_preference
    forking: Callable[[Any], Forking | None] = _no_preference
    doubts: Callable[[Any, Catalog], Iterable[str]] = _no_doubts
    refusals: Callable[[Any], Iterable[tuple[str, str, str]]] = _no_refusals
