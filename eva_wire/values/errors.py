"""The errors of the system, as one tree below `EvaError`.

A caller that handles several alike catches their common class. `IllegalTransition` and
`InvalidPlan` are bugs, of Eva and of a policy; all others tell a user what to do.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file that a user wrote.

    Attributes:
        message: The mistake, in words.
        key: Dotted path of the offending key, empty for the file as a whole.
        line: Line in the file from 1, 0 if unknown.
        column: Column in the line from 1, 0 if unknown.
        hint: Advice on what to write instead, empty if there is none.
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


_FILE_HINTS = {
    errno.EACCES: "the user that runs this needs the right to it, or choose another place",
    errno.EPERM: "the user that runs this needs the right to it, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room on its disk",
}


def of_file(error: OSError) -> EvaError:
    """An operating system's error about a file, in words for the user."""
    hint = _FILE_HINTS.get(error.errno or 0, "")
    return EvaError(f"{error.filename}: {error.strerror}", hint=hint)


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


class CannotListen(InvalidConfig):
    """A port of this machine is taken, or the address is not this machine's."""


class InvalidTrace(EvaError):
    """A trace or a table of interference is not valid."""


class SimulationStalled(EvaError):
    """Jobs of a simulation can never be placed."""


class NotFound(EvaError):
    """The named thing does not exist."""


class CloudError(EvaError):
    """A cloud refused or failed; the subclass tells what to do about it."""


class CapacityUnavailable(CloudError):
    """The cloud has no capacity for the offering."""


class QuotaExceeded(CloudError):
    """The account's quota does not allow more."""


class Throttled(CloudError):
    """The cloud limits the rate of calls."""


class CloudDenied(CloudError):
    """Credentials are missing, wrong or insufficient."""


class EngineUnavailable(CloudError):
    """No container engine answers, or none that can run tasks."""


class StorageError(EvaError):
    """The journal or the object store cannot do what was asked."""


class StorageFull(StorageError):
    """The disk has no room for what is to be written; it works again once there is."""


class InvalidKey(StorageError):
    """The object key is not a plain relative path."""


class ObjectChanged(StorageError):
    """The version of an object that was asked for has been replaced or removed."""


class DigestMismatch(StorageError):
    """The bytes do not match the digest in their name."""


class JournalInUse(StorageError):
    """Another master has the journal open."""


class JournalTooNew(StorageError):
    """A later release wrote the journal; this one cannot read it."""


class JournalTooOld(StorageError):
    """A version from before the first release wrote the journal."""


class InvalidPlan(EvaError):
    """The policy returned a plan that breaks its contract."""


class Unreachable(EvaError):
    """The master does not answer."""


class Untrusted(EvaError):
    """The identity of the master at this address cannot be verified."""


class InvalidRequest(EvaError):
    """The request cannot be carried out in the present state."""


class JobActive(InvalidRequest):
    """The job has not ended, and what was asked is for jobs that have."""


class CostCapReached(InvalidRequest):
    """The job has cost as much as it may, or more than the new cap."""


class NothingToRetry(InvalidRequest):
    """No task of the job has failed."""


class NotRunning(InvalidRequest):
    """The task does not run, and what was asked is for tasks that do."""


class AttachRefused(InvalidRequest):
    """The worker does not let a command or a connection into the task."""


class AmbiguousName(InvalidRequest):
    """Several active jobs have the name of which one is to be changed."""


class InvalidSecret(InvalidRequest):
    """The name or the value cannot be a secret's."""


class UnreadableSecret(EvaError):
    """A secret is not set, or was sealed with another key than the cluster's."""


class NoticeNotSent(EvaError):
    """A receiver did not take a notice, or may not be sent one."""


class LimitExceeded(EvaError):
    """A user, a job or the cluster would have more than its limit allows."""


class Busy(EvaError):
    """The caller asks for more at a time than they are given; later they may ask again.

    Attributes:
        retry_after_ms: When, from now on.
    """

    retry_after_ms: int = 1_000

    @classmethod
    def until(cls, what: str, wait_s: float, *, hint: str = "") -> Busy:
        """Make an error that says when to try again.

        Args:
            what: The excess, as in "too many requests".
            wait_s: When to try again, in seconds from now.
            hint: Advice on what to do instead.
        """
        error = cls(f"{what}; try again in {max(wait_s, 0.1):.1f} s", hint=hint)
        error.retry_after_ms = round(1000 * max(wait_s, 0.1))
        return error


class NotAuthenticated(EvaError):
    """The caller has no token, or its token is not valid."""


class ChallengeOver(NotAuthenticated):
    """A proof of an identity comes too late, a second time, or for another start of the master."""


class NotAuthorised(EvaError):
    """The caller may not do this."""


class IllegalTransition(EvaError):
    """A transition that a state table forbids.

    Args:
        entity: The thing to change, such as ``task run resnet-3/0``.
        source: Its present state.
        target: The state that was refused.
        history: Its earlier states, oldest first, each with its time in milliseconds.
    """

    def __init__(
        self, entity: str, source: str, target: str, history: tuple[tuple[str, int], ...]
    ) -> None:
        trail = " -> ".join(f"{state}@{at}" for state, at in history)
        super().__init__(f"{entity}: {source} -> {target} is not legal; history: {trail}")
        self.history = history
