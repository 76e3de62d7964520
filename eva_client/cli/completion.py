"""Completion of commands and options in a shell."""

from __future__ import annotations

import click

_VARIABLE = "_EVA_COMPLETE"
"""Variable by which the script asks the command itself; click names it after the program."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands and options of eva.

    \b
    For this shell, and every later one:
        eval "$(eva completion bash)"      in ~/.bashrc
        eval "$(eva completion zsh)"       in ~/.zshrc, below compinit
        eva completion fish > ~/.config/fish/completions/eva.fish
    """  # noqa: D301 - what the formatter is told
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root.command, {}, "eva", _VARIABLE).source())
