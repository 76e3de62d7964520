"""Command-line interface of the worker: ``eva worker``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click
from cryptography import x509

from eva_worker.errors import JoinRefused, NotEnrolled, RuntimeUnavailable
from eva_worker.isolation import Isolation
from eva_worker.link.identity import Identity
from eva_worker.process.supervisor import supervise
from eva_worker.runtime.lease_guard import LeaseGuard
from eva_worker.runtime.registry import runtime, runtimes
from eva_worker.settings import Settings

_F = TypeVar("_F", bound=Callable[..., Any])


def _option(name: str, **attributes: Any) -> Callable[[_F], _F]:
    """An option that can also be set in the environment, as ``EVA_WORKER_NAME``."""
    variable = "EVA_WORKER_" + name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, envvar=variable, show_envvar=True, **attributes)


def _runtime_options(command: _F) -> _F:
    """The options of all runtimes."""
    every = [option for provider in runtimes().values() for option in provider.options.items()]
    for name, attributes in reversed(every):
        command = _option(name, **{"default": "", **attributes})(command)
    return command


def _taken(rest: dict[str, Any]) -> dict[str, str]:
    """Take the options of runtimes out of all options; those of the chosen one are returned."""
    taken: dict[str, str] = {}
    for provider in runtimes().values():
        for option in provider.options:
            name = option.removeprefix("--").replace("-", "_")
            value = rest.pop(name)
            if provider.name == rest["runtime"]:
                taken[name] = value
    return taken


def _isolation(rest: dict[str, Any], decided: Mapping[str, str]) -> Isolation:
    """Take what isolates tasks out of all options; what the master has decided goes before."""
    values: dict[str, Any] = {}
    for part in fields(Isolation):
        given = rest.pop(f"task_{part.name}")
        text = decided.get(f"EVA_WORKER_TASK_{part.name.upper()}", given)
        values[part.name] = type(given)(text)
    return Isolation(**values)


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuse infinity, and what is no number, which are within every range."""
    if value is not None and not isfinite(value):
        raise click.BadParameter(f"{value} is not a number")
    return value


_OF_LAUNCHED = ("master", "instance_id", "instance_type", "cpus", "memory_mib", "state_dir")
_NODE_STATE = Path("/var/lib/eva-worker")


def _launched(rest: dict[str, Any]) -> dict[str, Any]:
    """Take what a launched instance is told about itself out of all options."""
    del rest["join"], rest["type"]
    if missing := [name for name in _OF_LAUNCHED if not rest[name]]:
        option = missing[0].replace("_", "-")
        raise click.UsageError(f"Missing option '--{option}'.")
    return {
        "master": rest.pop("master"),
        "instance": rest.pop("instance_id"),
        "instance_type": rest.pop("instance_type"),
        "gpus": rest.pop("gpus"),
        "milli_cpus": round(rest.pop("cpus") * 1000),
        "memory_mib": rest.pop("memory_mib"),
        "state_dir": rest.pop("state_dir").absolute(),
        "join": rest.pop("enrol"),
    }


class _Refused(click.ClickException):
    """This machine is told that it cannot join; no repetition would help."""

    exit_code = 2


def _node(rest: dict[str, Any]) -> dict[str, Any]:
    """Join as an owned node if this machine has not; what the master says of it."""
    from eva_worker.link.joining import join
    from eva_worker.tasks.devices import discover_gpus

    token, type_, state_dir = rest.pop("join"), rest.pop("type"), rest.pop("state_dir")
    given = {name: rest.pop(name) for name in ("enrol", *_OF_LAUNCHED[:5], "gpus")}
    if said := [name for name, value in given.items() if value]:
        option = said[0].replace("_", "-")
        raise click.UsageError(f"--{option} is told by the master where there is a --join")
    if token and not type_:
        raise click.UsageError("--join needs --type, the node's type in the master's settings")
    home = (state_dir or _NODE_STATE).absolute()
    try:
        gpus = _MANY_GPUS if rest["emulated"] else len(discover_gpus())
        node = join(token, type_, home, gpus=gpus)
    except JoinRefused as error:
        raise _Refused(str(error)) from error
    except NotEnrolled as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    return {
        "master": node.workers,
        "instance": node.name,
        "instance_type": node.type,
        "gpus": node.gpus,
        "milli_cpus": node.milli_cpus,
        "memory_mib": node.memory_mib,
        "state_dir": home,
        "join": "",
        "owned": True,
        "environment": node.environment,
    }


def _has_joined(rest: dict[str, Any]) -> bool:
    """Whether the state directory is that of an owned node, which needs no token any more."""
    from eva_worker.link.joining import Node

    home = rest["state_dir"] or (_NODE_STATE if not rest["instance_id"] else None)
    return home is not None and Node.load(home) is not None


_MANY_GPUS = 1_024
"""Of an emulated machine, as many as are stated."""


def _pairs(_context: click.Context, _parameter: click.Parameter, values: Any) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values)
    if "" in pairs or not all("=" in value for value in values):
        raise click.BadParameter("must be of the form NAME=VALUE")
    return pairs


@click.command()
@_option(
    "--master", default="", metavar="HOST:PORT", help="Address of the master's port for workers."
)
@_option(
    "--join",
    default="",
    metavar="TOKEN",
    help="Join as an owned node, with the token that `eva node token` made, or its file. The master"
    " then says all else that this worker needs.",
)
@_option(
    "--type",
    default="",
    metavar="NAME",
    help="With --join: the node's type, as the master's settings have it.",
)
@_option(
    "--enrol",
    default="",
    metavar="HOST:PORT",
    help="Address at which the master accepts join tokens: its port for users. Needed once.",
)
@_option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of PEM certificates to verify the master with; EVA_WORKER_CA has their text.",
)
@_option("--instance-id", default="", metavar="ID", help="This instance's id in the cluster.")
@_option("--instance-type", default="", metavar="TYPE", help="Such as p3.2xlarge.")
@_option("--gpus", type=click.IntRange(0), default=0, help="GPUs that tasks may use.")
@_option(
    "--cpus",
    type=click.FloatRange(0, min_open=True),
    callback=_finite,
    help="vCPUs that tasks may use; may be a fraction.",
)
@_option("--memory-mib", type=click.IntRange(1), help="MiB of memory that tasks may use.")
@_option(
    "--memory-reserved-mib",
    type=click.IntRange(0),
    default=0,
    help="MiB that are not for tasks of what this machine's kernel counts; the rest is reported to "
    "the master. 0 for --memory-mib as it is.",
)
@_option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the tasks and their records. Keep it across restarts of the worker. Default "
    "with --join: /var/lib/eva-worker.",
)
@_option(
    "--emulated",
    is_flag=True,
    help="Emulate the hardware: GPUs are only names, and CPUs are mapped to those of the machine.",
)
@_option(
    "--task-env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="A variable for every task; may be repeated (in the environment: separated by spaces).",
)
@_option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve Prometheus metrics on this port of the loopback interface.",
)
@_option(
    "--address",
    default="",
    metavar="HOST",
    help="Address at which other instances reach this one. Default: the address of the route to "
    "the master.",
)
@_option(
    "--log-kept-mib",
    type=click.IntRange(0),
    default=64,
    show_default=True,
    help="MiB of each task's log to keep on the disk once the object store has them.",
)
@_option(
    "--runtime",
    type=click.Choice(list(runtimes())),
    default="process",
    help="How tasks run: as plain processes, or each in a container.",
)
@_runtime_options
@_option(
    "--task-user",
    type=click.Choice(["unprivileged", "worker"]),
    default="unprivileged",
    show_default=True,
    help="User of tasks where the worker is root: one without rights, or the worker's, for images "
    "that need root.",
)
@_option(
    "--task-network",
    type=click.Choice(["own", "host"]),
    default="own",
    show_default=True,
    help="Network of containers: their own, or this machine's, which those of gangs always have.",
)
@_option(
    "--task-processes",
    type=click.IntRange(16),
    default=Isolation().processes,
    show_default=True,
    help="Most processes and threads of a task, where the runtime can limit them.",
)
@_option(
    "--task-open-files",
    type=click.IntRange(64),
    default=Isolation().open_files,
    show_default=True,
    help="Most open files of each process of a task.",
)
@_option(
    "--storage-mount",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that all instances of the cluster share: outputs are written to it, tasks of a "
    "job have one directory in common, and inputs below it are not copied.",
)
@_option(
    "--hidden",
    default="",
    metavar="PATHS",
    help="Files and directories, separated by colons, that tasks which are plain processes must "
    "not see, and that no input comes from.",
)
@_option(
    "--boot-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that says how long each stage of the boot took, in lines of NAME MILLISECONDS.",
)
@_option(
    "--abandoned-after-s",
    type=click.IntRange(0),
    default=0,
    metavar="SECONDS",
    help="Leave after so long without a master; 0 for never.",
)
@_option(
    "--power-off",
    default="",
    metavar="COMMAND",
    help="Command that switches the instance off after the worker has left without a signal.",
)
@_option(
    "--metadata-url",
    default="",
    metavar="URL",
    help="Instance metadata service to ask every 5 s whether a spot instance is interrupted.",
)
def worker(task_env: dict[str, str], ca_file: Path | None, **rest: Any) -> None:
    """Run tasks on this instance for the master.

    The first time, the worker joins the cluster with the join token of its instance. The variable
    EVA_WORKER_TOKEN is the only place for the token, since every user can see command lines. From
    then on the worker has a certificate in its state directory, which it renews by itself.

    A machine that nobody launched joins with --join and --type: an owned node. Its tasks stop when
    it has heard of no master for the node's `fence_after`, whatever has become of the worker.
    Later starts need its --state-dir alone.

    The worker keeps an agent running, which connects to the master and starts and stops tasks. On
    SIGTERM it checkpoints and stops the tasks, uploads their files, and signs off from the master;
    on a second SIGTERM it leaves at once. Tasks keep running while the master or the agent is away.

    The worker also does this when the cloud announces an interruption, and when no master has been
    reached for too long. Then the instance is switched off.
    """
    machine = _node(rest) if rest["join"] or _has_joined(rest) else _launched(rest)
    isolation = _isolation(rest, machine.pop("environment", {}))
    settings = Settings(
        **machine,
        task_env=task_env,
        # The agent's children do not inherit the token.
        token=os.environ.pop("EVA_WORKER_TOKEN", ""),
        authorities=_authorities(ca_file),
        hidden=tuple(Path(place) for place in rest.pop("hidden").split(os.pathsep) if place),
        runtime_options=_taken(rest),
        isolation=isolation,
        **rest,
    )
    _require_identity(settings)
    try:
        runtime(settings.runtime).check(settings)
    except RuntimeUnavailable as error:
        raise click.ClickException(str(error)) from error
    sys.exit(supervise(settings, LeaseGuard(settings)) if settings.owned else supervise(settings))


def _authorities(file: Path | None) -> str:
    """The certificates that the master is verified with at first; empty for none."""
    given = os.environ.pop("EVA_WORKER_CA", "")
    text = file.read_text() if file else given
    if text:
        try:
            x509.load_pem_x509_certificates(text.encode())
        except ValueError as error:
            where = f"--ca-file {file}" if file else "EVA_WORKER_CA"
            raise click.UsageError(f"{where} holds no certificate in PEM") from error
    return text


def _require_identity(settings: Settings) -> None:
    """Fail before anything runs rather than have agent after agent fail."""
    if Identity.at(settings).certificate_file.exists():
        return
    wanted = {
        "--enrol": settings.join,
        "--ca-file or EVA_WORKER_CA": settings.authorities,
        "EVA_WORKER_TOKEN": settings.token,
    }
    if missing := [name for name, value in wanted.items() if not value]:
        raise click.UsageError(
            f"this instance has no certificate yet and needs {', '.join(missing)} to get one"
        )
