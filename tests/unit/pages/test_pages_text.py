"""Names, reasons and logs show as the text that they are; pages are small, and say what to do."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from click import Context

from eva_client.cli import main
from eva_master.adapters.pages import rendering
from eva_master.adapters.pages.page import Asked, Audience
from eva_master.adapters.pages.reads import EventsViews, JobsViews, LogViews, MoneyViews
from eva_master.adapters.pages.rendering import Templates, static_files
from eva_master.adapters.pages.routes import PAGES
from eva_master.adapters.pages.shown.feed import EventsQuery
from eva_master.adapters.pages.shown.job import JobViews
from eva_master.adapters.pages.shown.jobs import JobsQuery, query_of
from eva_master.adapters.rpc.server.overview import attention
from eva_master.adapters.rpc.server.shown import deadlines
from eva_wire.rpc.messages import (
    Bill,
    ClusterState,
    CostShare,
    Curve,
    FeedEvent,
    Instance,
    Job,
    Note,
    OverviewResponse,
    PlacedTask,
    Resources,
    StoredFile,
    Task,
)
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role

PAGES_DIR = Path(rendering.__file__).parent
COMMAND = re.compile(r"[>\"` ]eva ([a-z]+)")
EVIL = "<script>alert(1)</script>\"'><img src=x>\u202egnp.exe\x1b[31m"
ASKED = Asked("/", {}, {}, Audience(Role.OPERATOR), Millis(10_000))


def content(path: str, views: object) -> str:
    page = next(page for page in PAGES if page.path == path)
    values = {"asked": ASKED, **page.shows(views, ASKED)}
    return str(Templates(static_files()).content(page.template, values).html)


def job(**more: object) -> Job:
    message = Job(
        id="evil-1",
        name=EVIL,
        owner=EVIL,
        state="running",
        reason=EVIL,
        labels={"team": EVIL},
        tasks=[Task(state="running", instance="i-1", name=EVIL, attempt=1, why=EVIL)],
        task_count=1,
        curves=[Curve(name=EVIL, at_ms=[1_000, 2_000], values=[0.5, 0.25])],
    )
    message.MergeFrom(Job(**more))  # type: ignore[arg-type]
    return message


EVENT = FeedEvent(number=1, kind="failed", job="evil-1", text=EVIL, at_ms=1_000)
INSTANCE = Instance(
    id="i-1",
    type="c7i.large",
    state="ready",
    connected=True,
    reason=EVIL,
    pool=EVIL,
    price_micro_usd_per_hour=89_250,
    capacity=Resources(milli_cpus=2_000, memory_mib=4_096),
    tasks=["evil-1/0"],
    placed=[PlacedTask(task="evil-1/0", name=EVIL, state="running", share=Resources(milli_cpus=1))],
)
HOSTILE = {
    "/": OverviewResponse(
        state=ClusterState(policy=EVIL, jobs_by_state={"running": 1}, now_ms=10_000),
        notes=[Note(level=EVIL, kind="job", subject="evil-1", sentence=EVIL, advice=EVIL)],
        events=[EVENT],
    ),
    "/cluster": ClusterState(instances=[INSTANCE], now_ms=10_000),
    "/cluster/{instance}": SimpleNamespace(instance=INSTANCE, explained=None, events=[EVENT]),
    "/jobs": JobsViews([job()], "", JobsQuery(search=EVIL)),
    "/jobs/{job}": (
        JobViews(job(), [EVENT], None, [StoredFile(path=f"outputs/{EVIL}", size=3)]),
        LogViews("0", f"line\n{EVIL}\n", ""),
    ),
    "/money": MoneyViews(
        Bill(cost_micro_usd=5, shares=[CostShare(name=EVIL, cost_micro_usd=5)]), "owner", EVIL
    ),
    "/events": EventsViews([EVENT], EventsQuery(EVIL, before=9), more=True),
}


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_names_reasons_and_logs_are_text(path: str) -> None:
    html = content(path, HOSTILE[path])
    assert "alert(1)" in html
    assert "<script" not in html
    assert "<img" not in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert " style=" not in html
    assert " onclick" not in html


def test_a_file_is_found_whatever_its_name_holds() -> None:
    stored = [StoredFile(task=3, path="outputs/50%? #1/ä.txt", size=3)]
    html = content("/jobs/{job}", (JobViews(job(), [], None, stored), LogViews("0", "", "")))
    assert 'href="/jobs/evil-1/files/3/outputs/50%25%3F%20%231/%C3%A4.txt"' in html


def test_empty_pages_say_what_to_do() -> None:
    empty = {
        "/": OverviewResponse(),
        "/cluster": ClusterState(),
        "/jobs": JobsViews([], "", JobsQuery()),
        "/money": MoneyViews(Bill(), "owner", ""),
    }
    for path, views in empty.items():
        assert "eva submit" in content(path, views), path
    assert "Show all jobs" in content("/jobs", JobsViews([], "", JobsQuery(search="x")))


def test_commands_that_pages_name_are_there() -> None:
    modules = (attention, deadlines)
    sources = [
        *(PAGES_DIR / "templates").iterdir(),
        *(Path(module.__file__ or "") for module in modules),
    ]
    named = {name for source in sources for name in COMMAND.findall(source.read_text())}
    assert {"submit", "get", "explain", "resume"} <= named
    assert named <= set(main.list_commands(Context(main)))


def test_the_first_page_is_small() -> None:
    files = static_files()
    page = content("/", HOSTILE["/"]).encode()
    whole = len(page) + sum(len(file.data) for file in files.values())
    assert whole < 300_000
    assert len(gzip.compress(files["eva.css"].data)) < 10_000


@pytest.mark.parametrize(("instances", "tasks"), [(2_000, 5), (300, 5)])
def test_the_page_of_a_large_cluster_is_at_most_a_megabyte(instances: int, tasks: int) -> None:
    share = Resources(gpus=1, milli_cpus=4_000, memory_mib=16 << 10)
    message = ClusterState(now_ms=10_000)
    for number in range(instances):
        names = [f"train-{number * tasks + index}/0" for index in range(tasks)]
        message.instances.append(
            Instance(
                id=f"i{number:05}",
                type="p3.8xlarge",
                state="ready",
                connected=True,
                price_micro_usd_per_hour=12_240_000,
                capacity=Resources(gpus=8, milli_cpus=32_000, memory_mib=244 << 10),
                used=share,
                tasks=names,
                placed=[
                    PlacedTask(
                        task=name, name="train", state="running", share=share, normalised=0.9
                    )
                    for name in names
                    if instances <= 300
                ],
            )
        )
    assert len(content("/cluster", message).encode()) <= 1_000_000


def test_strange_parameters_of_the_list_count_as_not_said() -> None:
    assert query_of({"state": EVIL, "sort": EVIL}) == JobsQuery()
    query = query_of({"state": "failed", "label": "team=vision", "search": " x "})
    assert (query.states, query.labels, query.search) == (["failed"], {"team": "vision"}, "x")
    assert query.every
    assert query.path(after="abc") == "/jobs?state=failed&search=x&label=team%3Dvision&after=abc"


def test_actions_are_offered_as_the_state_and_the_viewer_allow() -> None:
    def offered(state: str, role: Role = Role.OPERATOR) -> set[str]:
        message = job(state=state)
        asked = Asked("/", {}, {}, Audience(role, "somebody"), Millis(10_000))
        page = next(page for page in PAGES if page.path == "/jobs/{job}")
        views = JobViews(message, [], None, []), LogViews("0", "", "")
        html = str(
            Templates(static_files())
            .content(page.template, {"asked": asked, **page.shows(views, asked)})
            .html
        )
        verbs = ("suspend", "resume", "cancel", "retry")
        return {verb for verb in verbs if f"/jobs/evil-1/{verb}" in html}

    assert offered("running") == {"suspend", "cancel"}
    assert offered("failed") == {"retry"}
    assert offered("running", Role.VIEWER) == set()
    assert offered("running", Role.USER) == set()  # a job of another user's
