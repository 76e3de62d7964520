"""Refuses links in Markdown files that lead nowhere.

Checks every relative link and image of each `*.md` file: the file or folder must be there, spelled
with the same case, within the repository; an `#anchor` must be a heading of the target page, by
GitHub's rules. Links to other hosts are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from tests.checks.sources import markdown_files

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE = re.compile(
    r"\]\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))"  # the target
    r"(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)"  # a title
)
_DEFINITION = re.compile(r"^ {0,3}\[([^\]]+)\]:\s*<?([^\s>]+)>?", re.MULTILINE)
_REFERENCE = re.compile(r"\[([^\[\]]+)\]\[([^\[\]]*)\]")
_HTML_TARGET = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)\s*=\s*[\"']([^\"']+)[\"']")
_HTML_ANCHOR = re.compile(r"<[a-z]+\b[^>]*?\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r"^ {0,3}(=+|-{2,})[ \t]*$")
_ELSEWHERE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:|//)")


def faults(root: Path) -> Iterator[str]:
    """One line per broken link in the pages of a repository."""
    for page in markdown_files(root):
        for line, message in problems(page, root):
            yield f"{_shown(page, root)}:{line}: {message}"


def problems(page: Path, root: Path) -> Iterator[tuple[int, str]]:
    """The broken links of a page, as line and message."""
    text = _without_code(page.read_text(encoding="utf-8"))
    for line, target in _targets(text):
        if message := _refusal(page, target, root):
            yield line, message
    defined = {_label(match[1]) for match in _DEFINITION.finditer(text)}
    for match in _REFERENCE.finditer(text):
        if _label(match[2] or match[1]) not in defined:
            yield _line(text, match.start()), f"[{match[2] or match[1]}] is defined nowhere"


def anchors(page: Path) -> frozenset[str]:
    """What may follow `#` in a link to the page: GitHub's names of its headings."""
    return _anchors(page)


@cache
def _anchors(page: Path) -> frozenset[str]:
    text = _COMMENT.sub(_blank, page.read_text(encoding="utf-8"))
    found: set[str] = set(_HTML_ANCHOR.findall(_without_code(text)))
    counts: dict[str, int] = {}
    for heading in _headings(text):
        name = slug(heading)
        number = counts.get(name, 0)
        counts[name] = number + 1
        unique = f"{name}-{number}" if number else name
        while unique in found:  # a heading "a-1" beside two headings "a"
            counts[name] += 1
            unique = f"{name}-{counts[name] - 1}"
        found.add(unique)
    return frozenset(found)


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", heading)  # links by their text
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"(?<![\w`])(\*{1,2}|_{1,2})(?=\S)(.+?)(?<=\S)\1(?![\w`])", r"\2", text)
    text = text.strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _headings(text: str) -> Iterator[str]:
    previous = ""
    for line in lines_outside_fences(text):
        if match := _HEADING.match(line):
            yield match[1]
            previous = ""
        elif _SETEXT.match(line) and previous.strip() and not previous.lstrip().startswith("|"):
            yield previous.strip()
            previous = ""
        else:
            previous = line


def lines_outside_fences(text: str) -> Iterator[str]:
    """The lines of a page; those within fenced code, and the fences, are empty."""
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not fence:
            fence = match[1] if match else ""
            yield "" if match else line
            continue
        closes = match and match[1][0] == fence[0] and len(match[1]) >= len(fence)
        if closes and not line.strip().strip(fence[0]):
            fence = ""
        yield ""


def _without_code(text: str) -> str:
    """The text with code and comments blanked out, line for line."""
    text = "\n".join(lines_outside_fences(text))
    return _COMMENT.sub(_blank, _CODE_SPAN.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _targets(text: str) -> Iterator[tuple[int, str]]:
    for match in _INLINE.finditer(text):
        yield _line(text, match.start()), match[1] if match[1] is not None else match[2]
    for match in _DEFINITION.finditer(text):
        if not match[1].startswith("^"):
            yield _line(text, match.start()), match[2]
    for match in _HTML_TARGET.finditer(text):
        yield _line(text, match.start()), match[1]


def _refusal(page: Path, target: str, root: Path) -> str | None:
    """Why a link leads nowhere; `None` if it leads somewhere."""
    if _ELSEWHERE.match(target):
        return None
    path, _, anchor = target.partition("#")
    path, anchor = unquote(path), unquote(anchor)
    if not path and not anchor:
        return "an empty link"
    if path.startswith("/"):
        found = root / path.lstrip("/")
    else:
        found = page.parent / path if path else page
    found = Path(_normal(found))
    if root != found and root not in found.parents:
        return f"{target}: leads out of the repository"
    if not _exists(found, root):
        return f"{target}: there is no {_shown(found, root)}"
    if anchor and found.suffix == ".md" and anchor not in anchors(found):
        return f"{target}: {_shown(found, root)} has no heading #{anchor}"
    return None


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(Path(*parts))


def _exists(path: Path, root: Path) -> bool:
    """Whether there is such a file, in this case also where file systems ignore case."""
    while path != root:
        if not path.exists() or path.name not in {it.name for it in path.parent.iterdir()}:
            return False
        path = path.parent
    return True


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if root in path.parents else str(path)
