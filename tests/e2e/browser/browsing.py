"""A browser without a screen, logged in to the pages of a cluster through `eva ui`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.e2e.cluster import EVA, Cluster
from tests.fakes.patience import DEADLINE_S

CHROMIUM = shutil.which("chromium")
Theme = Literal["light", "dark"]
_MINOR = "minor"
_AXE: dict[str, Any] = {"resultTypes": ["violations"]}


class Visitor:
    """A user who looks at the pages of a cluster.

    Args:
        cluster: The cluster.
        browser: Makes windows.
        address: Where `eva ui` serves the pages.

    Attributes:
        complaints: Messages on consoles of browsers, and errors of scripts.
    """

    def __init__(self, cluster: Cluster, browser: Browser, address: str) -> None:
        self.complaints: list[str] = []
        self._cluster = cluster
        self._browser = browser
        self._address = address

    def context(
        self, theme: Theme = "light", width: int = 1_400, *, scripts: bool = True
    ) -> BrowserContext:
        """A browser with cookies of its own, logged in."""
        context = self._browser.new_context(
            base_url=self._address,
            color_scheme=theme,
            viewport=ViewportSize(width=width, height=900),
            java_script_enabled=scripts,
        )
        context.set_default_timeout(1_000 * DEADLINE_S)
        context.on("console", lambda said: self._heard(said.type, said.text))
        context.on("weberror", lambda error: self._heard("error", str(error.error)))
        page = context.new_page()
        page.goto(f"/login?code={self._cluster.client.login().code}")
        page.close()
        return context

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")


@contextmanager
def visitor(cluster: Cluster) -> Iterator[Visitor]:
    """A browser, and `eva ui` beside it."""
    command = [*EVA, "ui", "--port", "0", "--no-browser"]
    relay = subprocess.Popen(
        command,
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert relay.stdout is not None
        address = relay.stdout.readline().partition("/login")[0]
        assert address.startswith("http://127.0.0.1:"), address
        # The sandbox needs a user who is not root.
        confined = os.geteuid() != 0
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, chromium_sandbox=confined
            )
            try:
                yield Visitor(cluster, browser, address)
            finally:
                browser.close()
    finally:
        relay.terminate()
        relay.wait()
        relay.stdout.close()  # type: ignore[union-attr]


def faults(page: Page) -> list[str]:
    """Faults that axe-core finds moderate or worse."""
    answer = Axe().run(page, options=_AXE).response
    return [
        f"{page.url}: {fault['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for fault in answer["violations"]
        if fault["impact"] != _MINOR
        for node in fault["nodes"][:3]
    ]
