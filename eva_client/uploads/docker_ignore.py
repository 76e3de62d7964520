"""Rules of Docker's ignore file, as BuildKit applies them (moby/patternmatcher)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import normpath


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of the file.

    Attributes:
        expression: Expression for a whole path.
        leaves_out: Whether the rule excludes what it matches, rather than including it again.
    """

    expression: re.Pattern[str]
    leaves_out: bool


class DockerRules:
    """Rules that a path is compared with, each with the path and all of its parent directories.

    Args:
        patterns: Lines of the file, without comments. A line that is malformed matches nothing.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern)) is not None]

    def leaves_out(self, path: str) -> bool:
        """Whether a file or directory is left out; the last rule that matches decides.

        Args:
            path: Relative path, with slashes.
        """
        names = path.split("/")
        paths = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
        for rule in reversed(self._rules):
            if any(rule.expression.fullmatch(prefix) for prefix in paths):
                return rule.leaves_out
        return False


def _rule(line: str) -> _Rule | None:
    """The rule of a line; `None` for a line without a pattern."""
    text = line.strip()
    leaves_out = not text.startswith("!")
    pattern = normpath("/" + text.removeprefix("!").strip()).lstrip("/")
    if not pattern:
        return None
    try:
        return _Rule(re.compile(_expression(pattern), re.DOTALL), leaves_out)
    except re.error:
        return None


def _expression(pattern: str) -> str:
    """The regular expression of a pattern: Go's filepath.Match, and ``**`` for any directories."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if pattern.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        elif sign == "*":
            parts.append("[^/]*")
            at += 1
        elif sign == "?":
            parts.append("[^/]")
            at += 1
        elif sign == "[" and (end := pattern.find("]", at + 2)) > 0:
            members = pattern[at + 1 : end]
            inverted = members.startswith("^")
            body = members.removeprefix("^").replace("[", r"\[").replace("&&", r"&\&")
            parts.append(f"(?!/)[{'^' if inverted else ''}{body}]")
            at = end + 1
        else:
            escaped = sign == "\\" and at + 1 < len(pattern)
            parts.append(re.escape(pattern[at + 1] if escaped else sign))
            at += 2 if escaped else 1
    return "".join(parts)
