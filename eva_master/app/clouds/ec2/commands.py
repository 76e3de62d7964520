"""Commands on clusters in a cloud account: deploy, teardown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eva_master.app.cli.session import console, json_option, print_json
from eva_master.app.cli.views.errors import note

if TYPE_CHECKING:
    from eva_master.adapters.deployment import Change

_F = TypeVar("_F", bound=Callable[..., Any])
_ACTIONS = {"Add": ("add", "green"), "Modify": ("change", "yellow"), "Remove": ("remove", "red")}


def _account_options(command: _F) -> _F:
    options = [
        click.option("--cluster", metavar="NAME", default="eva", show_default=True),
        click.option(
            "--region", metavar="REGION", required=True, envvar="AWS_REGION", show_envvar=True
        ),
        click.option("--endpoint", metavar="URL", default="", hidden=True, help="For tests."),
        click.option("--poll-s", type=float, default=5.0, hidden=True, help="For tests."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _parameters(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    if wrong := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"{wrong[0]!r} is not of the form NAME=VALUE")
    return dict(value.partition("=")[::2] for value in values)


@click.group()
def deploy() -> None:
    """Make a cluster in a cloud account, or change one."""


@deploy.command()
@_account_options
@click.option(
    "--users",
    metavar="CIDR",
    help="From where users reach the master, such as 203.0.113.7/32. Needed for a new cluster.",
)
@click.option(
    "--subnet",
    "subnets",
    metavar="ID",
    multiple=True,
    help="One per zone, in a VPC that is there, the master's first; if absent, a new VPC.",
)
@click.option(
    "--bundles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("dist"),
    show_default=True,
    help="Where make bundle has left them.",
)
@click.option(
    "--set",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parameters,
    help="Another parameter of the template; may be repeated.",
)
@click.option("--client-file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def aws(
    *,
    cluster: str,
    region: str,
    endpoint: str,
    poll_s: float,
    users: str | None,
    subnets: tuple[str, ...],
    bundles: Path,
    parameters: dict[str, str],
    client_file: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make or change a cluster in an AWS account, by CloudFormation.

    Shows what would change and what that costs before anything does. Needs the credentials of
    somebody who may make roles; the cluster's own roles may do far less.
    """
    from eva_master.app.clouds.ec2.deployment import Account, Deployment
    from eva_master.app.config import user_state_dir

    stated = {**parameters, **({"UserCidr": users} if users else {})}
    account = Account(cluster, region, endpoint, poll_s)
    deployment = Deployment(account, bundles=bundles, subnets=subnets, parameters=stated)
    if as_json:
        print_json([_shown(change) for change in deployment.changes])
    else:
        _print_changes(deployment.stack.name, deployment.changes)
    if dry_run or not deployment.changes:
        deployment.drop()
        return
    if not yes and not click.confirm("Make these changes?", err=True):
        deployment.drop()
        raise click.Abort
    deployment.carry_out(note)
    target = client_file or user_state_dir() / f"{cluster}.yaml"
    deployment.client_file(target, note)
    note(f"The cluster is there. In your shell: export EVA_CONFIG={target.absolute()}")


@click.command()
@_account_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def teardown(*, cluster: str, region: str, endpoint: str, poll_s: float, yes: bool) -> None:
    """Remove a cluster from an AWS account, with everything that it has stored.

    Terminates the master and all instances of the cluster, empties the bucket and deletes the
    stack, the master's state included. What is interrupted is taken up again by another call.
    """
    from eva_master.app.clouds.ec2.deployment import Account
    from eva_master.app.clouds.ec2.deployment import teardown as begin

    end = begin(Account(cluster, region, endpoint, poll_s))
    if not yes:
        count, size = end.stored()
        workers = len(end.workers())
        note(
            f"This terminates the master and {workers} instances, and deletes {count} objects "
            f"({size / 1e9:.1f} GB) with logs, outputs and checkpoints, and the journal."
        )
        typed = click.prompt(f"Type the cluster's name ({cluster}) to go on", err=True)
        if typed != cluster:
            raise click.Abort
    end.run(note)
    note("Nothing of the cluster is left.")


def _shown(change: Change) -> dict[str, str]:
    return {
        "action": change.action,
        "resource": change.resource,
        "type": change.kind,
        "replaced": change.replaced,
    }


def _print_changes(stack: str, changes: list[Change]) -> None:
    if not changes:
        note(f"{stack} is as it should be.")
        return
    out = console()
    for change in sorted(changes, key=lambda it: (it.action, it.kind, it.resource)):
        replaced = "" if change.replaced == "False" else f"  replaced: {change.replaced}"
        action, style = _ACTIONS[change.action]
        out.print(f"{action:<7} {change.kind}  {change.resource}{replaced}", style=style)
