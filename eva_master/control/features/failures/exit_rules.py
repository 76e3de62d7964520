"""Which exits end the retries of a program at once, and which never do: pure functions."""

from __future__ import annotations

import re

from eva_master.model.job import JobSpec
from eva_master.model.records import Failure
from eva_wire.values.bounds import ASKS_FOR_RETRY
from eva_wire.values.states import exit_text, shell_code

_NOT_RUN = frozenset({126, 127})
"""A shell's exit codes for a program that it cannot run, or cannot find."""
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]*(?:Error|Exception|Exit|Interrupt)\b")
"""How the last line of a traceback begins."""
_IMPORT = re.compile(r"(?:ModuleNotFoundError|ImportError)\b")
_MISSING = re.compile(
    r"^\S*py\S*: (?:can't open file '[^']*': \[Errno 2\]|No module named \S+$)"  # python
    r"|\bMODULE_NOT_FOUND\b"  # node
    r"|^Can't open perl script "
    r"|\(LoadError\)$"  # ruby
    r"|^Fatal error: cannot open file '"  # Rscript
    r"|^Error: (?:Could not find or load main class|Unable to access jarfile) "  # java
    r"|^\S*sh: \d+: (?:cannot|[Cc]an't) open "  # dash FILE
)
_BETWEEN_LINES = " | "
_LOG_ENDS = re.compile(r"^.*?its log ends: ")
_TWICE = "failed twice alike within 30 s, so not retried"


def is_certain(code: int | None, message: str) -> bool:
    """Whether a program that failed would fail again: it is missing, or a module that it imports.

    Args:
        code: Its exit code; `None` if it never ran.
        message: The worker's message, with the last lines of the log.
    """
    if code in _NOT_RUN:
        return True
    if code is None:
        return False
    lines = _LOG_ENDS.sub("", message).split(_BETWEEN_LINES)
    if any(_MISSING.search(line) for line in lines):
        return True
    last = next((line for line in reversed(lines) if _EXCEPTION.match(line)), "")
    return _IMPORT.match(last) is not None


def final(spec: JobSpec, failures: int, failure: Failure) -> str | None:
    """Why there is no other attempt after a failure that counts; `None` if there is one.

    Args:
        spec: The job.
        failures: How many of its failures, or of those of its task, count by now.
        failure: The last of these.
    """
    code = None if failure.exit_code is None else shell_code(failure.exit_code)
    if code in spec.failing.fail_on:
        assert code is not None
        return f"{failure.reason}; {exit_text(code)} is in `fail_on`, so not retried"
    if failures > spec.failing.retries:
        return f"{failure.reason}; no retries left" if spec.failing.retries else failure.reason
    if not failure.repeated or code in spec.failing.retry_on:
        return None
    # A program that was not run chooses no exit code.
    advice = "" if code in _NOT_RUN else f". To be retried, exit with {ASKS_FOR_RETRY}"
    return f"{failure.reason}; {_TWICE}{advice}"
