"""Finds the runtimes: every package beside this module exports one as ``RUNTIME``."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import eva_worker.runtime
from eva_worker.errors import RuntimeUnavailable
from eva_worker.runtime import Runtime

if TYPE_CHECKING:
    from eva_worker.settings import Settings


class RuntimeProvider(ABC):
    """One runtime, for the worker to choose by its name.

    Every worker imports this class, so slow imports belong in its methods.

    Attributes:
        name: That of the package, and of the setting ``runtime``.
        options: Options of ``eva worker`` for this runtime alone, with their click attributes;
            each is named ``--NAME-KEY`` and has a text as its value. `Settings.runtime_options`
            has them by name, such as ``docker_host``.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Mapping[str, Any]]]

    @abstractmethod
    def base_env(self) -> Mapping[str, str]:
        """The variables of this machine's environment that tasks have."""

    @abstractmethod
    def check(self, settings: Settings) -> None:
        """See that the runtime is there, before anything runs.

        Raises:
            RuntimeUnavailable: The runtime does not suit the settings.
        """

    def fence(self, settings: Settings, root: Path) -> bool:
        """Kill all tasks of this worker from outside its agent, and let none start.

        The worker's supervisor calls it when the lease of an owned node has run out. A runtime
        whose tasks have parents of their own that do so need not do anything.

        Args:
            settings: The worker's.
            root: The directory of the runtime's records.

        Returns:
            Whether no task runs; if not it is called again.
        """
        del settings, root
        return True

    @property
    def fenced_by_supervisor(self) -> bool:
        """Whether the supervisor has to call `fence`."""
        return type(self).fence is not RuntimeProvider.fence

    def protect(self, settings: Settings) -> None:
        """Close to tasks what is the instance's alone, before any of them runs.

        Args:
            settings: The worker's.

        Raises:
            Unprotected: That cannot be done, and no task may run without it.
        """
        del settings

    @abstractmethod
    def open(self, settings: Settings, root: Path) -> Runtime:
        """Make the runtime; in a running event loop.

        Args:
            settings: The worker's.
            root: A directory for its records.

        Raises:
            RuntimeUnavailable: The runtime is not there.
        """


@cache
def runtimes() -> Mapping[str, RuntimeProvider]:
    """Every runtime by its name, sorted."""
    package = eva_worker.runtime
    modules = (module for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    names = [f"{package.__name__}.{module.name}" for module in modules]
    return checked((name.rpartition(".")[2], import_module(name).RUNTIME) for name in names)


def runtime(name: str) -> RuntimeProvider:
    """The runtime of a name.

    Raises:
        RuntimeUnavailable: There is none.
    """
    providers = runtimes()
    if name not in providers:
        raise RuntimeUnavailable(f"there is no runtime {name!r}, only {' and '.join(providers)}")
    return providers[name]


def checked(found: Iterable[tuple[str, Any]]) -> dict[str, RuntimeProvider]:
    """Runtimes by name, if each says all that it has to.

    Args:
        found: Names of packages and what they export.

    Raises:
        TypeError: One does not.
    """
    providers: dict[str, RuntimeProvider] = {}
    for package, provider in sorted(found, key=lambda one: one[0]):
        if not isinstance(provider, RuntimeProvider):
            raise TypeError(f"runtime {package}: RUNTIME is not a RuntimeProvider")
        for attribute in ("name", "options"):
            if not hasattr(provider, attribute):
                raise TypeError(f"runtime {package}: RUNTIME has no {attribute}")
        if provider.name != package:
            raise TypeError(f"runtime {package}: RUNTIME is named {provider.name!r}")
        if odd := [name for name in provider.options if not name.startswith(f"--{package}-")]:
            raise TypeError(f"runtime {package}: {odd[0]} does not begin with --{package}-")
        providers[package] = provider
    return providers
