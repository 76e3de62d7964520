"""Every command explains itself: what it does, what its options do, examples as one types them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoints, entry_points

import click
import pytest
from click.testing import CliRunner

from eva_client import cli
from eva_client.cli import main

_NO_JSON = {
    "eva up": "runs until it is stopped",
    "eva master": "runs until it is stopped",
    "eva worker": "runs until it is stopped",
    "eva schema": "prints JSON anyway",
    "eva exec": "prints what the command prints",
    "eva port-forward": "runs until it is stopped",
    "eva ui": "runs until it is stopped",
    "eva cancel": "changes",
    "eva rm": "changes",
    "eva run": "prints the command's output",
    "eva interrupt": "changes",
    "eva secret set": "changes",
    "eva secret rm": "changes",
    "eva token revoke": "changes",
    "eva teardown": "changes",
    "eva trace convert": "writes a file",
    "eva completion": "prints a script",
    "eva connect aws": "writes a file",
}
"""Commands without ``--json``, and why. All others read."""


def _walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found, f"{name} {below}"
            yield from _walk(found, f"{name} {below}")


COMMANDS = dict(_walk(main, "eva"))
LEAVES = {name: it for name, it in COMMANDS.items() if not isinstance(it, click.Group)}


def _shown(name: str, width: int = 80) -> str:
    arguments = [*name.split()[1:], "--help"]
    result = CliRunner().invoke(main, arguments, terminal_width=width)
    assert result.exit_code == 0, result.output
    return result.output


def _paragraphs(command: click.Command) -> Iterator[str]:
    for text in (command.help, command.epilog):
        yield from inspect.cleandoc(text or "").split("\n\n")


def _examples(command: click.Command) -> list[str]:
    """Lines of a command's help that are to be typed as they stand."""
    lines = (line for paragraph in _paragraphs(command) for line in paragraph.splitlines())
    return [line.strip() for line in lines if line.strip().startswith("eva ")]


def test_the_walk_reaches_commands_of_all_kinds() -> None:
    """Eva's own, groups in groups, those of clouds, and that of the worker."""
    assert {"eva ls", "eva trace generate production", "eva deploy aws", "eva worker"} <= {*LEAVES}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_what_its_options_do(name: str) -> None:
    command = COMMANDS[name]
    assert (command.help or "").strip()
    silent = [
        option.opts
        for option in command.params
        if isinstance(option, click.Option)
        and not option.hidden
        and not (option.help or "").strip()
    ]
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_examples_have_lines_of_their_own(name: str, width: int) -> None:
    """None is wrapped into the text around it, and no mark of the formatter's is seen."""
    shown = _shown(name, width)
    assert "\\b" not in shown
    assert "\b" not in shown
    lines = [line.strip() for line in shown.splitlines()]
    assert [it for it in _examples(COMMANDS[name]) if it not in lines] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_lists_have_lines_of_their_own(name: str) -> None:
    """What is indented in the source is meant to be shown so."""
    wrapped = [
        paragraph
        for paragraph in _paragraphs(COMMANDS[name])
        if any(line.startswith((" ", "- ", "* ")) for line in paragraph.splitlines())
        and not paragraph.startswith("\b\n")
    ]
    assert wrapped == []


def test_there_are_examples() -> None:
    assert _examples(COMMANDS["eva simulate"])


def test_every_command_is_in_a_group_of_the_help_page() -> None:
    shown = _shown("eva")
    headings = [line[:-1] for line in shown.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    groups = ["Jobs", "Files and shells", "Cluster and money", "Operators"]
    assert headings == ["Options", *groups, "Researchers", "On an instance"]
    listed = re.findall(r"^  ([a-z-]+) {2,}\S", shown.partition("Jobs:")[2], re.MULTILINE)
    assert sorted(listed) == sorted({name.split()[1] for name in LEAVES})


def test_every_reading_command_has_json() -> None:
    without = {
        name
        for name, it in LEAVES.items()
        if not any("--json" in param.opts for param in it.params)
    }
    assert without == _NO_JSON.keys()


def test_commands_of_other_packages_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []

    def counted(group: str) -> EntryPoints:
        groups.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(cli, "entry_points", counted)
    assert "simulate" in _shown("eva")
    assert groups == ["eva.commands"]


def test_no_option_takes_a_number_that_is_none() -> None:
    options = [
        (name, command, option)
        for name, command in LEAVES.items()
        for option in command.params
        if isinstance(option, click.Option)
        and isinstance(option.type, click.types.FloatParamType)
        and not option.hidden
    ]
    assert len(options) > 5
    for name, command, option in options:
        for text in ("nan", "inf", "-inf"):
            with pytest.raises(click.BadParameter):
                option.process_value(click.Context(command, info_name=name), text)
