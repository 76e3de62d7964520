"""The command ``eva worker``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from cryptography import x509

from eva_worker.errors import RuntimeUnavailable
from eva_worker.link.identity import Identity
from eva_worker.process.supervisor import supervise
from eva_worker.runtime.registry import runtime, runtimes
from eva_worker.settings import Settings

_F = TypeVar("_F", bound=Callable[..., Any])


def _option(name: str, **attributes: Any) -> Callable[[_F], _F]:
    """An option that can be set by ``EVA_WORKER_NAME``, too."""
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


def _pairs(_context: click.Context, _parameter: click.Parameter, values: Any) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values)
    if "" in pairs or not all("=" in value for value in values):
        raise click.BadParameter("must be of the form NAME=VALUE")
    return pairs


@click.command()
@_option(
    "--master", required=True, metavar="HOST:PORT", help="Where the master listens for workers."
)
@_option(
    "--join",
    default="",
    metavar="HOST:PORT",
    help="Where the master takes join tokens: its port for users. Needed once.",
)
@_option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM certificates of those who may vouch for the master; or their text in EVA_WORKER_CA.",
)
@_option("--instance-id", required=True, metavar="ID", help="This instance's id in the cluster.")
@_option("--instance-type", required=True, metavar="TYPE", help="Such as p3.2xlarge.")
@_option("--gpus", type=click.IntRange(0), default=0, help="GPUs that tasks may use.")
@_option(
    "--cpus",
    type=click.FloatRange(0, min_open=True),
    required=True,
    help="vCPUs that tasks may use; may be a fraction.",
)
@_option(
    "--memory-mib", type=click.IntRange(1), required=True, help="MiB of memory that tasks may use."
)
@_option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where tasks and their records are kept; survives the worker.",
)
@_option(
    "--emulated",
    is_flag=True,
    help="The hardware is make-believe: GPUs are mere names, CPUs are mapped to the machine's.",
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
    help="Under which other instances reach this one; default: the address that leads to the "
    "master.",
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
    help="What runs tasks: plain processes, or a container for each.",
)
@_runtime_options
@_option(
    "--storage-mount",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that all instances of the cluster share: outputs are written to it, tasks of a "
    "job have one directory in common, and inputs below it are not copied.",
)
@_option(
    "--boot-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Lines of NAME MILLISECONDS: how long each stage of the boot took, for the master.",
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
    help="Ends the instance, once the worker has left without having been told to by a signal.",
)
@_option(
    "--metadata-url",
    default="",
    metavar="URL",
    help="Instance metadata service to ask every 5 s whether a spot instance is interrupted.",
)
def worker(
    instance_id: str,
    cpus: float,
    state_dir: Path,
    task_env: dict[str, str],
    ca_file: Path | None,
    **rest: Any,
) -> None:
    """Run tasks on this instance for the master.

    The first time, the worker joins the cluster with the join token of its instance, which is
    taken from the variable EVA_WORKER_TOKEN alone: command lines are for all to read. From then on
    it has a certificate in its state directory, which it renews by itself.

    Keeps an agent running, which dials the master and starts and stops tasks. SIGTERM checkpoints
    and stops the tasks, uploads what they leave behind, and says goodbye to the master; a second
    one leaves at once. Tasks go on while master or agent are away.

    The worker does the same by itself when the cloud announces that it takes the instance away, and
    when there has been no master for too long. Then it has the instance switched off.
    """
    settings = Settings(
        instance=instance_id,
        milli_cpus=round(cpus * 1000),
        state_dir=state_dir.absolute(),
        task_env=task_env,
        # Not for the agent's children, of which there is no end.
        token=os.environ.pop("EVA_WORKER_TOKEN", ""),
        authorities=_authorities(ca_file),
        runtime_options=_taken(rest),
        **rest,
    )
    _require_identity(settings)
    try:
        runtime(settings.runtime).check(settings)
    except RuntimeUnavailable as error:
        raise click.ClickException(str(error)) from error
    sys.exit(supervise(settings))


def _authorities(file: Path | None) -> str:
    """The certificates to begin with, empty for none."""
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
        "--join": settings.join,
        "--ca-file or EVA_WORKER_CA": settings.authorities,
        "EVA_WORKER_TOKEN": settings.token,
    }
    if missing := [name for name, value in wanted.items() if not value]:
        raise click.UsageError(
            f"this instance has no certificate yet and needs {', '.join(missing)} to get one"
        )
