"""Applies ignore rules to files exactly as Git does (gitignore(5)).

Git walks down the tree, and the last rule that matches each name decides; below a directory that is
left out nothing is looked at. Patterns match bytes: a letter of two bytes is two ``?``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_MARK = b"\xef\xbb\xbf"
_SPECIAL = b"*?[\\"
_SLASH = ord("/")
_NOTHING = b"(?!)"
_CLASSES = {
    b"alnum": rb"[0-9A-Za-z]",
    b"alpha": rb"[A-Za-z]",
    b"blank": rb"[ \t]",
    b"cntrl": rb"[\x00-\x1f\x7f]",
    b"digit": rb"[0-9]",
    b"graph": rb"[\x21-\x7e]",
    b"lower": rb"[a-z]",
    b"print": rb"[\x20-\x7e]",
    b"punct": rb"[\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]",
    b"space": rb"[ \t\n\v\f\r]",
    b"upper": rb"[A-Z]",
    b"xdigit": rb"[0-9A-Fa-f]",
}
_BYTES = [bytes([code]) for code in range(256)]


class IgnoreRules:
    """The lines of an ignore file.

    Args:
        text: Text of the file.
        before: Lines that stand before its first one.
    """

    def __init__(self, text: bytes, before: Iterable[str] = ()) -> None:
        lines = [(os.fsencode(line), True) for line in before]
        lines += [(line, False) for line in text.removeprefix(_MARK).split(b"\n")]
        made = ((_rule(line), default) for line, default in lines)
        # The last rule first, because it decides.
        self._rules = [(rule, default) for rule, default in made if rule is not None][::-1]

    def match(self, path: str) -> bool:
        """Whether to leave out a file, or a directory with everything below it.

        Args:
            path: Relative path, none of whose parents is ignored. That of a directory ends with a
                slash.
        """
        return bool(self.decision(path))

    def decision(self, path: str) -> bool | None:
        """Like `match`; `None` if no rule says anything of it."""
        rule, _ = self._deciding(path)
        return None if rule is None else rule.leaves_out

    def by_default(self, path: str) -> bool:
        """Whether a line before the file's first one decides."""
        return self._deciding(path)[1]

    def _deciding(self, path: str) -> tuple[_Rule | None, bool]:
        name = os.fsencode(path)
        return next((rule for rule in self._rules if rule[0].names(name)), (None, False))


class _Rule:
    """One line.

    Args:
        pattern: Without the mark of a rule that includes, and without the slash of one that is for
            directories alone.
        leaves_out: Whether it excludes what it matches.
        directories: Whether it matches directories alone.
    """

    def __init__(self, pattern: bytes, *, leaves_out: bool, directories: bool) -> None:
        self.leaves_out = leaves_out
        self._directories = directories
        self._by_name = b"/" not in pattern
        self._expression = re.compile(_expression(pattern.removeprefix(b"/")), re.DOTALL)

    def names(self, path: bytes) -> bool:
        """Whether it matches a path as a whole."""
        bare = path.rstrip(b"/")
        if self._directories and bare == path:
            return False
        if self._by_name:
            bare = bare.rpartition(b"/")[2]
        return self._expression.fullmatch(bare) is not None


def _rule(line: bytes) -> _Rule | None:
    """The rule of a line; `None` for comments and lines that say nothing."""
    pattern = _trimmed(line.removesuffix(b"\r"))
    if not pattern or pattern.startswith(b"#"):
        return None
    leaves_out = not pattern.startswith(b"!")
    pattern = pattern if leaves_out else pattern[1:]
    directories = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    return _Rule(pattern, leaves_out=leaves_out, directories=directories)


def _trimmed(line: bytes) -> bytes:
    """A line without the spaces at its end, except such that a backslash keeps."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + 1] if backslashes % 2 and len(kept) < len(line) else kept


def _expression(pattern: bytes) -> bytes:
    """The regular expression of a pattern; one that is malformed matches nothing."""
    # Git compares what stands before the first special character by itself, so that two asterisks
    # that follow it stand at a beginning.
    start = next((at for at, code in enumerate(pattern) if code in _SPECIAL), len(pattern))
    parts, at = [re.escape(pattern[:start])], start
    while at < len(pattern):
        sign = pattern[at : at + 1]
        if sign == b"*":
            stars = len(pattern[at:]) - len(pattern[at:].lstrip(b"*"))
            part, length = _asterisks(pattern, at, stars, start)
        elif sign == b"?":
            part, length = b"[^/]", 1
        elif sign == b"[":
            part, length = _set(pattern, at)
        elif sign == b"\\":
            part, length = re.escape(pattern[at + 1 : at + 2]) or _NOTHING, 2
        else:
            part, length = re.escape(sign), 1
        parts.append(part)
        at += length
    return b"".join(parts)


def _asterisks(pattern: bytes, at: int, stars: int, start: int) -> tuple[bytes, int]:
    """The expression of asterisks side by side, and how much of the pattern it stands for.

    Two or more that are all of a directory's place in the path match any number of directories.
    """
    rest = pattern[at + stars :]
    before = at == start or pattern[at - 1] == _SLASH
    if stars < 2 or not before or not (not rest or rest.startswith((b"/", b"\\/"))):
        return b"[^/]*", stars
    if not rest:
        return b".*", stars
    if rest.startswith(b"/"):
        return b"(?:.*/)?", stars + 1
    return b".*/", stars + 2  # A slash that is escaped is there.


def _set(pattern: bytes, begin: int) -> tuple[bytes, int]:
    """The expression of a set of characters such as ``[a-z]``, and its length in the pattern."""
    at = begin + 1
    inverted = pattern[at : at + 1] in (b"!", b"^")
    at += inverted
    members: set[int] = set()
    before: int | None = None
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if at >= len(pattern):
            return _NOTHING, len(pattern) - begin
        code = pattern[at]
        after = pattern[at + 1 : at + 2]
        if code == ord("\\"):
            if not after:
                return _NOTHING, len(pattern) - begin
            before = after[0]
            members.add(before)
            at += 2
        elif code == ord("-") and before is not None and after and after != b"]":
            at += 1
            if after == b"\\":
                at += 1
                if at >= len(pattern):
                    return _NOTHING, len(pattern) - begin
            members.update(range(before, pattern[at] + 1))
            before, at = None, at + 1
        elif code == ord("[") and after == b":" and (end := pattern.find(b"]", at + 2)) >= 0:
            name = pattern[at + 2 : end - 1]
            if not (end > at + 2 and pattern[end - 1] == ord(":")):
                before, at = code, at + 1
                members.add(code)
                continue
            if name not in _CLASSES:
                return _NOTHING, len(pattern) - begin
            members.update(byte[0] for byte in _BYTES if re.match(_CLASSES[name], byte))
            before, at = None, end + 1
        else:
            before, at = code, at + 1
            members.add(code)
    chosen = [byte for byte in _BYTES if (byte[0] in members) is not inverted and byte[0] != _SLASH]
    expression = b"[" + b"".join(map(re.escape, chosen)) + b"]" if chosen else _NOTHING
    return expression, at + 1 - begin
