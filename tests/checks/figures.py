"""The figures of the house: how large it is, and how much a stranger has to know.

Printed by ``python -m tests.checks --figures``. None of them fails a check but the words, which
`ceilings` holds. Each figure has its method beside it. Generated code is never counted.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.checks import ceilings, words
from tests.checks.sources import PRODUCT, markdown_files, python_files

ALIKE_LINES = 6
"""From so many lines on two places are alike."""
MOST_ALIKE = 10
"""Pairs of places that are alike at most, and lines of the longest."""
FEATURES = {
    "forks": r"fork",
    "lending": r"(?<![a-z])(?:lend|lent(?![a-z])|borrow)",
    "deadlines": r"deadline",
    "tenants": r"tenant",
}
"""By feature: the words of a file that mentions it."""
_ROOMS = {
    "forks": r"fork|policies/hadar_published",
    "lending": r"lend|policies/astraea",
    "deadlines": r"deadline",
    "tenants": r"tenant|policies/(astraea|gandiva_fair|hived)",
}
"""By feature: paths of its rooms, policies about it among them."""
_MOST_OF = {"forks": 15, "lending": 12, "deadlines": 15, "tenants": 25}
_KINDS = {
    "agent and SDK": r"eva_worker|iterator_sdk",
    "client": r"eva_client",
    "lab": r"eva_lab",
    "wire, settings and job file": r"eva_wire|eva_master/(app|adapters/resolving|control/settings)",
    "what is shown": r"eva_master/(adapters|control/readside|ports/reading)",
    "values": r"eva_master/(model|ports|testing)",
    "policies and packing": r"eva_policies|eva_master/(packing|policies|learning)",
    "control loop": r"eva_master",
}
"""Kinds of files by their paths; the first that matches counts."""
_VALUES = "eva_master/model/planning"


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table.

    Attributes:
        name: Its meaning.
        before: At commit 2910a3ba, as stated when the goals were set; empty if it was not.
        now: The figure of these sources.
        goal: At most that; empty if there is none.
    """

    name: str
    before: str
    now: int
    goal: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code, without its indentation."""

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Alike:
    """Two places with the same lines of code.

    Attributes:
        length: How many lines.
        first: File and line where they begin.
        second: File and line where they begin once more.
    """

    length: int
    first: str
    second: str


def figures(root: Path) -> Iterator[Figure]:
    """The figures of a repository, in the order in which they are printed."""
    product = list(python_files(root, PRODUCT))
    yield Figure("lines of the product", "116,036", _lines(product), "114,000")
    code = {path: list(code_lines(path, root)) for path in product}
    yield Figure("  of these, code", "", sum(map(len, code.values())), "66,000")
    for package, before, goal in (
        ("eva_master", "101,568", "74,000"),
        ("eva_client", "", ""),
        ("eva_lab", "", ""),
        ("eva_policies", "", ""),
        ("eva_wire", "", ""),
        ("eva_worker", "", ""),
        ("iterator_sdk", "", ""),
    ):
        files = list(python_files(root, (package,)))
        yield Figure(f"  of these, {package}", before, _lines(files), goal)
    yield from _classes(root)
    for feature in FEATURES:
        count = sum(1 for _ in mentions(root, feature))
        name = f"files that mention {feature} outside its rooms"
        yield Figure(name, "", count, f"{_MOST_OF[feature]}")
    counts = ceilings.counted(root)
    begins = counts["product, texts that begin badly"]
    yield Figure("docstrings and comments that begin badly", "1,300", begins, "20")
    yield Figure("local names that are no nouns", "2,433", counts["product, local names"], "40")
    alike = [pair.length for pair in alike_places(list(code.values()))]
    yield Figure(f"pairs of places with {ALIKE_LINES} equal lines", "", len(alike), "10")
    yield Figure("  lines of the longest", "", max(alike, default=0), "10")
    pages = (page for page in markdown_files(root / "docs") if _is_read(page, root))
    spoken = sum(len(words.read(page).split()) for page in pages)
    yield Figure("words of docs, experiments and references apart", "82,139", spoken, "60,000")


def table(root: Path) -> str:
    """The figures as text: before, now, goal."""
    rows = [("", "2910a3ba", "now", "goal")]
    rows += [(each.name, each.before, f"{each.now:,}", each.goal) for each in figures(root)]
    return "\n".join(f"{name:56} {old:>10} {now:>10} {goal:>10}" for name, old, now, goal in rows)


def _classes(root: Path) -> Iterator[Figure]:
    """Sizes of the classes that everything goes through.

    Fields are annotated names of the class; attributes and hung-on methods are those that
    ``__init__`` sets on ``self``, hung-on ones to an attribute of another object.
    """
    view = _class(root, f"{_VALUES}/job_view.py", "JobView")
    yield Figure("fields of JobView", "30", _fields(view), "12")
    yield Figure("fields of Plan", "13", _fields(_class(root, f"{_VALUES}/plan.py", "Plan")), "10")
    turn = _class(root, "eva_master/control/turn/turn.py", "Turn")
    context = _class(root, "eva_master/control/context.py", "Context")
    attributes = {name for known in (turn, context) for name, _ in _set_by_init(known)}
    yield Figure("attributes of Context", "31", len(attributes), "12")
    state = _class(root, "eva_master/control/state/store.py", "State")
    yield Figure("methods of State", "63", len(list(_methods(state))), "40")
    hung = sum(map(_is_of_another, (value for _, value in _set_by_init(state))))
    yield Figure("  hung on by its __init__", "10", hung, "0")
    cycle = _class(root, "eva_master/control/rounds/cycle.py", "Cycle")
    planned = [method for method in _methods(cycle) if method.name == "planned"]
    length = sum((method.end_lineno or 0) - method.lineno + 1 for method in planned)
    yield Figure("lines of Cycle.planned", "43", length, "15")


def mentions(root: Path, feature: str) -> Iterator[str]:
    """Files of the product that mention a feature outside its rooms."""
    said, rooms = re.compile(FEATURES[feature], re.IGNORECASE), re.compile(_ROOMS[feature])
    for path in python_files(root, PRODUCT):
        shown = path.relative_to(root).as_posix()
        if not rooms.search(shown) and said.search(words.read(path)):
            yield shown


def mentions_table(root: Path, feature: str) -> str:
    """The files that mention a feature outside its rooms as text, by kinds, with lines of each."""
    said = re.compile(FEATURES[feature], re.IGNORECASE)
    by_kind: defaultdict[str, list[str]] = defaultdict(list)
    for path in mentions(root, feature):
        kind = next(name for name, rooms in _KINDS.items() if re.match(rooms, path))
        lines = sum(bool(said.search(line)) for line in words.read(root / path).splitlines())
        by_kind[kind].append(f"{lines:7} {path}")
    return "\n".join(
        line
        for kind in _KINDS
        if kind in by_kind
        for line in (f"{len(by_kind[kind]):3} {kind}", *by_kind[kind])
    )


def code_lines(path: Path, root: Path) -> Iterator[Line]:
    """The lines of a file without empty ones, comments and docstrings."""
    text, shown = words.read(path), path.relative_to(root).as_posix()
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if value is not None and isinstance(value, ast.Constant) and isinstance(value.value, str):
            said.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare and not bare.startswith("#") and number not in said:
            yield Line(shown, number, bare)


def alike_table(root: Path) -> str:
    """The pairs of places with equal lines as text, longest first."""
    return "\n".join(
        f"{pair.length:3} {pair.first} {pair.second}" for pair in _alike_in_product(root)
    )


def alike_faults(root: Path) -> list[str]:
    """Complaints about more pairs of places with equal lines, or longer ones, than are allowed."""
    pairs = _alike_in_product(root)
    faults = [
        f"{pair.first} and {pair.second} share {pair.length} lines, at most {MOST_ALIKE} may"
        for pair in pairs
        if pair.length > MOST_ALIKE
    ]
    if len(pairs) > MOST_ALIKE:
        faults.append(
            f"{len(pairs)} pairs of places share {ALIKE_LINES} lines or more, at most {MOST_ALIKE} "
            "may: python -m tests.checks --alike"
        )
    return faults


def _alike_in_product(root: Path) -> list[Alike]:
    code = [list(code_lines(path, root)) for path in python_files(root, PRODUCT)]
    return sorted(alike_places(code), key=lambda pair: -pair.length)


def alike_places(files: list[list[Line]]) -> list[Alike]:
    """The pairs of places with at least `ALIKE_LINES` equal lines of code.

    Imports are left out, and indentation is. A run of lines counts once, at its full length.
    """
    sources = [[line for line in file if not _imports(line.text)] for file in files]
    windows: defaultdict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, lines in enumerate(sources):
        for start in range(len(lines) - ALIKE_LINES + 1):
            window = tuple(line.text for line in lines[start : start + ALIKE_LINES])
            windows[window].append((number, start))
    pairs = {
        (one, other)
        for places in windows.values()
        for index, one in enumerate(places)
        for other in places[index + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= ALIKE_LINES
    }
    runs = []
    for (file, start), (other, place) in sorted(pairs):
        if ((file, start - 1), (other, place - 1)) in pairs:
            continue  # within a longer run
        length = ALIKE_LINES
        while (
            (file, start + length - ALIKE_LINES + 1),
            (other, place + length - ALIKE_LINES + 1),
        ) in pairs:
            length += 1
        first, second = sources[file][start], sources[other][place]
        runs.append(Alike(length, f"{first.path}:{first.number}", f"{second.path}:{second.number}"))
    return runs


def _imports(text: str) -> bool:
    """Whether a line is a part of an import, as far as it alone says."""
    return text.startswith(("import ", "from ")) or bool(
        re.fullmatch(r"[\w.]+( as \w+)?,|\)", text)
    )


def _is_read(page: Path, root: Path) -> bool:
    return page.relative_to(root / "docs").parts[0] not in ("experiments", "reference")


def _lines(files: list[Path]) -> int:
    return sum(words.read(path).count("\n") for path in files)


def _class(root: Path, path: str, name: str) -> ast.ClassDef | None:
    """A class of a file; `None` where it has moved."""
    file = root / path
    tree = ast.parse(words.read(file) if file.exists() else "")
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == name), None)


def _fields(node: ast.ClassDef | None) -> int:
    return sum(isinstance(part, ast.AnnAssign) for part in (node.body if node else ()))


def _methods(node: ast.ClassDef | None) -> Iterator[ast.FunctionDef]:
    for part in node.body if node else ():
        if isinstance(part, ast.FunctionDef):
            yield part


def _set_by_init(node: ast.ClassDef | None) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that ``__init__`` sets on ``self``, each with its value."""
    for method in _methods(node):
        for part in ast.walk(method) if method.name == "__init__" else ():
            if isinstance(part, ast.AnnAssign):
                pairs: list[tuple[ast.expr, ast.expr | None]] = [(part.target, part.value)]
            elif isinstance(part, ast.Assign):
                pairs = [pair for target in part.targets for pair in _paired(target, part.value)]
            else:
                continue
            for target, value in pairs:
                if isinstance(target, ast.Attribute):
                    yield target.attr, value


def _is_of_another(value: ast.expr | None) -> bool:
    """Whether a value is an attribute of another object, and no constant of a class."""
    if not isinstance(value, ast.Attribute):
        return False
    return not (isinstance(value.value, ast.Name) and value.value.id[:1].isupper())


def _paired(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None]]:
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
    return list(zip(target.elts, values, strict=True))
