"""``eva config --check FILE``: whether a master can start with a settings file."""

from __future__ import annotations

from pathlib import Path

import click

from eva_client.cli.session import print_json


def check(file: Path, *, as_json: bool) -> None:
    """Read a master's settings and the files they name, as the master would, without a network."""
    from eva_master.adapters.notices.receivers import require_files
    from eva_master.app.clouds import cloud_of
    from eva_master.app.policy_registry import policies
    from eva_master.app.sections.policies import shown_settings
    from eva_master.app.settings import load_master_config

    settings = load_master_config(policies=policies(), file=file)
    cloud = cloud_of(settings)
    cloud.check(settings)
    require_files([section.receiver for section in settings.notify])
    catalog = cloud.catalog(settings)
    types = {offering.type.name for offering in catalog}
    if as_json:
        print_json({"settings": shown_settings(settings), "types": sorted(types)})
    else:
        zones = ", ".join(sorted({offering.zone for offering in catalog}))
        click.echo(f"{file}: a master can start with it; {len(types)} types for sale in {zones}")
