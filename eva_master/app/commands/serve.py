"""Commands that run a master: up, master."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eva_master.app.clouds import clouds

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Named after the settings, so that error messages can name them.
_FLAGS: list[tuple[str, Mapping[str, Any]]] = [
    ("--cluster", {"metavar": "NAME", "help": "Name of the cluster."}),
    (
        "--state-dir",
        {"metavar": "DIR", "help": "Directory of everything that must survive a restart."},
    ),
    (
        "--cloud",
        {"type": click.Choice(list(clouds())), "help": "The cloud that instances come from."},
    ),
    (
        "--advertise",
        {"metavar": "HOST", "help": "Host at which instances and users reach this machine."},
    ),
    ("--listen", {"metavar": "HOST:PORT", "help": "Where users dial."}),
    (
        "--worker-listen",
        {
            "metavar": "HOST:PORT",
            "help": "Address for workers; if absent, one port above that for users.",
        },
    ),
    ("--metrics-port", {"metavar": "PORT", "type": int, "help": "Prometheus and health."}),
    (
        "--journal",
        {"metavar": "URL", "help": "URL of the journal; if absent, SQLite in the state directory."},
    ),
    (
        "--objects",
        {"metavar": "URL", "help": "URL of the object store; if absent, the state directory."},
    ),
    (
        "--input-roots",
        {
            "metavar": "URL",
            "multiple": True,
            "help": "Where jobs' inputs may come from, such as s3:// or file:///data; may be"
            " repeated.",
        },
    ),
    ("--policy-name", {"metavar": "NAME", "help": "Which scheduler decides."}),
    (
        "--round-period",
        {"metavar": "DURATION", "help": "Longest time between two planning rounds."},
    ),
    (
        "--catalog-file",
        {"metavar": "FILE", "help": "Catalog file with more instance types and prices."},
    ),
    (
        "--catalog-only",
        {"metavar": "NAME", "multiple": True, "help": "Type or family to use; may be repeated."},
    ),
]
_SECTIONS = ("policy", "catalog", *clouds())


def _master_options(command: Decorated) -> Decorated:
    of_clouds = [flag for cloud in clouds().values() for flag in cloud.flags.items()]
    for flag, attributes in reversed([*_FLAGS, *of_clouds]):
        short = ("--policy",) if flag == "--policy-name" else ()
        command = click.option(*short, flag, _parameter(flag), **attributes)(command)
    return click.option(
        "--config",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Settings file; variables EVA_MASTER_... override it, and flags those.",
    )(command)


def _parameter(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


@click.command()
@_master_options
def up(file: Path | None, **flags: Any) -> None:
    """Run a cluster on this machine: a master and emulated instances."""
    from eva_master.app.local import run_up
    from eva_wire.settings.common import user_state_dir

    run_up(_config(file, flags, {"state_dir": str(user_state_dir())}))


@click.command()
@_master_options
def master(file: Path | None, **flags: Any) -> None:
    """Run the master of a cluster."""
    from eva_master.app.config import MASTER_FILE
    from eva_master.app.master import run_master

    if file is None and MASTER_FILE.is_file():
        file = MASTER_FILE
    run_master(_config(file, flags, {}))


def _config(file: Path | None, flags: dict[str, Any], defaults: dict[str, Any]) -> MasterConfig:
    from eva_master.app.policy_registry import policies
    from eva_master.app.settings import load_master_config

    return load_master_config(
        policies=policies(), file=file, flags=_nested(flags), defaults=defaults
    )


def _nested(flags: dict[str, Any]) -> dict[str, Any]:
    """Convert the given flags to settings: ``policy_name`` is ``name`` in section ``policy``."""
    settings: dict[str, Any] = {}
    for flag, value in flags.items():
        if value is None or value == ():
            continue
        section, _, key = flag.partition("_")
        given = list(value) if isinstance(value, tuple) else value
        if section in _SECTIONS:
            settings.setdefault(section, {})[key] = given
        else:
            settings[flag] = given
    return settings
