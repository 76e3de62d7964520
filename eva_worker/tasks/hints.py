"""Causes that a failed task's own words do not name, by the end of its log."""

from __future__ import annotations

import re

_BASH = re.compile(
    r"(?:\b(?:source|declare|typeset|shopt|mapfile|readarray|pushd|popd|function|select)|\[\[)"
    r": not found$"
    r'|Syntax error: (?:"[^"]+" unexpected|redirection unexpected|Bad for loop variable'
    r"|Bad function name)"
    r'|syntax error: (?:unexpected ["(]|unexpected redirection|bad for loop variable'
    r"|bad function name|bad substitution)"
    r"|\bBad substitution$"
    r"|\b[Ii]llegal option -o \w"
    r"|\[: .*unexpected operator$"
    r"|\btrap: (?:ERR|DEBUG|RETURN): bad trap$",
    re.MULTILINE,
)
"""Complaints of dash and the sh of BusyBox about bash's language."""
_LINE_ENDINGS = re.compile(
    r"\^M: bad interpreter"
    r"|\\r['\u2019]: (?:command not found|No such file)"
    r"|unexpected token `\$'.*\\r'"
    r"|\r['\u2019]?: (?:command not found|not found|No such file|invalid option|invalid signal"
    r"|numeric argument required)"
    r"|[Ii]llegal option -o? ?\w*\r"
)
"""Complaints of shells and `env` about a script whose lines end in carriage returns."""


def hint(tail: str) -> str:
    """Advice on a failure.

    Args:
        tail: The end of the task's log.

    Returns:
        Half a sentence for the user; empty if the log tells of nothing known.
    """
    if _LINE_ENDINGS.search(tail):
        return "a script has Windows line endings: convert it with `dos2unix SCRIPT`"
    if _BASH.search(tail):
        return (
            "that is bash's language and sh read it: begin `run` or the script with #!/bin/bash,"
            " on a machine or in an image that has bash"
        )
    return ""
