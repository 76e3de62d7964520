"""Copies of plain files in the object store: their names, and the one that an attempt begins from.

Plain files are all that a program has in ``$EVA_CHECKPOINT_DIR`` beside generations of the SDK. A
copy of them exists as long as its list does. The contents of the files lie beside the lists, by
digest, so that a file that stays is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from eva_worker.files.checkpoints import MOST_GENERATION, checkpoints_prefix

_NAME = re.compile(r"([0-9]{8,16})-([0-9]{4,10})-([0-9]{1,7})-([a-z]+)")
_KEPT = 2
"""Copies kept: the newest, and the one before in case the newest proves unusable."""


class How(StrEnum):
    """How a copy came about."""

    QUIET = "quiet"
    """While the program ran, and no file changed meanwhile."""
    ENDED = "ended"
    """After the program had ended by itself: the files as they stand."""
    STOPPED = "stopped"
    """After a stop within its grace: the files as they stand."""
    IDLE = "idle"
    """After a stop within its grace, of a member of a gang that had written nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """A copy of a task run's plain files.

    Attributes:
        number: Counts the copies of the task run, over all attempts.
        attempt: The attempt that stored it.
        members: How many tasks the gang of that attempt had, 1 for a task on its own.
        how: How it came about.
    """

    number: int
    attempt: int
    members: int
    how: How

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"{self.number:08d}-{self.attempt:04d}-{self.members}-{self.how}"


def parsed(name: str) -> Copy | None:
    """The copy that has this name, `None` if none can have it."""
    match = _NAME.fullmatch(name)
    if match is None or match[4] not in set(How) or not 0 < int(match[1]) <= MOST_GENERATION:
        return None
    copy = Copy(int(match[1]), int(match[2]), int(match[3]), How(match[4]))
    return copy if copy.name == name else None


def plain_prefix(run: str) -> str:
    """Key prefix of a task run's plain files in the object store."""
    return f"{checkpoints_prefix(run)}/plain"


def list_key(run: str, copy: Copy) -> str:
    """Key of a copy's list."""
    return f"{plain_prefix(run)}/{copy.name}.json"


def blob_key(run: str, digest: str) -> str:
    """Key of the content of a file."""
    return f"{plain_prefix(run)}/files/{digest}"


def copies_in(run: str, keys: Collection[str]) -> list[Copy]:
    """The copies of a task run that exist, oldest first."""
    prefix = f"{plain_prefix(run)}/"
    names = (key.removeprefix(prefix) for key in keys if key.endswith(".json"))
    parsed_names = (parsed(name.removesuffix(".json")) for name in names)
    return sorted(copy for copy in parsed_names if copy is not None)


def newest(copies: Collection[Copy]) -> Copy | None:
    """The newest copy that holds files, `None` if there is none."""
    return max((copy for copy in copies if copy.how is not How.IDLE), default=None)


def chosen(
    run: str, job: str, attempt: int, copies: Mapping[str, Collection[Copy]]
) -> tuple[str, Copy] | None:
    """The copy that a member of a gang begins from, and whose it is; `None` for none.

    Of the latest attempt in which anything was written: if all members were stopped within their
    grace, each begins from what it had, and members that had written nothing from what the first
    one had that did. Otherwise all begin from the newest copy of rank 0.

    Args:
        run: The member.
        job: Its job.
        attempt: The attempt that begins; members that began sooner may have stored copies of it.
        copies: Copies of each task run of the job.
    """
    first = f"{job}/0"
    attempts = {copy.attempt for of_run in copies.values() for copy in of_run}
    for number in sorted((earlier for earlier in attempts if earlier < attempt), reverse=True):
        present = {
            member: [copy for copy in of_run if copy.attempt == number]
            for member, of_run in copies.items()
        }
        ends = {
            member: max(of_run)
            for member, of_run in present.items()
            if of_run and max(of_run).how in {How.STOPPED, How.IDLE}
        }
        crew = [f"{job}/{rank}" for rank in range(ends[first].members)] if first in ends else []
        if crew and all(member in ends for member in crew):
            writers = [member for member in crew if ends[member].how is How.STOPPED]
            if writers:
                owner = run if run in writers else writers[0]
                return owner, ends[owner]
        elif (copy := newest(present.get(first, ()))) is not None:
            return first, copy
    return None


def obsolete(copies: Collection[Copy], origin: str) -> list[Copy]:
    """The copies that no attempt will begin from, oldest first.

    Args:
        copies: Copies of a task run.
        origin: The name of the one that the present attempt began from, empty for none.
    """
    ordered = sorted(copies)
    held = [copy for copy in ordered if copy.how is not How.IDLE][-_KEPT:]
    idle = [copy for copy in ordered if copy.how is How.IDLE][-_KEPT:]
    return [copy for copy in ordered if copy not in held + idle and copy.name != origin]
