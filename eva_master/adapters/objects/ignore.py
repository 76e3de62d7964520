"""Applies ignore rules to files exactly as Git does.

`pathspec` matches whole paths, so that a rule about a directory also applies to everything below
it. Git walks down the tree and lets the last rule that matches each single name decide, which
``data/**`` with ``!data/keep`` needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from pathspec import GitIgnoreSpec, Pattern


class IgnoreRules:
    """The lines of an ignore file.

    Raises:
        ValueError: A line is not a pattern.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        # The last rule first, because it decides.
        self._rules = [
            _Rule(line, pattern)
            for line in lines
            for pattern in GitIgnoreSpec.from_lines([line]).patterns
            if pattern.include is not None
        ][::-1]

    def match(self, path: str) -> bool:
        """Whether to leave out a file, or a directory with everything below it.

        Args:
            path: Relative path, none of whose parents is ignored. That of a directory ends with a
                slash.
        """
        return next((rule.leaves_out for rule in self._rules if rule.names(path)), False)


class _Rule:
    """One line, and whether it excludes or includes what it matches."""

    def __init__(self, line: str, pattern: Pattern) -> None:
        self.leaves_out = bool(pattern.include)
        self._pattern = pattern
        text = line.rstrip()
        self._by_name = "/" not in text.rstrip("/")
        self._contents = text.endswith("/**")

    def names(self, path: str) -> bool:
        bare = path.rstrip("/")
        parent, _, _ = bare.rpartition("/")
        if self._by_name:
            return self._matches(path[len(parent) :].lstrip("/"))
        if self._contents:
            # What is in the directory, not the directory itself.
            return self._matches(bare)
        # A pattern that matches the parent matches all that is below, without naming it.
        return self._matches(path) and not (parent and self._matches(f"{parent}/"))

    def _matches(self, path: str) -> bool:
        return bool(self._pattern.match_file(path))
