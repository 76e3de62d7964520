"""Finds the policies by the entry points of the group ``eva.policies``, Eva's own as all others.

An entry point is named as the policy and refers to a `ports.PolicyKind`. A policy is imported when
a user asks for it and not before: a broken plug-in harms only its users.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eva_master.ports import PolicyKind
from eva_wire.values.errors import UnusablePolicy

GROUP = "eva.policies"
"""The entry point group in which other distributions name their policies."""
OWN = "eva-scheduler"
"""The distribution whose policies come with Eva."""
_MASTER = "eva_master"


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Where a policy comes from.

    Attributes:
        name: Of the policy.
        distribution: Name and version of what was installed to have it.
        target: Object to import, as ``module:attribute``.
        load: Imports it.
    """

    name: str
    distribution: str
    target: str
    load: Callable[[], Any]


class Policies(Mapping[str, PolicyKind]):
    """Every policy by its name, sorted; imports one when it is looked up.

    A lookup raises `UnusablePolicy` if the policy is there but cannot be used.

    Args:
        sources: Of all policies; two of one name make that name unusable.
    """

    def __init__(self, sources: Iterable[PolicySource]) -> None:
        self._sources: dict[str, list[PolicySource]] = {}
        for source in sorted(sources, key=lambda source: source.name):
            self._sources.setdefault(source.name, []).append(source)

    def __getitem__(self, name: str) -> PolicyKind:
        source, *others = self._sources[name]
        if others:
            raise _ambiguous(name, [source, *others])
        try:
            kind: PolicyKind = source.load()
        except (Exception, SystemExit) as error:
            raise UnusablePolicy(
                f"the policy {name!r} of {source.distribution} cannot be imported from "
                f"{source.target}: {type(error).__name__}: {error}",
                hint=_remedy(source),
            ) from error
        if fault := _fault(name, kind):
            raise UnusablePolicy(
                f"{source.target} of {source.distribution} is not a policy: {fault}",
                hint=_remedy(source),
            )
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def sources(self, name: str) -> list[PolicySource]:
        """Where a policy comes from: one source, or all that claim the name."""
        return list(self._sources[name])

    def code_of(self, name: str) -> str:
        """A digest of the package that a policy is in; empty for those of `eva_master`."""
        package = _top(self._sources[name][0].target)
        return "" if package == _MASTER else _code_of(package)

    def faults(self) -> dict[str, UnusablePolicy]:
        """Why policies cannot be used, by name, as far as it can be told without importing them."""
        faults_by_name = {}
        for name, sources in self._sources.items():
            if len(sources) > 1:
                faults_by_name[name] = _ambiguous(name, sources)
            elif not _is_installed(sources[0].target):
                faults_by_name[name] = UnusablePolicy(
                    f"the policy {name!r} of {sources[0].distribution} is not there: nothing can "
                    f"be imported from {sources[0].target}",
                    hint=_remedy(sources[0]),
                )
        return faults_by_name


@cache
def policies() -> Policies:
    """The policies of this installation as of the first call."""
    return find_policies()


def find_policies() -> Policies:
    """Look for policies on the import path."""
    return Policies(map(plugin, entry_points(group=GROUP)))


def plugin(point: EntryPoint) -> PolicySource:
    """The policy that an entry point names."""
    installed = point.dist
    if installed is None:
        distribution = "an unknown distribution"
    elif installed.name == OWN:
        distribution = OWN
    else:
        distribution = f"{installed.name} {installed.version}"
    return PolicySource(point.name, distribution, point.value, point.load)


def _ambiguous(name: str, sources: Iterable[PolicySource]) -> UnusablePolicy:
    claimants = [f"{source.target} of {source.distribution}" for source in sources]
    others = [source.distribution for source in sources if source.distribution != OWN]
    return UnusablePolicy(
        f"there is more than one policy {name!r}: {', '.join(claimants)}",
        hint=f"uninstall {' or '.join(dict.fromkeys(others))}, or rename its policy",
    )


def _remedy(source: PolicySource) -> str:
    name = source.distribution.partition(" ")[0]
    return f"repair or uninstall {name}, or choose another policy"


def _top(target: str) -> str:
    """The top package of a target."""
    return target.partition(":")[0].partition(".")[0].strip()


def _is_installed(target: str) -> bool:
    """Whether the top package of a target can be found, without importing anything."""
    top = _top(target)
    try:
        return bool(top) and find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _code_of(package: str) -> str:
    """A digest of all Python files of a package, or of a module that is none."""
    spec = find_spec(package)
    if spec is None:
        return ""
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [(folder, file) for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not folders and spec.origin is not None:
        files = [(Path(spec.origin).parent, Path(spec.origin))]
    digest = hashlib.sha256()
    for folder, file in files:
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _fault(name: str, kind: object) -> str:
    """The fault that keeps an object from being the kind of this policy; empty if none."""
    if not isinstance(kind, PolicyKind):
        return f"it is a {type(kind).__name__}, not a PolicyKind of eva_master.ports"
    if kind.name != name:
        return f"its name is {kind.name!r}, that of its entry point {name!r}"
    config: object = kind.config
    if not (isinstance(config, type) and is_dataclass(config) and _is_frozen(config)):
        return "its config is not a frozen dataclass"
    options = fields(config)
    for option in options:
        if option.init and option.default is MISSING and option.default_factory is MISSING:
            return f"its option {option.name!r} has no default"
    return _preset_fault(kind.presets, {option.name for option in options})


def _is_frozen(config: Any) -> bool:
    return bool(config.__dataclass_params__.frozen)


def _preset_fault(presets: Any, options: set[str]) -> str:
    if not isinstance(presets, Mapping):
        return "its presets are not a mapping"
    for name, chosen in presets.items():
        if not isinstance(name, str) or not isinstance(chosen, Mapping):
            return f"its preset {name!r} is not a name and a mapping of options"
        if unknown := sorted(map(str, chosen.keys() - options)):
            return f"its preset {name!r} sets {unknown[0]!r}, which is no option"
    return ""
