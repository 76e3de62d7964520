"""The page about security names tests that exist, and each claim of its tables has one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "attacks.md"
_NAMED = re.compile(r"`(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    named = set(_NAMED.findall(PAGE.read_text()))
    assert len(named) > 40
    assert named - there == set()


def test_every_row_about_an_attack_names_a_test() -> None:
    rows = [
        line
        for section in PAGE.read_text().split("\n## ")
        if "| test |" in section
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith(("| wants", "| ---"))
    ]
    assert len(rows) > 25
    assert [row for row in rows if not _NAMED.search(row.split("|")[3])] == []
