"""All pages and actions: see the package's docstring for how one is added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from eva_master.adapters.pages import reads
from eva_master.adapters.pages.page import Action, Asked, Page, RenderingScope, Values
from eva_master.adapters.pages.shown.feed import page as events_page
from eva_master.adapters.pages.shown.fleet import fleet
from eva_master.adapters.pages.shown.instance import instance
from eva_master.adapters.pages.shown.job import JobViews, job
from eva_master.adapters.pages.shown.jobs import jobs
from eva_master.adapters.pages.shown.money import money_page
from eva_master.adapters.pages.shown.overview import overview
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_wire.rpc.messages import ClusterState, OverviewResponse
from eva_wire.text.quantities import parse_cap
from eva_wire.values.errors import InvalidRequest

_LOG_S = 2.0
"""A log grows though the cluster stays as it is."""


def _overview(views: OverviewResponse, asked: Asked) -> Values:  # noqa: ARG001
    return {"page": overview(views)}


def _fleet(views: ClusterState, asked: Asked) -> Values:  # noqa: ARG001
    return {"page": fleet(views)}


def _instance(views: reads.InstanceViews, asked: Asked) -> Values:
    return {"page": instance(views.instance, views.explained, views.events, asked.now_ms)}


def _jobs(views: reads.JobsViews, asked: Asked) -> Values:
    return {"page": jobs(views.jobs, views.token, views.query, asked.now_ms)}


def _job(views: tuple[JobViews, reads.LogViews], asked: Asked) -> Values:
    about, log = views
    may_change = asked.audience.may_change(about.job.owner)
    return {"page": job(about, asked.now_ms, may_change=may_change), "log": log}


def _money(views: reads.MoneyViews, asked: Asked) -> Values:  # noqa: ARG001
    return {"page": money_page(views.bill, views.by, views.label)}


def _events(views: reads.EventsViews, asked: Asked) -> Values:
    return {"page": events_page(views.events, views.query, asked.now_ms, more=views.more)}


PAGES = (
    Page("/", "Overview", "overview.html", reads.overview, _overview, nav="Overview"),
    Page("/cluster", "Cluster", "cluster.html", reads.fleet, _fleet, nav="Cluster"),
    Page("/cluster/{instance}", "Instance", "instance.html", reads.instance, _instance),
    Page(
        "/jobs",
        "Jobs",
        "jobs.html",
        reads.jobs,
        _jobs,
        nav="Jobs",
        query=("state", "search", "label", "sort", "after"),
    ),
    Page(
        "/jobs/{job}",
        "Job",
        "job.html",
        reads.job,
        _job,
        query=("task",),
        sharing=RenderingScope.OWNER,
        refresh_s=_LOG_S,
    ),
    Page("/money", "Money", "money.html", reads.money, _money, nav="Money", query=("by", "label")),
    Page(
        "/events",
        "Events",
        "events.html",
        reads.events,
        _events,
        nav="Events",
        query=("subject", "kind", "before"),
        sharing=RenderingScope.OWNER,
    ),
)


def _of_job(make: Callable[..., Message]) -> Callable[[Mapping[str, str], Mapping[str, str]], Any]:
    return lambda names, _fields: make(job=names["job"])


def _resumption(names: Mapping[str, str], fields: Mapping[str, str]) -> pb.ResumeRequest:
    """The request to have a job go on, with another cap if the field for that is filled in."""
    typed = fields.get("max_cost", "").strip()
    try:
        cap = parse_cap(typed) if typed else None
    except ValueError as error:
        raise InvalidRequest(
            f"{typed[:40]!r} is no most that a job may cost",
            hint="write dollars, more than 0 and at most a million, such as 10",
        ) from error
    return pb.ResumeRequest(job=names["job"], max_cost_micro_usd=cap)


ACTIONS = (
    Action(
        "/jobs/{job}/cancel",
        "Jobs/Cancel",
        lambda names, fields: pb.CancelRequest(job=names["job"], now=fields.get("now") == "yes"),
    ),
    Action("/jobs/{job}/suspend", "Jobs/Suspend", _of_job(pb.SuspendRequest)),
    Action("/jobs/{job}/resume", "Jobs/Resume", _resumption),
    Action(
        "/jobs/{job}/retry",
        "Jobs/Retry",
        lambda names, fields: pb.RetryRequest(
            job=names["job"], failed=fields.get("failed") == "yes"
        ),
        then=lambda answer, _names: f"/jobs/{answer.job_id}",
    ),
)
