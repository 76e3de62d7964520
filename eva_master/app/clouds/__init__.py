"""The clouds that instances come from, a package each that exports ``PROVIDER``.

Adding a cloud means adding a package here: its section of the settings, its catalog, its flags and
its commands come with it. No other file names it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eva_master.app.cloud_provider import CloudProvider

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig


@cache
def clouds() -> Mapping[str, CloudProvider]:
    """Every cloud by its name, sorted."""
    modules = (module for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return checked(
        (module.name, import_module(f"{__name__}.{module.name}").PROVIDER) for module in modules
    )


def cloud_of(config: MasterConfig) -> CloudProvider:
    """The cloud that the settings choose."""
    return clouds()[config.cloud]


def cloud_commands() -> dict[str, str]:
    """The module of every command that comes with a cloud, such as ``deploy aws``."""
    return {
        command: target for cloud in clouds().values() for command, target in cloud.commands.items()
    }


def checked(found: Iterable[tuple[str, Any]]) -> dict[str, CloudProvider]:
    """Clouds by name, once each is known to be complete.

    Args:
        found: Names of packages and what they export.

    Raises:
        TypeError: A cloud lacks a part of `CloudProvider`.
    """
    providers: dict[str, CloudProvider] = {}
    commands: dict[str, str] = {}
    for package, provider in sorted(found, key=lambda one: one[0]):
        if not isinstance(provider, CloudProvider):
            raise TypeError(f"cloud {package}: PROVIDER is not a CloudProvider")
        for attribute in ("name", "flags", "ends_with_master"):
            if not hasattr(provider, attribute):
                raise TypeError(f"cloud {package}: PROVIDER has no {attribute}")
        if provider.name != package:
            raise TypeError(f"cloud {package}: PROVIDER is named {provider.name!r}")
        if odd := [flag for flag in provider.flags if not flag.startswith(f"--{package}-")]:
            raise TypeError(f"cloud {package}: {odd[0]} does not begin with --{package}-")
        for command in provider.commands:
            if command in commands:
                raise TypeError(f"cloud {package}: {command!r} is a command of {commands[command]}")
            commands[command] = package
        providers[package] = provider
    return providers
