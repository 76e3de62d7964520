"""Pages of lists, newest first. A token names the last entry of the previous page.

So entries that are added or end between two pages neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.ports.instances import InstanceRecord
from eva_master.ports.reading import (
    PAGE_AT_MOST,
    SHOWN,
    SMALL_JOB,
    Archive,
    JobRecord,
    ReadModel,
    TaskPage,
)
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import InstanceId, JobId, Millis, number_of
from eva_wire.values.states import TERMINAL_JOB, InstanceState

Name = TypeVar("Name", JobId, InstanceId)

_USUAL = 100
_ENTRIES_PER_PAGE_AT_MOST = 1000
_BYTES_PER_PAGE = 1024 * 1024
"""A page ends with the entry that takes it beyond this size."""


def size(asked: int) -> int:
    """The largest number of entries of a page, by the requested number."""
    return min(asked or _USUAL, _ENTRIES_PER_PAGE_AT_MOST)


def of_tasks(request: pb.GetJobRequest) -> TaskPage:
    """The page of a job's tasks that is asked for."""
    if not request.HasField("tasks"):
        return SHOWN
    asked = request.tasks
    return TaskPage(asked.first, min(asked.size or SMALL_JOB, PAGE_AT_MOST), asked.failed)


def encoded(last: str) -> str:
    """The token of the page after the one that ends with `last`."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def decoded(token: str, kind: Callable[[str], Name]) -> Name | None:
    """Decode the name in a token, `None` for the first page.

    Raises:
        BadRequest: The token is not one of a master.
    """
    try:
        name = base64.urlsafe_b64decode(token.encode()).decode() if token else None
    except (binascii.Error, UnicodeError) as error:
        raise BadRequest("this is no page token") from error
    if name is not None and number_of(name) < 0:
        raise BadRequest("this page token is not one of this cluster's")
    return None if name is None else kind(name)


def cut(names: Sequence[Name], limit: int) -> tuple[Sequence[Name], str]:
    """A page of at most `limit` names, and the token of the next one, empty if there is none."""
    page = names[:limit]
    return page, encoded(page[-1]) if len(names) > limit else ""


def that_fit(
    made: Iterable[pb.Job], records: Sequence[JobRecord], token: str
) -> tuple[list[pb.Job], str]:
    """As many messages of a page as are small enough together, at least one.

    Args:
        made: The messages of the page, made as they are taken.
        records: Of the same jobs.
        token: Of the page that follows all of them.

    Returns:
        The messages, and the token of the page that follows.
    """
    messages: list[pb.Job] = []
    size = 0
    for message, record in zip(made, records, strict=True):
        messages.append(message)
        size += message.ByteSize()
        if size > _BYTES_PER_PAGE and len(messages) < len(records):
            return messages, encoded(record.job.id)
    return messages, token


def all_jobs(
    model: ReadModel, archive: Archive, token: str, limit: int, now: Millis
) -> tuple[list[JobRecord], str]:
    """A page of all jobs ever submitted, and the token of the next one; takes time."""
    names, following = cut(archive.page_of_jobs(decoded(token, JobId), limit + 1), limit)
    return list(jobs(model, archive, names, now).values()), following


def jobs(
    model: ReadModel, archive: Archive, names: Sequence[JobId], now: Millis
) -> Mapping[JobId, JobRecord]:
    """Jobs by their ids, as they are now; one that there is not is left out. Takes time.

    A job that was written down after the model was published is left out as well: the instances
    and task runs that it names are not in the model.
    """
    missing = [name for name in names if name not in model.jobs]
    archived = archive.records_of_jobs(missing) if missing else {}
    over = {name: record for name, record in archived.items() if record.job.state in TERMINAL_JOB}
    return {
        name: model.record(name, now) if name in model.jobs else over[name]
        for name in names
        if name in model.jobs or name in over
    }


def all_instances(
    model: ReadModel, archive: Archive, token: str, limit: int, now: Millis
) -> tuple[list[InstanceRecord], str]:
    """A page of all instances ever launched, and the token of the next one; takes time."""
    page = archive.page_of_instances(decoded(token, InstanceId), limit + 1)
    names, following = cut(page, limit)
    missing = [name for name in names if name not in model.instances]
    written = archive.records_of_instances(missing) if missing else {}
    over = {
        name: record
        for name, record in written.items()
        if record.instance.state is InstanceState.GONE
    }
    records = [
        model.billed(name, now) if name in model.instances else over[name]
        for name in names
        if name in model.instances or name in over
    ]
    return records, following
