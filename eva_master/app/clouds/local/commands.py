"""Commands that come with the cloud on this machine: interrupt."""

from __future__ import annotations

from pathlib import Path

import click

from eva_client.cli.refusals import refusals
from eva_wire.values.errors import InvalidConfig


@click.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--state-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="State directory of the cluster.  [default: that of the settings of other commands]",
)
def interrupt(names: tuple[str, ...], state_dir: Path | None) -> None:
    """Have the cloud of `eva up` take spot instances back, as a spot market would.

    Use this to try out what happens to their tasks. Each has the notice of the setting
    `local.spot.notice`, and then ends. Run it on the cluster's machine, as the user who runs the
    cluster. Nodes that are refused do not hold up the others; the exit code is 1 then.
    """
    from eva_master.adapters.local.interruptions import interrupt as take_back
    from eva_wire.values.ids import InstanceId

    root = _cloud_in(state_dir)

    def end(name: str) -> None:
        take_back(root, InstanceId(name))
        click.echo(f"{name} is taken back")

    with refusals() as refused:
        refused.each(end, names)


def _cloud_in(state_dir: Path | None) -> Path:
    """The directory of a cluster's instances; of the one that other commands reach if `None`."""
    from eva_client.settings import CLIENT_FILE, client_file
    from eva_master.app.clouds.local.section import CLOUD

    file = client_file()
    if state_dir is None and file is not None and file.name == CLIENT_FILE:
        state_dir = file.parent
    if state_dir is None or not (state_dir / CLOUD).is_dir():
        where = "in the settings of this command" if state_dir is None else f"in {state_dir}"
        raise InvalidConfig(
            f"there is no local cloud {where}",
            hint="name the state directory that `eva up` has printed: --state-dir DIR",
        )
    return state_dir / CLOUD
