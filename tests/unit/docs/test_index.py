"""The index of the documentation lists every how-to and design page, and groups the how-tos."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
_LINK = re.compile(r"\]\(([\w/.-]+\.md)\)")


@pytest.mark.parametrize(
    "page",
    [
        path.relative_to(DOCS).as_posix()
        for folder in ("howto", "design")
        for path in sorted((DOCS / folder).glob("*.md"))
    ],
)
def test_each_page_is_in_the_index(page: str) -> None:
    assert page in _LINK.findall(INDEX)


def test_the_quick_start_is_first_and_the_how_tos_are_in_three_groups() -> None:
    assert _LINK.findall(INDEX)[0] == "quickstart.md"
    how_tos = INDEX.split("## How to", 1)[1].split("\n## ", 1)[0]
    groups = re.findall(r"^\*\*(.+)\*\*$", how_tos, re.MULTILINE)
    assert groups == ["Run jobs", "Files, shells and data", "Run a cluster"]
    linked = [page for page in _LINK.findall(how_tos) if page.startswith("howto/")]
    assert len(linked) == len(set(linked))
