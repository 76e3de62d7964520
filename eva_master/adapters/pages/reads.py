"""Questions of the pages to the services."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from eva_master.adapters.pages.page import Ask, Asked
from eva_master.adapters.pages.shown.feed import MOST_EVENTS, EventsQuery, events_query
from eva_master.adapters.pages.shown.job import JobViews
from eva_master.adapters.pages.shown.jobs import JobsQuery, query_of
from eva_master.adapters.pages.shown.money import BY
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_wire.rpc.messages import Bill, FeedEvent, Instance, Job
from eva_wire.values.errors import EvaError, NotAuthorised, NotFound

JOBS_PER_PAGE = 100
_MOST_SCANNED = 10
"""Pages of the archive that are looked through for jobs that a filter lets pass."""
_JOB_EVENTS = 100
_LOG_LINES = 200
_LOG_BYTES = 64 << 10
_LOG_CHUNKS = 400
_BILLED = 200


async def overview(ask: Ask, asked: Asked) -> pb.OverviewResponse:  # noqa: ARG001
    """The cluster at a glance."""
    answer: pb.OverviewResponse = await ask("Cluster/Overview", pb.OverviewRequest())
    return answer


async def fleet(ask: Ask, asked: Asked) -> pb.ClusterState:  # noqa: ARG001
    """The cluster with the tasks on its instances."""
    state: pb.ClusterState = await ask("Cluster/Describe", pb.DescribeRequest(placed=True))
    return state


@dataclass(frozen=True, slots=True)
class InstanceViews:
    """Answers of the services about an instance."""

    instance: Instance
    explained: pb.Explanation | None
    events: Sequence[FeedEvent]


async def instance(ask: Ask, asked: Asked) -> InstanceViews:
    """An instance, the reasons for it, and its events."""
    name = asked.names["instance"]
    state = await ask("Cluster/Describe", pb.DescribeRequest(instance=name, placed=True))
    return InstanceViews(
        state.instances[0], await _explained(ask, name), await _events(ask, name, _JOB_EVENTS)
    )


@dataclass(frozen=True, slots=True)
class JobsViews:
    """A page of jobs, and the token of the next one."""

    jobs: Sequence[Job]
    token: str
    query: JobsQuery


async def jobs(ask: Ask, asked: Asked) -> JobsViews:
    """A page of jobs; of the archive as many pages as a filter needs, within bounds."""
    query = query_of(asked.query)
    token, listed = query.after, list[Job]()
    for _ in range(_MOST_SCANNED if query.every else 1):
        answer = await ask(
            "Jobs/List",
            pb.ListJobsRequest(
                page_size=JOBS_PER_PAGE,
                page_token=token,
                all=query.every,
                labels=query.labels,
                states=query.states,
                search=query.search,
            ),
        )
        listed += answer.jobs
        token = answer.next_page_token
        if not token or len(listed) >= JOBS_PER_PAGE // 2:
            break
    return JobsViews(listed, token, query)


@dataclass(frozen=True, slots=True)
class LogViews:
    """The end of a task's log.

    Attributes:
        note: Why there is none.
    """

    task: str
    text: str
    note: str


async def job(ask: Ask, asked: Asked) -> tuple[JobViews, LogViews]:
    """A job with all that its page shows."""
    message: Job = await ask("Jobs/Get", pb.GetJobRequest(job=asked.names["job"], curves=True))
    files: list[pb.StoredFile] = []
    # Files of others are for operators.
    if asked.audience.may_change(message.owner):
        with suppress(EvaError):
            lists = await ask.all("Files/List", pb.ListFilesRequest(job=message.id))
            files = [file for each in lists for file in each.files]
    views = JobViews(
        message,
        await _events(ask, message.id, _JOB_EVENTS),
        await _explained(ask, message.id),
        files,
    )
    return views, await _log(ask, message, asked.query.get("task", "0"))


async def _log(ask: Ask, message: Job, task: str) -> LogViews:
    """The last lines of a task's log."""
    index = int(task) if task.isascii() and task.isdigit() and len(task) < 10 else 0
    request = pb.LogsRequest(job=message.id, task=index, tail=_LOG_LINES)
    try:
        chunks = await ask.all("Jobs/Logs", request, _LOG_CHUNKS)
    except (NotFound, NotAuthorised) as error:
        return LogViews(str(index), "", f"{error.message}. {error.hint}".strip())
    except EvaError as error:
        return LogViews(str(index), "", error.message)
    data = b"".join(chunk.data for chunk in chunks)[-_LOG_BYTES:]
    text = codecs.decode(data, "utf-8", "backslashreplace")
    return LogViews(str(index), text, "" if text else "It has printed nothing yet.")


@dataclass(frozen=True, slots=True)
class MoneyViews:
    """The bill, and how it is divided."""

    bill: Bill
    by: str
    label: str


async def money(ask: Ask, asked: Asked) -> MoneyViews:
    """The bill with one division."""
    by = asked.query.get("by", "")
    by = by if by in BY else "job"
    label = asked.query.get("label", "").strip()[:100]
    whole = by == "instance" or (by == "label" and not label)
    request = pb.CostRequest(
        page_size=_BILLED,
        without_jobs=True,
        without_instances=by != "instance",
        by="" if whole else f"label:{label}" if by == "label" else by,
    )
    bill: Bill = await ask("Cluster/Cost", request)
    return MoneyViews(bill, by, label)


@dataclass(frozen=True, slots=True)
class EventsViews:
    """Events, and whether there may be older ones."""

    events: Sequence[FeedEvent]
    query: EventsQuery
    more: bool


async def events(ask: Ask, asked: Asked) -> EventsViews:
    """A page of events, of a job or an instance if one is named, the newest if none is."""
    query = events_query(asked.query)
    # A kind that is rare has others looked through, but never all that are kept.
    most = 5 * MOST_EVENTS if query.kind else MOST_EVENTS
    listed = await _events(ask, query.subject, most, query.before)
    return EventsViews(listed, query, more=len(listed) == most)


async def _events(ask: Ask, subject: str, last: int, before: int = 0) -> list[FeedEvent]:
    request = pb.EventsRequest(subject=subject, last=last, before=before)
    answers = await ask.all("Cluster/Events", request)
    return [event for answer in answers for event in answer.events]


async def _explained(ask: Ask, subject: str) -> pb.Explanation | None:
    try:
        explained: pb.Explanation = await ask("Cluster/Explain", pb.ExplainRequest(subject=subject))
    except NotFound:
        return None
    return explained
