"""Every route of the pages, and who gets through by docs/reference/security.md."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.routing import Route

from eva_master.adapters.pages import live
from eva_master.adapters.pages.sessions import FILE
from eva_master.control.state.store import State
from eva_master.model.events import ResumeRequested
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_wire.values.errors import NotAuthenticated
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.users import Role, UserToken
from tests.fakes.rpc.pages import Answer, Browser, PageMaster, page_master
from tests.fakes.rpc.server import add_instance, add_job, spec

PAGE = Path(__file__).parents[3] / "docs/reference/security.md"
COLUMNS = ("no session", "viewer", "another user", "owner", "operator")
CALLERS = {
    "no cookie": "no session",
    "made up": "no session",
    "of another cluster": "no session",
    "later than it was made for": "no session",
    "for another user": "no session",
    "ended": "no session",
    "expired": "no session",
    "revoked": "no session",
    "viewer": "viewer",
    "another user": "another user",
    "owner": "owner",
    "operator": "operator",
}
"""Kinds of callers, each with its column."""
NAMES = {"job": "resnet-1", "instance": "i-1", "task": "0", "run": "0", "path": "outputs/x"}
NAMES |= {"name": "live.js"}
REFUSED = {401, 403}


def table() -> dict[str, dict[str, str]]:
    """The cells of the page, by row and column."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(next(line for line in lines if line.startswith("| path |")))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:]]
    assert tuple(cells[0][1:]) == COLUMNS
    rows = cells[2 : 2 + [len(row) for row in cells[2:]].index(1)]
    return {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}


TABLE = table()


def row_of(route: Route) -> str:
    """The row of the table that speaks of a route."""
    if route.path in ("/login", "/logout"):
        return f"`{route.path}`"
    if route.path.startswith("/static"):
        return "`/static`"
    if "/files/" in route.path:
        return "stored files of a job"
    return "actions on a job" if is_action(route) else "pages, `/live`, logs of tasks"


def is_action(route: Route) -> bool:
    return route.methods == {"POST"}


def address(route: Route) -> str:
    """An address that the route answers."""
    path = route.path.replace("{path:path}", "{path}").format(**NAMES)
    return f"{path}?on=/&at=&once=yes" if path == "/live" else path


async def tried(browser: Browser, route: Route) -> Answer:
    """The answer that a browser meets at a route."""
    return await (browser.post if is_action(route) else browser.get)(address(route))


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        await running.master.loop.change(lambda state: add_job(state, spec("resnet", owner="ana")))
        await running.master.loop.change(add_instance)
        yield running


def sealed(token: UserToken, ends_ms: int, key: bytes, session: str = "00" * 16) -> str:
    """A cookie, put together by hand."""
    text = f"{token.id}.{ends_ms}.{session}"
    seal = hmac.new(key, f"{text}.{token.digest}".encode(), hashlib.sha256).hexdigest()
    return f"{text}.{seal}"


async def browser_of(pages: PageMaster, caller: str) -> Browser:
    """The browser of a kind of caller."""
    role = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}.get(caller, Role.USER)
    owner = {"another user": "ben", "operator": "oda", "viewer": "vic"}.get(caller, "ana")
    if caller == "no cookie":
        return pages.browser()
    browser = await pages.logged_in(owner, role)
    ((name, cookie),) = browser.cookies.items()
    token = pages.master.tokens.check(cookie.partition(".")[0])
    now, end = pages.master.tokens.now(), int(cookie.split(".")[1])
    key = bytes.fromhex((pages.directory / FILE).read_text())
    match caller:
        case "made up":
            browser.cookies[name] = "garbage"
        case "of another cluster":
            browser.cookies[name] = sealed(token, end, bytes(range(32)))
        case "later than it was made for":
            browser.cookies[name] = cookie.replace(str(end), str(end + 1))
        case "for another user":
            other, _ = pages.master.tokens.create("oda", Role.OPERATOR)
            browser.cookies[name] = cookie.replace(token.id, other.id)
        case "expired":
            browser.cookies[name] = sealed(token, now - 1, key)
        case "revoked":
            pages.master.tokens.revoke(token.id)
        case "ended":
            await browser.post("/logout")
            browser.cookies[name] = cookie
        case _:
            assert sealed(token, end, key, cookie.split(".")[2]) == cookie
    return browser


@pytest.mark.parametrize("caller", CALLERS)
async def test_every_route_lets_through_whom_the_page_says(pages: PageMaster, caller: str) -> None:
    browser = await browser_of(pages, caller)
    cookies = dict(browser.cookies)
    for route in sorted(pages.routes, key=lambda route: route.path == "/logout"):
        answer = await tried(browser, route)
        browser.cookies = dict(cookies)
        cell = TABLE[row_of(route)][CALLERS[caller]]
        may = cell == "yes"
        assert (answer.status not in REFUSED) == may, f"{route.path}: {answer.status} {cell!r}"
        assert answer.status < 500, answer.text
    assert {row_of(route) for route in pages.routes} == set(TABLE)


@pytest.mark.parametrize("caller", ["no cookie", "another user", "viewer"])
async def test_an_action_that_is_refused_reaches_no_loop(pages: PageMaster, caller: str) -> None:
    browser = await browser_of(pages, caller)
    for route in pages.routes:
        if row_of(route) == "actions on a job":
            await tried(browser, route)
    assert pages.master.loop.commands == []


async def test_a_cap_is_raised_by_the_field_beside_resume(
    pages: PageMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.0)

    def capped(state: State) -> JobId:
        return add_job(state, replace(spec("dear", owner="ana"), max_cost=5_000_000))

    loop = pages.master.loop
    job = await loop.change(capped)
    browser, reader = (
        await pages.logged_in("ana", Role.USER),
        await pages.logged_in("vic", Role.VIEWER),
    )
    page = await browser.get(f"/jobs/{job}")
    assert 'name="max_cost" value="11"' in page.text
    assert "Raise its cap" in page.text
    field = 'name="max_cost"'
    assert field not in (await reader.get(f"/jobs/{job}")).text
    assert field not in (await browser.get("/jobs/resnet-1")).text, "it has no cap"

    def suspended(state: State) -> None:
        suspension = Suspension(Suspender.COST, Millis(1), reason="$4.99 of $5.00 are spent")
        state.put_job(replace(state.jobs[job], suspension=suspension))

    await loop.change(suspended)
    page = await browser.get(f"/jobs/{job}")
    assert '<summary class="main">Resume</summary>' in page.text
    for typed in ("ten", "0", "$1e3", "1000000.01", "9" * 60, "\N{RIGHT-TO-LEFT OVERRIDE}1"):
        refused = await browser.post(f"/jobs/{job}/resume", {"max_cost": typed})
        assert refused.status == 409
        assert "at most a million, such as 10" in refused.text
    assert loop.commands == []
    for typed, cap in (("$12.50", 12_500_000), ("20", 20_000_000), ("", None)):
        answer = await browser.post(f"/jobs/{job}/resume", {"max_cost": typed})
        assert (answer.status, answer.headers["location"]) == (303, f"/jobs/{job}")
        command = loop.commands[-1]
        assert isinstance(command, ResumeRequested)
        assert (command.job, command.owner, command.max_cost) == (job, "ana", cap)


FORGED = {
    "another site's": {"origin": "https://evil.example"},
    "another port's": {"origin": "http://127.0.0.1:8266"},
    "with another scheme": {"origin": "https://127.0.0.1:8265"},
    "nobody's": {"origin": ""},
    "of a frame without an origin": {"origin": "null"},
    "of one, as browsers say": {"origin": "null", "sec_fetch_site": "cross-site"},
    "of another port, as browsers say": {"sec_fetch_site": "same-site"},
}


@pytest.mark.parametrize("forged", FORGED)
async def test_forms_of_others_are_refused_at_every_route(pages: PageMaster, forged: str) -> None:
    browser = await pages.logged_in("ana", Role.OPERATOR)
    for route in pages.routes:
        if is_action(route):
            answer = await browser.post(address(route), **FORGED[forged])
            assert answer.status == 403, route.path
    assert pages.master.loop.commands == []
    assert (await browser.get("/")).status == 200, "a forged form has ended the session"


async def test_a_form_without_a_script_is_taken_as_browsers_send_it(pages: PageMaster) -> None:
    """Pages that send no referrer have browsers hide the origin, and say themselves what it is."""
    browser = await pages.logged_in("ana", Role.USER)
    answer = await browser.post(
        "/jobs/resnet-1/cancel", origin="null", sec_fetch_site="same-origin"
    )
    assert (answer.status, answer.headers["location"]) == (303, "/jobs/resnet-1")
    (command,) = pages.master.loop.commands
    assert (type(command).__name__, command.owner) == ("CancelRequested", "ana")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8265", "127.0.0.1.evil.example:8265", "", "10.0.0.1:8265"],
)
async def test_other_names_of_this_server_are_refused_at_every_route(
    pages: PageMaster, host: str
) -> None:
    browser = await pages.logged_in("ana", Role.OPERATOR)
    browser.host = host
    for route in pages.routes:
        assert (await tried(browser, route)).status == 421, route.path


async def test_every_answer_says_what_browsers_may_do(pages: PageMaster) -> None:
    browser = await pages.logged_in("ana", Role.OPERATOR)
    answers = [
        await tried(each, route) for route in pages.routes for each in (browser, pages.browser())
    ]
    answers += [await browser.get("/nothing"), await browser.get("/login?code=x")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert {answer.headers["cache-control"] for answer in answers} == {
        "no-store",
        "public, max-age=31536000, immutable",
    }


async def test_no_page_refers_to_another_host_or_has_a_script_of_its_own(pages: PageMaster) -> None:
    browser = await pages.logged_in("ana", Role.OPERATOR)
    for route in pages.routes:
        if row_of(route).startswith("pages") and "/logs/" not in route.path:
            text = (await tried(browser, route)).text
            assert "http://" not in text.replace("http://www.w3.org/", ""), route.path
            assert "https://" not in text, route.path
            assert " style=" not in text, route.path
            assert "<style" not in text, route.path
            assert " onclick=" not in text, route.path
            assert text.count("<script") == text.count("<script src="), route.path


async def test_a_code_is_good_for_a_minute_and_not_from_another_site(pages: PageMaster) -> None:
    token, _ = pages.master.tokens.create("ana", Role.USER)
    code = pages.codes.make(token.id)
    browser = pages.browser()
    elsewhere = await browser.get(f"/login?code={code}", sec_fetch_site="cross-site")
    assert elsewhere.status == 403
    assert (await browser.get(f"/login?code={code}", sec_fetch_site="none")).status == 303
    pages.master.tokens.revoke(token.id)
    with pytest.raises(NotAuthenticated, match="was revoked"):
        pages.sessions.begin(token.id)
