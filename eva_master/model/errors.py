"""The errors of the system, as one tree.

::

    EvaError
    ├── InvalidJob            a job file or job that cannot be accepted
    │   ├── DuplicateName     an active job of this owner has this name
    │   └── Unplaceable       no instance type can hold a task
    ├── InvalidConfig         settings that cannot be used
    │   └── UnusablePolicy    the policy is installed, but broken
    ├── InvalidTrace          a file of a simulation that cannot be read as what it should be
    ├── SimulationStalled     jobs of a simulation that no policy will ever bring to an end
    ├── NotFound              no such job, instance, task or object
    ├── CloudError            what a cloud answers, in the scheduler's words
    │   ├── CapacityUnavailable   out of stock: try another offering, later this one
    │   ├── QuotaExceeded         the account's limit: only the user can lift it
    │   ├── Throttled             too many calls: slow down and repeat
    │   ├── CloudDenied           credentials missing, wrong or not allowed
    │   └── EngineUnavailable     no container engine that could run tasks
    ├── StorageError          the journal or the object store cannot do what was asked
    │   ├── InvalidKey            an object key that is no plain relative path
    │   ├── DigestMismatch        bytes that are not what their name says
    │   ├── JournalInUse          another master has the journal open
    │   └── JournalTooNew         a later release wrote the journal
    ├── IllegalTransition     a state table was violated: a bug, never a user's mistake
    ├── InvalidPlan           a policy broke its contract: a bug in the policy
    ├── Unreachable           the master does not answer
    ├── Untrusted             who answers there cannot be shown to be the master
    ├── NotAuthenticated      the caller has no token that is in force
    └── NotAuthorised         the caller may not do this
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file that a user wrote.

    Attributes:
        message: What is wrong.
        key: Dotted path of the offending key, empty for the file as a whole.
        line: Line in the file from 1, 0 if unknown.
        column: Column in the line from 1, 0 if unknown.
        hint: What to write instead, empty if there is nothing to suggest.
    """

    message: str
    key: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""


class EvaError(Exception):
    """Root of all errors; `hint` tells the user what to do next."""

    def __init__(self, message: str, *, hint: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = problems


class InvalidJob(EvaError):
    """The job cannot be accepted as it is."""


class DuplicateName(InvalidJob):
    """An active job of the same owner has this name."""


class Unplaceable(InvalidJob):
    """No instance type can hold one of the tasks."""


class InvalidConfig(EvaError):
    """The settings cannot be used as they are."""


class UnusablePolicy(InvalidConfig):
    """The chosen policy is installed, but cannot be loaded."""


class InvalidTrace(EvaError):
    """A trace, or a table of interference, is not what it should be."""


class SimulationStalled(EvaError):
    """Jobs of a simulation are left without a place for good."""


class NotFound(EvaError):
    """There is no such thing."""


class CloudError(EvaError):
    """A cloud refused or failed; the subclass tells what to do about it."""


class CapacityUnavailable(CloudError):
    """The offering is out of stock."""


class QuotaExceeded(CloudError):
    """The account may not have more of this."""


class Throttled(CloudError):
    """The cloud wants fewer calls."""


class CloudDenied(CloudError):
    """Credentials are missing, wrong or insufficient."""


class EngineUnavailable(CloudError):
    """No container engine answers, or none that tasks could run in."""


class StorageError(EvaError):
    """The journal or the object store cannot do what was asked."""


class InvalidKey(StorageError):
    """An object key that is no plain relative path."""


class DigestMismatch(StorageError):
    """The bytes are not what their name says."""


class JournalInUse(StorageError):
    """Another master has the journal open."""


class JournalTooNew(StorageError):
    """A later release wrote the journal; this one cannot read it."""


class InvalidPlan(EvaError):
    """A plan that no correct policy makes."""


class Unreachable(EvaError):
    """The master does not answer."""


class Untrusted(EvaError):
    """Who answers at the master's address cannot be shown to be the master."""


class NotAuthenticated(EvaError):
    """The caller has no token, or none that is in force."""


class NotAuthorised(EvaError):
    """The caller may not do this."""


class IllegalTransition(EvaError):
    """A move that a state table forbids.

    Args:
        entity: What was to move, such as ``task run resnet-3/0``.
        source: The state it is in.
        target: The state it was to enter.
        history: The states it went through, oldest first, each with its time in milliseconds.
    """

    def __init__(
        self, entity: str, source: str, target: str, history: tuple[tuple[str, int], ...]
    ) -> None:
        trail = " -> ".join(f"{state}@{at}" for state, at in history)
        super().__init__(f"{entity}: {source} -> {target} is not legal; history: {trail}")
        self.history = history
