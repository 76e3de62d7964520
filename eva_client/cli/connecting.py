"""`eva connect`: settings for a cluster that somebody else has made."""

from __future__ import annotations

from pathlib import Path

import click

from eva_client.cli.session import address_option


@click.group()
def connect() -> None:
    """Write the settings that reach a cluster which is there already."""


@connect.command()
@click.option(
    "--cluster",
    metavar="NAME",
    default="eva",
    show_default=True,
    help="Which of the account's clusters.",
)
@click.option(
    "--region",
    metavar="REGION",
    required=True,
    envvar="AWS_REGION",
    show_envvar=True,
    help="AWS's region that the cluster is in.",
)
@click.option(
    "--client-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write them, for EVA_CONFIG.  [default: CLUSTER.yaml in your state directory]",
)
@click.option("--endpoint", metavar="URL", default="", hidden=True, help="For tests.")
@address_option
@click.pass_context
def aws(
    ctx: click.Context, cluster: str, region: str, client_file: Path | None, endpoint: str
) -> None:
    """Reach a cluster of `eva deploy aws` with your own AWS identity, which must be on its list.

    Takes credentials with ssm:GetParameter for /eva/NAME/client. No token is stored there: each
    command proves who you are where the last proof is some hours old.
    """
    from eva_client.cli.session import CommandSession
    from eva_client.identities.aws import parameter
    from eva_client.settings import write_aws_settings
    from eva_wire.settings.common import user_state_dir

    settings = parameter(cluster, region, endpoint)
    target = client_file or user_state_dir() / f"{cluster}.yaml"
    address = ctx.ensure_object(CommandSession).flags.get("address") or str(settings["address"])
    write_aws_settings(target, address, str(settings["ca"]))
    click.echo(f"wrote {target}: export EVA_CONFIG={target}")
