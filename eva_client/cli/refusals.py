"""Commands on several targets: a target that is refused does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from eva_client.cli.views.errors import note, report
from eva_wire.values.errors import EvaError, InvalidRequest, NotAuthorised, NotFound

_Target = TypeVar("_Target")
_Answer = TypeVar("_Answer")


class Refusals:
    """Targets of a command that were refused, each with the error; see `refusals`."""

    def __init__(self) -> None:
        self._errors: list[tuple[Any, EvaError]] = []

    def __len__(self) -> int:
        return len(self._errors)

    def each(self, call: Callable[[_Target], _Answer], targets: Iterable[_Target]) -> list[_Answer]:
        """The answers to the calls that are not refused; each target is called once."""
        answers = []
        for target in dict.fromkeys(targets):
            try:
                answers.append(call(target))
            except (NotFound, InvalidRequest, NotAuthorised) as error:
                self._errors.append((target, error))
        return answers

    def ask(self, question: str, *, yes: bool) -> None:
        """Have the user confirm what is done to the targets that are left; else end the command.

        Args:
            question: Names them; empty if none is left.
            yes: Whether the user has confirmed already.
        """
        if not question or yes:
            return
        for _, error in self._errors:
            note(f"{error.message}; it is left out")
        click.confirm(question, abort=True, err=True)

    def shapes(self, key: str) -> list[dict[str, Any]]:
        """The refusals as JSON.

        Args:
            key: Member that names the target.
        """
        return [
            {key: target, "message": error.message, "hint": error.hint or None}
            for target, error in self._errors
        ]

    def report(self) -> None:
        """Tell the user; once what is the same for several, such as a lack of rights."""
        errors = {(error.message, error.hint): error for _, error in self._errors}
        for error in errors.values():
            report(error)


@contextmanager
def refusals(*, quiet: bool = False) -> Iterator[Refusals]:
    """Report refusals at the end of a block, and have the command exit with 1 if there are any.

    Args:
        quiet: Whether they are not reported, since the command prints their `shapes`.
    """
    refused = Refusals()
    try:
        yield refused
    except EvaError:
        if not quiet:
            refused.report()
        raise
    if not quiet:
        refused.report()
    if refused:
        raise click.exceptions.Exit(1)
