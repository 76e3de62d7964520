"""Six distributions together are what one installation for development has."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from deploy import wheels
from eva_wire import VERSION
from tests.checks.sources import PACKAGES

ROOT = Path(__file__).parents[3]
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_OF_A_CLIENT = 20


def requirements(name: str) -> list[str]:
    return [line for line in wheels.project(name)["dependencies"] if not line.startswith("eva-")]


def bare(line: str) -> str:
    return re.split(r"[\[<>=]", line)[0]


def test_each_package_is_in_one_distribution() -> None:
    names = [path.name for name in wheels.DISTRIBUTIONS for path in wheels.packages(name)]
    assert sorted(names) == sorted((*PACKAGES, "eva_iterator"))


@pytest.mark.parametrize("name", wheels.DISTRIBUTIONS)
def test_all_have_the_same_version(name: str) -> None:
    assert wheels.project(name)["version"] == VERSION == WHOLE["version"]


def test_entry_points_of_all_are_those_of_the_whole() -> None:
    together: dict[str, dict[str, str]] = {}
    for name in wheels.DISTRIBUTIONS:
        own = {path.name for path in wheels.packages(name)}
        for group, points in wheels.project(name).get("entry-points", {}).items():
            assert all(target.partition(".")[0] in own for target in points.values()), name
            together.setdefault(group, {}).update(points)
    assert together == WHOLE["entry-points"]
    assert wheels.project("eva-client")["scripts"] == WHOLE["scripts"]


def test_requirements_are_stated_with_the_same_bounds() -> None:
    whole = {bare(line): line for line in WHOLE["dependencies"]}
    stated: dict[str, set[str]] = {}
    for name in (*wheels.DISTRIBUTIONS,):
        table: dict[str, Any] = wheels.project(name)
        extras = table.get("optional-dependencies", {}) if name == "eva-wire" else {}
        for line in (*requirements(name), *chain.from_iterable(extras.values())):
            stated.setdefault(bare(line), set()).add(line)
    assert {name: {line} for name, line in whole.items() if name != "eva-iterator"} == stated


def test_a_client_needs_few_packages() -> None:
    seen: set[str] = set()
    waiting = [*map(Requirement, wheels.project("eva-client")["dependencies"])]
    while waiting:
        requirement = waiting.pop()
        if requirement.name in seen:
            continue
        seen.add(requirement.name)
        if requirement.name in wheels.DISTRIBUTIONS:
            table = wheels.project(requirement.name)
            extras = table.get("optional-dependencies", {})
            lines = [
                *table["dependencies"],
                *(line for extra in requirement.extras for line in extras[extra]),
            ]
        else:
            lines = requires(requirement.name) or []
        for line in lines:
            below = Requirement(line)
            chosen = [*requirement.extras, ""]
            if not below.marker or any(below.marker.evaluate({"extra": name}) for name in chosen):
                waiting.append(below)
    assert {"eva-wire", "grpcio", "rich"} <= seen
    assert len(seen) <= MOST_OF_A_CLIENT, sorted(seen)


@pytest.mark.parametrize("name", wheels.DISTRIBUTIONS)
def test_no_package_asks_for_a_distribution_that_need_not_be_there(name: str) -> None:
    """Agents and clients are installed without `eva-scheduler`: versions come of `eva_wire`."""
    sources = [file for top in wheels.packages(name) for file in top.rglob("*.py")]
    asking = [file.name for file in sources if re.search(r"\bversion\(\"eva-", file.read_text())]
    assert asking == []
