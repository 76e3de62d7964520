"""What the end of a failed task's log tells of a cause that its own words do not name."""

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
"""What dash and the sh of BusyBox say of bash's language."""
_LINE_ENDINGS = re.compile(
    r"\^M: bad interpreter"
    r"|\\r['\u2019]: (?:command not found|No such file)"
    r"|unexpected token `\$'.*\\r'"
    r"|\r['\u2019]?: (?:command not found|not found|No such file|invalid option|invalid signal"
    r"|numeric argument required)"
    r"|[Ii]llegal option -o? ?\w*\r"
)
"""What shells and `env` say of a script whose lines end in carriage returns."""


def hint(tail: str) -> str:
    """What to do about a failure.

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
