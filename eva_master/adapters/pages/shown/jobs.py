"""The page Jobs: a list with filters, newest first; older ones come from the archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from eva_client.cli.views import job_tasks, tables
from eva_client.cli.views.words import ago, money
from eva_master.adapters.pages.shown.colours import Colour, colour_of
from eva_wire.rpc.messages import Job
from eva_wire.values.durations import span

STATES = ("running", "pending", "suspended", "ending", "succeeded", "failed", "cancelled")
ENDED = frozenset({"succeeded", "failed", "cancelled"})
SORTS: Mapping[str, tuple[str, Callable[[Job], Any]]] = {
    "newest": ("newest first", lambda job: -job.submitted_ms),
    "cost": ("dearest first", lambda job: -job.cost_micro_usd),
    "name": ("by name", lambda job: job.name),
    "owner": ("by owner", lambda job: job.owner),
    "state": ("by state", lambda job: STATES.index(job.state) if job.state in STATES else 99),
}
"""Orders of the jobs of one page, by their parameter."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of the list.

    Attributes:
        percent: Work done, from 0 to 100; `None` if unknown.
        eta: In how long it is expected to end; ``-`` if unknown.
        alone: Its cost on instances of its own.
        note: Its reason, or what it waits for.
    """

    id: str
    name: str
    owner: str
    tenant: str
    partition: str
    colour: Colour
    state: str
    tasks: str
    where: str
    percent: int | None
    eta: str
    cost: str
    alone: str
    age: str
    note: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of a filter."""

    value: str
    words: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class JobsPage:
    """Contents of the page.

    Attributes:
        states: Filter by state. sorts: Order.
        older: Path of the page with older jobs; empty on the last page.
        first: Path of the first page; empty on that page.
        filtered: Whether jobs may be hidden by a filter.
        every: Whether ended jobs are listed.
    """

    rows: tuple[JobRow, ...]
    states: tuple[Choice, ...]
    sorts: tuple[Choice, ...]
    search: str
    label: str
    older: str
    first: str
    filtered: bool
    every: bool
    tenants: bool
    partitions: bool


@dataclass(frozen=True, slots=True)
class JobsQuery:
    """Filters, order and place of a list, by the parameters of the page.

    Attributes:
        state: ``active``, ``all`` or a state.
        label: ``KEY=VALUE``; empty for any.
        after: Token of the page.
    """

    state: str = "active"
    search: str = ""
    label: str = ""
    sort: str = "newest"
    after: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The label that jobs have."""
        key, equals, value = self.label.partition("=")
        return {key.strip(): value.strip()} if equals and key.strip() else {}

    @property
    def states(self) -> list[str]:
        """The states that jobs are in; none for any."""
        return [self.state] if self.state in STATES else []

    @property
    def every(self) -> bool:
        """Whether ended jobs are asked for."""
        return self.state == "all" or self.state in ENDED

    def path(self, **changes: str) -> str:
        """The path of this page with other parameters."""
        usual = JobsQuery()
        values = {name: getattr(self, name) for name in self.__slots__} | changes
        said = {name: value for name, value in values.items() if value != getattr(usual, name)}
        return f"/jobs?{urlencode(said)}" if said else "/jobs"


def query_of(parameters: Mapping[str, str]) -> JobsQuery:
    """The question of a page's parameters; what is strange counts as not said."""
    state = parameters.get("state", "")
    sort = parameters.get("sort", "")
    return JobsQuery(
        state=state if state in (*STATES, "all") else "active",
        search=parameters.get("search", "").strip()[:200],
        label=parameters.get("label", "").strip()[:300],
        sort=sort if sort in SORTS else "newest",
        after=parameters.get("after", ""),
    )


def jobs(listed: Sequence[Job], token: str, query: JobsQuery, now: int) -> JobsPage:
    """The page.

    Args:
        listed: The jobs of the page.
        token: Of the page with older ones; empty on the last page.
        query: Its filters and order.
        now: The time.
    """
    ordered = sorted(listed, key=SORTS[query.sort][1])
    choices = ("active", *STATES, "all")
    return JobsPage(
        rows=tuple(row(job, now) for job in ordered),
        states=tuple(Choice(name, name, name == query.state) for name in choices),
        sorts=tuple(Choice(name, said, name == query.sort) for name, (said, _) in SORTS.items()),
        search=query.search,
        label=query.label,
        older=query.path(after=token) if token else "",
        first=query.path(after="") if query.after else "",
        filtered=bool(query.search or query.label or query.state != "active"),
        every=query.every,
        tenants=any(job.tenant not in ("", "default") for job in listed),
        partitions=any(job.partition for job in listed),
    )


def row(job: Job, now: int) -> JobRow:
    """A job as a row."""
    done = job_tasks.share_done(job)
    over = job.state in ENDED
    age = span(now - job.submitted_ms) if not over else ago(job.finished_ms, now)
    return JobRow(
        id=job.id,
        name=job.name,
        owner=job.owner,
        tenant=job.tenant,
        partition=job.partition,
        colour=colour_of(job.id),
        state=job.state,
        tasks=f"{job_tasks.counted(job).get('running', 0)}/{job_tasks.number(job)}",
        where=tables.where_of(job.tasks),
        percent=None if done is None else round(100 * done),
        eta="-" if over else tables.eta(job, now),
        cost=money(job.cost_micro_usd),
        alone=money(job.no_packing_micro_usd),
        age=age,
        note=tables.note_of(job),
        labels=tuple(sorted(job.labels.items())),
    )
