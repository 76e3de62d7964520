"""Shows errors to users: what happened, where, and what to do."""

from __future__ import annotations

import click

from eva_wire.text.escapes import visible
from eva_wire.values.errors import EvaError, InvalidConfig, InvalidJob, Problem, Unreachable

BAD_INPUT = 2
UNREACHABLE = 69
"""EX_UNAVAILABLE of sysexits.h."""


def exit_code(error: EvaError) -> int:
    """The command's exit status for an error."""
    match error:
        case InvalidJob() | InvalidConfig():
            return BAD_INPUT
        case Unreachable():
            return UNREACHABLE
        case _:
            return 1


def report(error: EvaError) -> None:
    """Write an error to stderr."""
    _line("error", "red", error.message)
    if len(error.problems) > 1:
        for problem in error.problems:
            note(f"  {_where(problem)}{problem.message}")
            if problem.hint:
                note(f"      {problem.hint}")
    elif error.problems and error.problems[0].hint:
        _line("hint", "cyan", error.problems[0].hint)
    if error.hint:
        _line("hint", "cyan", error.hint)


def note(message: str) -> None:
    """Write a note to stderr, so that stdout has only results."""
    click.echo(visible(message), err=True)


def _line(label: str, colour: str, text: str) -> None:
    click.echo(f"{click.style(f'{label}:', fg=colour, bold=True)} {visible(text)}", err=True)


def _where(problem: Problem) -> str:
    place = f"line {problem.line}, column {problem.column}: " if problem.line else ""
    return f"{place}{problem.key}: " if problem.key else place
