"""Commands on files and settings: schema, config."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note
from eva_wire.values.errors import EvaError, InvalidConfig, NotAuthenticated, Unreachable, Untrusted


@click.command()
def schema() -> None:
    """Print the JSON Schema of the job file, for editors."""
    from eva_wire.jobfile import job_schema

    print_json(job_schema())


@click.command()
@click.option(
    "--check",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only check whether a master can start with this settings file.",
)
@json_option
@address_option
@pass_session
def config(session: CommandSession, file: Path | None, as_json: bool) -> None:
    """Show the settings in force, yours and the master's."""
    import yaml

    if file is not None:
        _check(file, as_json=as_json)
        return

    from eva_client.settings import client_file

    client_settings = session.config().model_dump(mode="json")
    try:
        with session.client() as client:
            master_settings = json.loads(client.config())
    except (InvalidConfig, NotAuthenticated, Unreachable, Untrusted) as error:
        note(f"{error.message}: the master's settings are unknown")
        master_settings = None
    file = client_file()
    shown = {
        "client_file": str(file) if file else None,
        "client": client_settings,
        "master": master_settings,
    }
    if as_json:
        print_json(shown)
    else:
        click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)


def _check(file: Path, *, as_json: bool) -> None:
    """Have the package of the master check a settings file.

    Raises:
        EvaError: The package is not installed here.
    """
    points = list(entry_points(group="eva.settings", name="check"))
    if not points:
        raise EvaError(
            "settings of a master are checked by the package eva-scheduler, which is not here",
            hint="pip install eva-scheduler, or run this on the master's machine",
        )
    points[0].load()(file, as_json=as_json)
