"""Docker's ignore file leaves out what Docker's own matcher leaves out."""

from __future__ import annotations

import pytest
from docker.utils.build import PatternMatcher

from eva_client.uploads.docker_ignore import DockerRules

PATTERNS = (
    *("data", "/data", "data/", "./data", "data/raw", "*.log", "*/*.log", "**/*.log", "**/tmp"),
    *("data/**", "data/**/x.log", "?ata", "d*", "[a-d]ata", "*", "a.b", "data/../tmp"),
)
PATHS = (
    *("data", "data/x.log", "data/raw", "data/raw/x.log", "data/raw/y", "x.log", "tmp", "src/tmp"),
    *("src/tmp/x.log", "src/data", "a.b", "a_b", "aata", "src", "src/a.b", "data/tmp/raw/x.log"),
)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("then", ["", "!data/raw", "!**/x.log", "!data"])
def test_rules_agree_with_dockers_matcher(pattern: str, then: str) -> None:
    lines = [pattern, then] if then else [pattern]
    theirs = PatternMatcher(lines)
    assert {path: DockerRules(lines).leaves_out(path) for path in PATHS} == {
        path: theirs.matches(path) for path in PATHS
    }


@pytest.mark.parametrize(
    ("lines", "path", "left_out"),
    [
        (["a\\*b"], "a*b", True),
        (["a\\*b"], "axb", False),
        (["[", "x"], "x", True),
        (["[z-a]", "x"], "x", True),
        (["."], "x", False),
        (["data"], "database", False),
        (["data"], "metadata", False),
        (["é?"], "éa", True),
        (["*.py", "!keep.py"], "keep.py", False),
        (["!keep.py", "*.py"], "keep.py", True),
        (["a[/]b"], "a/b", False),
        (["[^a-c]ata"], "data", True),  # Go's sign; that of a shell is [!a-c]
        (["[^a-c]ata"], "aata", False),
    ],
)
def test_edges(lines: list[str], path: str, *, left_out: bool) -> None:
    assert DockerRules(lines).leaves_out(path) is left_out
