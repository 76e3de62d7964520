"""Commands on files and settings: schema, config."""

from __future__ import annotations

import json

import click

from eva_master.app.cli.reports import note
from eva_master.app.cli.session import (
    Session,
    address_option,
    json_option,
    pass_session,
    print_json,
)
from eva_master.model.errors import InvalidConfig, NotAuthenticated, Unreachable, Untrusted


@click.command()
def schema() -> None:
    """Print the JSON Schema of the job file, for editors."""
    from eva_master.adapters.jobfile import job_schema

    print_json(job_schema())


@click.command()
@json_option
@address_option
@pass_session
def config(session: Session, as_json: bool) -> None:
    """Show the settings in force, yours and the master's."""
    import yaml

    from eva_master.app.client import client_file

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
