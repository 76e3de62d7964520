"""``eva policies``: the schedulers of this installation."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from eva_client.cli.session import console, json_option, print_json
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import plain


@dataclass(frozen=True, slots=True)
class _Listed:
    """A policy as it is listed; `fault` says why it cannot be used."""

    name: str
    presets: list[str]
    distribution: str
    fault: str


@click.command()
@json_option
def policies(*, as_json: bool) -> None:
    """List the schedulers that are installed here, with their presets.

    Policies of other distributions are among them; a broken one is listed with the reason.
    """
    listed = _listed()
    if as_json:
        print_json([asdict(policy) for policy in listed])
        return
    lines = Grid("POLICY", "PRESETS", "FROM", "NOTE", notes=("PRESETS", "NOTE"), drop=("FROM",))
    for policy in listed:
        cells = (policy.name, ", ".join(policy.presets) or "-", policy.distribution, policy.fault)
        lines.add_row(*map(plain, cells))
    console().print(lines)


def _listed() -> list[_Listed]:
    from eva_master.app.policy_registry import policies as installed
    from eva_wire.values.errors import UnusablePolicy

    entries = []
    for name in (kinds := installed()):
        sources = ", ".join(source.distribution for source in kinds.sources(name))
        try:
            entries.append(_Listed(name, sorted(kinds[name].presets), sources, ""))
        except UnusablePolicy as error:
            entries.append(_Listed(name, [], sources, f"{error.message}; {error.hint}"))
    return entries
