"""Pages in a browser: a user reads them, follows a job, and acts on it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.browsing import CHROMIUM, Theme, Visitor, faults, visitor
from tests.e2e.cluster import Cluster, until
from tests.fakes.paths import PYTHON
from tests.fakes.patience import DEADLINE_S

pytestmark = [
    pytest.mark.long,
    pytest.mark.waits,
    pytest.mark.skipif(
        CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium on this machine"
    ),
]
expect.set_options(timeout=1_000 * DEADLINE_S)
TRAINER = {
    "run": f"exec {PYTHON} trainer.py",
    "resources": {"cpus": 2, "memory": "3GiB"},
    "throughput": 10,
}
SOON_MS = 2_000


@pytest.fixture
def user(cluster: Cluster) -> Iterator[Visitor]:
    with visitor(cluster) as somebody:
        yield somebody
        assert not somebody.complaints


def trained(cluster: Cluster, name: str, **keys: Any) -> str:
    """Submit a job that trains."""
    envs = {"STEP_S": "0.1", **keys.pop("envs", {})}
    return cluster.submit(name, envs=envs, **{**TRAINER, **keys})


def starts_of(cluster: Cluster, job: str) -> list[int]:
    """When tasks of a job started, by the feed."""
    return [event.at_ms for event in cluster.client.events(job) if event.kind == "placed"]


def settle(page: Page) -> None:
    """Wait until the page has what it asked for."""
    page.wait_for_load_state("load")


def test_every_page_is_whole_in_light_and_dark_on_a_telephone_and_on_a_screen(
    cluster: Cluster, user: Visitor
) -> None:
    gpus = {"gpus": 2, "cpus": 4, "memory": "16GiB"}
    job = trained(cluster, "packed", labels={"team": "vision"})
    gang = trained(cluster, "gang", tasks=2, resources=gpus)
    broken = trained(cluster, "broken", envs={"FAIL_AT": "2"}, retries=0)
    until(lambda: cluster.job(gang).state == "running", "the gang runs")
    until(lambda: cluster.job(job).state == "running", "the job runs")
    cluster.until_ended(broken, state="failed")
    instance = cluster.task(job).instance
    paths = ("/", "/cluster", f"/cluster/{instance}", "/jobs", "/jobs?state=all&sort=cost")
    paths += (f"/jobs/{job}", f"/jobs/{broken}", "/money", "/money?by=type", "/money?by=day")
    paths += ("/events", f"/events?subject={job}")
    themes: tuple[Theme, ...] = ("light", "dark")
    serious: list[str] = []
    for theme in themes:
        for width in (400, 1_400):
            context = user.context(theme, width)
            page = context.new_page()
            for path in paths:
                answer = page.goto(path)
                assert answer is not None
                assert answer.status == 200, path
                settle(page)
                if path == "/cluster":
                    open_boxes(page)
                inner = page.evaluate("document.documentElement.scrollWidth")
                assert inner <= width, f"{path} is {inner} wide on a screen of {width}"
                serious += faults(page)
            context.close()
    assert not serious, "\n".join(serious)


def open_boxes(page: Page) -> None:
    """Open two boxes, each with the tasks, the bill and the reasons of its instance inside."""
    for box in page.locator("details.box > summary").all()[:2]:
        box.click()
        expect(page.locator("details.box[open] .why h2").last).to_be_visible()
    twice = "[...document.querySelectorAll('[id]')].map((each) => each.id).sort()"
    names = page.evaluate(twice)
    assert len(names) == len(set(names)), names


def test_pages_read_well_without_scripts(cluster: Cluster, user: Visitor) -> None:
    job = trained(cluster, "plain")
    until(lambda: cluster.job(job).state == "running", "the job runs")
    context = user.context(scripts=False)
    page = context.new_page()
    page.goto("/cluster")
    expect(page.locator("summary").first).to_contain_text("c7i.")
    page.locator("summary").first.click()
    page.get_by_role("link", name=re.compile("bill and reasons")).first.click()
    expect(page.locator(".reasons")).to_contain_text("worth its price")
    page.goto(f"/jobs/{job}")
    expect(page.locator("pre.log")).to_contain_text("attempt 1: step 0")


def test_a_task_appears_in_its_box_within_two_seconds_of_its_start(
    cluster: Cluster, user: Visitor
) -> None:
    first = trained(cluster, "first")
    until(lambda: cluster.job(first).state == "running", "an instance is there")
    page = user.context().new_page()
    page.goto("/cluster")
    expect(page.get_by_role("img", name=re.compile("first"))).to_be_attached()
    page.evaluate(
        """() => {
          window.seen = {};
          const look = () => {
            for (const each of document.querySelectorAll("path.task")) seen[each.id] ??= Date.now();
          };
          new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    late = []
    for number in range(5):  # A busy machine may be late now and then.
        job = trained(cluster, f"next{number}", resources={"cpus": 1, "memory": "1GiB"})
        page.wait_for_function(f"() => window.seen['r-{job}/0']")
        late.append(page.evaluate(f"window.seen['r-{job}/0']") - starts_of(cluster, job)[0])
        if late[-1] <= SOON_MS:
            return
    pytest.fail(f"tasks appeared so many milliseconds after their starts: {late}")


def test_a_job_is_followed_suspended_resumed_and_its_outputs_and_bill_are_read(
    cluster: Cluster, user: Visitor, tmp_path: Path
) -> None:
    job = trained(cluster, "followed", envs={"STEPS": "120"})
    page = user.context().new_page()
    page.goto("/jobs")
    page.get_by_role("link", name="followed").click()
    expect(page.locator("pre.log")).to_contain_text("step     10")
    expect(page.locator("pre.log")).to_contain_text("step     20")
    page.get_by_role("button", name="Suspend").click()
    expect(page.locator(".sentence")).to_contain_text("followed is suspended")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".sentence")).to_contain_text("followed is running")
    expect(page.locator(".sentence")).to_contain_text("followed has succeeded")
    expect(page.locator(".feed").first).to_contain_text("resumed")
    with page.expect_download() as fetched:
        page.get_by_role("link", name="outputs/result.txt").click()
    fetched.value.save_as(tmp_path / "result.txt")
    assert (tmp_path / "result.txt").read_text() == "trained for 120 steps\n"
    cluster.until_empty()
    page.goto("/money?by=job")
    bill = cluster.client.cost_by("job")
    shown = {
        row.locator("th").inner_text().split()[0]: int(
            row.locator("[data-micro-usd]").get_attribute("data-micro-usd") or 0
        )
        for row in page.locator("tbody tr").all()
    }
    assert shown[job] == next(share.cost_micro_usd for share in bill.shares if share.name == job)
    whole = page.locator("tfoot [data-micro-usd]").get_attribute("data-micro-usd")
    assert sum(shown.values()) == int(whole or 0) == bill.cost_micro_usd


def test_a_job_at_its_cap_goes_on_with_the_one_that_is_typed(
    cluster: Cluster, user: Visitor
) -> None:
    job = trained(cluster, "capped", max_cost="$0.0001")
    page = user.context().new_page()
    page.goto(f"/jobs/{job}")
    expect(page.locator(".sentence")).to_contain_text("suspended at its max_cost")
    page.locator("summary", has_text="Resume").click()
    field = page.get_by_label("It may cost at most, in dollars")
    field.fill("25")
    page.get_by_role("button", name="Set this cap").click()
    expect(page.locator(".sentence")).to_contain_text("capped is running")
    assert cluster.job(job).max_cost_micro_usd == 25_000_000
    page.locator("summary", has_text="Raise its cap").click()
    field.fill("30")
    page.get_by_role("button", name="Set this cap").focus()
    page.evaluate(
        """() => {
          window.changes = 0;
          document.getElementById("job-head").addEventListener("eva:changed", () => changes += 1);
        }"""
    )
    page.wait_for_function("() => window.changes >= 2")
    expect(field).to_have_value("30")
    assert not faults(page)
    page.keyboard.press("Enter")
    expect(page.locator(".big").first).to_be_visible()
    until(lambda: cluster.job(job).max_cost_micro_usd == 30_000_000, "the cap is raised")
    cluster.client.cancel(job)


def test_the_keyboard_alone_is_enough(cluster: Cluster, user: Visitor) -> None:
    job = trained(cluster, "typed")
    until(lambda: cluster.job(job).state == "running", "the job runs")
    page = user.context().new_page()
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    focus = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(focus) != "none"
    reach(page, "a", "Cluster")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cluster")
    reach(page, "summary", cluster.task(job).instance)
    page.keyboard.press("Enter")
    expect(page.locator("details.box[open]")).to_contain_text("bill and reasons")
    expect(page.locator("details.box[open] .why")).to_contain_text("worth its price")
    reach(page, "a", "typed")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    reach(page, "summary", "Cancel")
    page.keyboard.press("Enter")
    reach(page, "button", "Cancel typed")
    page.keyboard.press("Enter")
    expect(page.locator(".sentence")).to_contain_text("typed was cancelled")


def reach(page: Page, kind: str, text: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        name, shown = page.evaluate(
            "[document.activeElement.localName, document.activeElement.textContent]"
        )
        if name == kind and text in shown:
            return
    pytest.fail(f"no {kind} with {text!r} is reached by Tab on {page.url}")


def test_eight_tabs_of_one_browser_follow_the_cluster(cluster: Cluster, user: Visitor) -> None:
    context = user.context()
    tabs = [context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto("/jobs")
    trained(cluster, "seen")
    for tab in tabs:
        expect(tab.get_by_role("link", name="seen")).to_be_visible()
