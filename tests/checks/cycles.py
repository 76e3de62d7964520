"""Refuses import cycles, among modules and among the rooms of a package.

A room is a package or module beside others of the same package. Rooms form a cycle if each of them
imports, anywhere within, from the next one, even where no two modules import each other. A shelf
holds rooms of the package that it is in: features of the control loop, say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import grimp

Imports = Mapping[str, Iterable[str]]
"""By module: the modules that it imports."""

# The folder of a cloud brings its commands, settings and wiring along, which use those of all.
EXEMPT = ("eva_master.app",)
"""Packages whose rooms may import each other, though their modules may not."""

SHELVES = ("eva_master.control.features",)
"""Packages whose rooms count as rooms of the package around them."""


def faults(packages: tuple[str, ...]) -> Iterator[str]:
    """One line per cycle in some installed packages."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {
        module: sorted(graph.find_modules_directly_imported_by(module))
        for module in sorted(graph.modules)
    }
    for cycle in cycles(imports):
        yield f"modules import each other: {' -> '.join([*cycle, cycle[0]])}"
    for parent, rooms in rooms_of(imports).items():
        for cycle in cycles(rooms) if parent not in EXEMPT else ():
            yield f"rooms of {parent} import each other: {' -> '.join([*cycle, cycle[0]])}"


def rooms_of(imports: Imports) -> dict[str, Imports]:
    """By package: which of its rooms import from which."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for importer, imported in imports.items():
        for target in imported:
            parent, room, other = _parting(importer, target)
            if parent and room and other:
                found[parent][room].add(other)
    return {parent: dict(rooms) for parent, rooms in sorted(found.items())}


def _parting(importer: str, imported: str) -> tuple[str, str, str]:
    """The package that holds both modules, and the room of each; a room is empty if it has none."""
    one, other = _shelved(importer).split("."), _shelved(imported).split(".")
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return (
        ".".join(one[:shared]),
        ".".join(one[shared : shared + 1]),
        ".".join(other[shared : shared + 1]),
    )


def _shelved(module: str) -> str:
    """The name of a module as if its shelf were the package around it."""
    for shelf in SHELVES:
        if module.startswith(f"{shelf}."):
            return f"{shelf.rpartition('.')[0]}.{module.removeprefix(f'{shelf}.')}"
    return module


def cycles(imports: Imports) -> list[list[str]]:
    """One shortest cycle of each group of modules that all reach each other."""
    found = []
    settled: set[str] = set()
    for module in sorted(imports):
        if module not in settled and (cycle := _shortest_cycle(module, imports)):
            found.append(cycle)
            settled |= {it for it in _reached(module, imports) if module in _reached(it, imports)}
    return found


def _shortest_cycle(start: str, imports: Imports) -> list[str]:
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:  # grows while it is gone through: breadth first
        for target in sorted(imports.get(path[-1], ())):
            if target == start:
                return path
            if target not in seen:
                seen.add(target)
                paths.append([*path, target])
    return []


def _reached(start: str, imports: Imports) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = set(imports.get(ahead.pop(), ())) - found
        found |= new
        ahead += new
    return found
