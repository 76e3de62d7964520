"""Notes on the page Overview: each with its sentence and advice, for as long as it lasts."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pages import live
from eva_master.adapters.pages.shown.overview import overview
from eva_master.adapters.rpc.server.shown.installed import NOTES
from eva_master.control.state.parts.months import MonthLevels
from eva_master.control.state.store import State
from eva_master.model.accounting.months import MonthLevel
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.fleet.partitions import Budget, Partition, Partitions
from eva_master.model.job import Deadline
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.tenants.quotas import TenantLimits
from eva_master.ports.reading import Pause, ReadModel
from eva_wire.rpc.messages import Note, OverviewResponse
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import InstanceState, JobState
from eva_wire.values.users import Role
from tests.fakes.models import model_of
from tests.fakes.rpc.pages import Browser, PageMaster, page_master
from tests.fakes.rpc.server import CATALOG, SMALL, add_instance, add_job, spec

HOURLY = Budget(per_hour=100_000)
PARTS = Partitions((Partition("a", default=True), Partition("b", budget=HOURLY)))
NOTE = re.compile(
    r'<li class="(bad|warn)"><p class="clamp">(.*?)</p>\n(?:<p class="sub">(.*?)</p>)?'
)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Shown:
    """A note as a reader of the page has it."""

    level: str
    sentence: str
    advice: str


class _Limited:
    """A model whose tenants have these limits."""

    def __init__(self, model: ReadModel, limits: Mapping[str, TenantLimits]) -> None:
        self._model = model
        self._limits = limits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def tenant_limits(self, _: Millis) -> Mapping[str, TenantLimits]:
        return self._limits


@dataclass
class Site:
    """A cluster, and a browser before its page."""

    pages: PageMaster
    browser: Browser

    async def change(self, change: Callable[[State], object]) -> None:
        await self.pages.master.loop.change(change)

    async def notes(self) -> list[Shown]:
        """The notes of a page that is rendered now."""
        answer = await self.browser.get("/")
        assert answer.status == 200
        text = answer.text.partition('id="notes-title"')[2].partition("</section>")[0]
        return [
            Shown(level, _text(said), _text(advice)) for level, said, advice in NOTE.findall(text)
        ]

    async def shows(self, level: str, sentence: str, advice: str) -> None:
        """The only note of the page."""
        assert await self.notes() == [Shown(level, sentence, advice)]

    async def is_quiet(self) -> None:
        assert await self.notes() == []


def _text(markup: str) -> str:
    return html.unescape(_TAG.sub("", markup)).strip()


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(live, "EVERY_S", 0.0)
    async with page_master(tmp_path, partitions=PARTS) as pages:
        yield Site(pages, await pages.logged_in("oda", Role.OPERATOR))


def _now() -> Millis:
    return SystemClock().now()


def _end(state: State, job: JobId, how: JobState) -> None:
    for step in (JobState.RUNNING, JobState.ENDING, how):
        state.put_job(state.jobs[job].to(step, _now()))


async def test_a_budget_is_told_of_from_four_fifths_on_until_there_is_room(site: Site) -> None:
    def launched(state: State) -> InstanceId:
        name = add_instance(state)
        state.put_instance(replace(state.instances[name], partition="b"))
        return name

    await site.is_quiet()
    name = await site.pages.master.loop.change(launched)
    await site.shows(
        "warn",
        "partition b $0.0892/h of $0.10/h is spent, its budget per hour.",
        "Purchases stop at its end. The master's settings raise it.",
    )
    await site.change(
        lambda state: state.put_instance(
            replace(state.instances[name], offering=replace(SMALL, price=100_000))
        )
    )
    (note,) = await site.notes()
    assert note.level == "bad"
    assert note.advice.startswith("Nothing more is bought, and what runs goes on.")
    await site.change(
        lambda state: state.put_instance(
            replace(state.instances[name].to(InstanceState.GONE, _now()), gone_ms=_now())
        )
    )
    await site.is_quiet()


def test_a_budget_of_a_tenant_is_told_of_and_its_end() -> None:
    def notes(spent: int) -> list[Note]:
        limits = {"vision": TenantLimits(budget=10_000_000, month=spent), "other": TenantLimits()}
        model: Any = _Limited(model_of(State(CATALOG)), limits)
        return [note for part in NOTES for note in part(model, _now())]

    assert notes(7_999_999) == []
    (near,), (over,) = notes(8_000_000), notes(10_000_000)
    assert (near.level, over.level) == ("warn", "bad")
    shown = overview(OverviewResponse(notes=[over])).notes[0]
    assert shown.sentence == "$10.00 of $10.00 is spent, its budget of this month."
    assert shown.href == "/money"


async def test_a_late_job_is_told_of_once_until_it_ends(site: Site) -> None:
    def late(state: State) -> JobId:
        key = add_job(state, replace(spec("slow"), deadline=Deadline(within_ms=60_000)))
        told = FeedEvent(1, _now(), FeedKind.LATE, job=key, text="its deadline has passed")
        state.feed.append(told)
        return key

    job = await site.pages.master.loop.change(late)
    (note,) = await site.notes()
    assert note.level == "bad"
    assert re.fullmatch(r"slow-\d+ It is late: it was due .+ ago\.", note.sentence)
    assert note.advice == f"A job of higher priority goes first. eva explain {job}"
    await site.change(lambda state: _end(state, job, JobState.CANCELLED))
    await site.is_quiet()


async def test_types_that_the_cloud_refuses_are_told_of_until_it_is_asked_again(
    site: Site,
) -> None:
    hour = Millis(_now() + 3_600_000)
    await site.change(lambda state: state.set_unavailable([SMALL.id], hour, "no capacity"))
    await site.shows(
        "warn",
        "The cloud refuses to launch c7i.large at present.",
        "Eva buys other types meanwhile and tries again. A higher quota helps. eva events",
    )
    await site.change(lambda state: state.set_unavailable([SMALL.id], Millis(1), "no capacity"))
    await site.is_quiet()


async def test_an_agent_that_is_silent_is_told_of_until_it_is_back(site: Site) -> None:
    name = await site.pages.master.loop.change(add_instance)
    await site.is_quiet()
    await site.change(lambda state: state.sessions.end(name))
    await site.shows(
        "bad",
        "i-1 Its agent is not connected.",
        "Once it is given up, its tasks run elsewhere. Look at the machine's own log. "
        "eva explain i-1",
    )
    await site.change(lambda state: state.sessions.begin(name, 7))
    await site.is_quiet()


async def test_a_plan_that_takes_long_and_a_master_that_stands_still_are_told_of(
    site: Site,
) -> None:
    gateway = site.pages.master.loop.gateway
    gateway.planning = lambda: "a plan has been worked out for 90s"
    await site.shows(
        "warn",
        "A plan has been worked out for 90s.",
        "Tasks that run go on meanwhile; the next plan places those that wait. eva explain",
    )
    gateway.planning = str
    gateway.paused(Pause(_now(), "the disk is full", "free some of it"))
    (note,) = await site.notes()
    assert note.sentence.startswith("The master has stood still for ")
    assert note.sentence.endswith("and tasks run on: the disk is full.")
    assert note.advice == "Free some of it."
    gateway.paused(None)
    await site.is_quiet()


async def test_an_owner_near_a_limit_of_this_month_is_told_of(site: Site) -> None:
    month = month_of(_now())[0]

    def level(percent: int, month_ms: int = month) -> Callable[[State], None]:
        told = {
            "owner/ana": MonthLevel(Millis(month_ms), 5_000_000, percent),
            "tenant/ana": MonthLevel(Millis(month_ms), 5_000_000, 80),
        }
        return lambda state: state.remember(MonthLevels(told))

    await site.change(level(80))
    await site.shows(
        "warn",
        "owner ana 80 % or more of $5.00 is spent, limits.max_cost of this month.",
        "At the limit the jobs are suspended. The master's settings raise it. eva cost --by owner",
    )
    await site.change(level(100))
    (note,) = await site.notes()
    assert (note.level, note.sentence) == (
        "bad",
        "owner ana All of $5.00 is spent, limits.max_cost of this month.",
    )
    await site.change(level(80, month - 1))
    await site.is_quiet()


async def test_caps_of_jobs_and_limits_of_owners_are_told_of_until_they_are_raised(
    site: Site,
) -> None:
    def suspended(by: Suspender, reason: str) -> Callable[[State], None]:
        def change(state: State) -> None:
            for name in list(state.active):
                suspension = Suspension(by, _now(), reason=reason)
                state.put_job(replace(state.jobs[name], suspension=suspension))

        return change

    job = await site.pages.master.loop.change(
        lambda state: add_job(state, replace(spec("dear"), max_cost=1_000_000))
    )
    await site.change(lambda state: state.put_job(replace(state.jobs[job], cap_told=True)))
    raised = f"eva resume {job} --max-cost AMOUNT"
    await site.shows(
        "warn",
        f"{job} Most of its max_cost is spent.",
        f"A higher one lets it run on. {raised}",
    )
    await site.change(suspended(Suspender.COST, "$0.98 of $1.00 are spent"))
    await site.shows(
        "bad",
        f"{job} Suspended at its max_cost: $0.98 of $1.00 are spent.",
        f"It goes on with a higher one. {raised}",
    )
    await site.change(
        lambda state: state.put_job(
            replace(state.jobs[job], suspension=None, cap=2_000_000, cap_told=False)
        )
    )
    await site.is_quiet()
    await site.change(lambda state: add_job(state, spec("other")))
    await site.change(suspended(Suspender.MONTH, "owner ada has spent $5.00 of $5.00"))
    await site.shows(
        "bad",
        "owner ada Owner ada has spent $5.00 of $5.00.",
        "Jobs go on with the next month, or a higher limit in the master's settings. "
        "eva cost --by owner",
    )
    await site.change(
        lambda state: [
            state.put_job(replace(job, suspension=None)) for job in list(state.jobs.values())
        ]
    )
    await site.is_quiet()


async def test_a_failure_is_told_of_until_its_job_succeeds_and_a_revocation_until_it_is_over(
    site: Site,
) -> None:
    def failed(state: State) -> JobId:
        key, place = add_job(state, spec("shaky")), add_instance(state)
        now = _now()
        state.feed += [
            FeedEvent(1, now, FeedKind.FAILED, job=key, text="failure 1: exit code 3"),
            FeedEvent(2, now, FeedKind.REVOKED, instance=place, text="the cloud takes it back"),
        ]
        return key

    job = await site.pages.master.loop.change(failed)
    revoked, failure = await site.notes()
    assert (revoked.level, revoked.sentence) == ("warn", "i-1 The cloud takes it back.")
    assert (failure.level, failure.sentence) == ("bad", f"{job} Failure 1: exit code 3.")
    assert failure.advice.endswith(f"Its log says why. eva logs {job}")

    def over(state: State) -> None:
        now = _now()
        _end(state, job, JobState.SUCCEEDED)
        gone = state.instances[InstanceId("i-1")].to(InstanceState.GONE, now)
        state.put_instance(replace(gone, gone_ms=now))

    await site.change(over)
    await site.is_quiet()
