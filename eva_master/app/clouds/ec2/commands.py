"""Commands that come with EC2: deploy aws, teardown, catalog update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eva_client.cli.session import console, json_option, print_json
from eva_client.cli.views.errors import note
from eva_master.app.commands.catalog import (
    architecture_option,
    config_option,
    master_config,
    name_option,
)
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_master.adapters.deployment import Change, Check
    from eva_master.app.clouds.ec2.deployment import Deployment
    from eva_master.app.clouds.ec2.section import Ec2Section
    from eva_master.app.clouds.ec2.standing_cost import StandingCost

_F = TypeVar("_F", bound=Callable[..., Any])
_ACTIONS = {"Add": ("add", "green"), "Modify": ("change", "yellow"), "Remove": ("remove", "red")}


def _account_options(command: _F) -> _F:
    options = [
        click.option(
            "--cluster",
            metavar="NAME",
            default="eva",
            show_default=True,
            help="Which of the account's clusters; its stack is called so.",
        ),
        click.option(
            "--region",
            metavar="REGION",
            required=True,
            envvar="AWS_REGION",
            show_envvar=True,
            help="AWS's region that the cluster is in.",
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


def _bundles(named: Path | None) -> Path | None:
    """The directory of the bundles: the named one, or that of a checkout if it has some."""
    built = Path("dist")
    return built if named is None and any(built.glob("eva-master-*.tar")) else named


@click.command()
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
    help="Where make bundle has left them.  [default: dist, where it has bundles; else they are "
    "made of the packages that are installed here]",
)
@click.option(
    "--set",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parameters,
    help="Another parameter of the template; may be repeated.",
)
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The master's settings that differ from what the stack says, such as ec2.spot. They stay "
    "until another file is named; an empty one takes them back.",
)
@click.option(
    "--client-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the settings that commands reach the cluster with, for EVA_CONFIG.  "
    "[default: CLUSTER.yaml in your state directory]",
)
@click.option(
    "--for",
    "job_file",
    metavar="JOBFILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A job that is to run: checks that the account's quotas have room for it.",
)
@click.option(
    "--dry-run", is_flag=True, help="Check the account, show what would change, and change nothing."
)
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
    bundles: Path | None,
    parameters: dict[str, str],
    settings: Path | None,
    client_file: Path | None,
    job_file: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make or change a cluster in an AWS account, by CloudFormation.

    Shows what would change and what that costs before anything does. Needs the credentials of
    somebody who may make roles; the cluster's own roles may do far less.
    """
    from eva_master.adapters.deployment import Account
    from eva_master.app.clouds.ec2.deployment import Deployment
    from eva_wire.service import logs
    from eva_wire.settings.common import user_state_dir

    logs.configure()  # Standard output is for results.
    stated = {**parameters, **({"UserCidr": users} if users else {})}
    account = Account(cluster, region, endpoint, poll_s)
    deployment = Deployment(
        account,
        note,
        bundles=_bundles(bundles),
        subnets=subnets,
        parameters=stated,
        settings=settings,
        look_only=dry_run,
        job_file=job_file,
    )
    _print_json(deployment) if as_json else _print_words(deployment)
    if dry_run:
        deployment.drop()
        return
    if deployment.changes and not yes and not click.confirm("Make these changes?", err=True):
        deployment.drop()
        raise click.Abort
    deployment.carry_out()
    target = client_file or user_state_dir() / f"{cluster}.yaml"
    deployment.client_file(target)
    note(f"The cluster is there. In your shell: export EVA_CONFIG={target.absolute()}")


@click.command()
@_account_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def teardown(*, cluster: str, region: str, endpoint: str, poll_s: float, yes: bool) -> None:
    """Remove a cluster from an AWS account, with everything that it has stored.

    Terminates the master and all instances of the cluster, empties the bucket and deletes the
    stack, the master's state included. Another call resumes an interrupted one.
    """
    from eva_master.adapters.deployment import Account, Teardown

    end = Teardown(Account(cluster, region, endpoint, poll_s))
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


def _print_json(deployment: Deployment) -> None:
    print_json(
        {
            "changes": [asdict(change) for change in deployment.changes],
            "checks": [asdict(check) for check in deployment.checks],
            "parameters": {name: after for name, _, after in deployment.parameter_changes},
            "standing_cost": _cost_shown(deployment.standing_cost[1]),
        }
    )


def _print_words(deployment: Deployment) -> None:
    _print_checks(deployment.checks)
    _print_changes(deployment.stack.name, deployment.changes)
    for name, before, after in deployment.parameter_changes:
        note(f"{name}: {before or 'none'} -> {after or 'none'}")
    _print_cost(*deployment.standing_cost)
    if deployment.master_replaced:
        note("The master gets another instance, and is away for some minutes; tasks run on.")


def _print_checks(checks: list[Check]) -> None:
    out = console()
    verdicts = {True: ("ok", "green"), False: ("no", "red"), None: ("?", "yellow")}
    for check in checks:
        word, style = verdicts[check.ok]
        out.print(f"{word:<3} {check.name}: {check.says}", style=style, markup=False)
        if check.hint:
            out.print(f"    {check.hint}", markup=False)


def _print_changes(stack: str, changes: list[Change]) -> None:
    if not changes:
        note(f"{stack} is as it should be.")
        return
    out = console()
    for change in sorted(changes, key=lambda it: (it.action, it.type, it.resource)):
        replaced = "" if change.replaced == "False" else f"  replaced: {change.replaced}"
        action, style = _ACTIONS.get(change.action, (change.action.lower(), "yellow"))
        out.print(f"{action:<7} {change.type}  {change.resource}{replaced}", style=style)


def _cost_shown(cost: StandingCost) -> dict[str, Any]:
    return {
        "lines": [
            {"what": what, "usd_per_month": None if amount is None else amount / MILLION}
            for what, amount in cost.lines
        ],
        "usd_per_month": None if cost.total is None else cost.total / MILLION,
        "source": cost.source,
    }


def _print_cost(before: StandingCost | None, after: StandingCost) -> None:
    out = console()
    out.print(f"While no job runs it costs a month ({after.source}, without tax):")
    for what, amount in after.lines:
        out.print(f"  {_usd(amount):>9}  {what}")
    earlier = (
        "" if before is None or before.total == after.total else f" ({_usd(before.total)} now)"
    )
    out.print(f"  {_usd(after.total):>9}  together{earlier}")
    out.print(
        "While jobs run, each instance adds its price (eva catalog ls), its disk and its address."
    )


def _usd(amount: int | None) -> str:
    return "not known" if amount is None else f"${Decimal(amount) / MILLION:.2f}"


@click.command()
@config_option
@name_option
@architecture_option
@click.option("--region", metavar="REGION", help="If the settings name none.")
@click.option("--endpoint", metavar="URL", help="Of AWS's API, for tests.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it.")
@json_option
def update(
    *,
    file: Path | None,
    names: tuple[str, ...],
    architectures: tuple[str, ...],
    region: str | None,
    endpoint: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Ask AWS what it sells and for how much; the master's next start goes by it.

    Takes credentials with ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings,
    ec2:DescribeSpotPriceHistory and pricing:GetProducts.
    """
    from eva_master.adapters.catalog.snapshot import read_snapshot
    from eva_master.adapters.ec2 import Ec2Settings
    from eva_master.adapters.ec2.offerings import take_snapshot
    from eva_master.app.clouds.ec2.wiring import ec2_settings, snapshot_file

    config = None if region and out else master_config(file)
    section: Ec2Section | None = config.section("ec2") if config else None
    if config is not None and section is not None:
        settings = ec2_settings(config)
        target = out or snapshot_file(config)
    elif region and out:
        settings, target = Ec2Settings("", region), out
    else:
        raise click.UsageError("the settings have no section ec2: give --region and --out")
    settings = replace(
        settings, region=region or settings.region, endpoint=endpoint or settings.endpoint
    )
    wanted = names or (config.catalog.only if config else None) or None
    before = read_snapshot(target) if target.is_file() else None
    now = take_snapshot(
        settings,
        architectures=architectures or (section.architectures if section else ("x86_64",)),
        names=wanted,
    )
    now.write(target)
    changes = now.changes_since(before)
    if as_json:
        print_json({"file": str(target), "types": len(now.types), **changes})
        return
    words = ", ".join(f"{len(which)} {what}" for what, which in changes.items() if which)
    click.echo(f"{target}: {len(now.types)} types in {now.region} ({words or 'as before'})")
    if config is not None:
        click.echo("the master reads it when it starts", err=True)
