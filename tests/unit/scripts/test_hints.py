"""Words of a failed task's log, from real shells, and the hint that its reason gets."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from eva_worker.tasks.hints import hint

OF_SH = [
    "/tmp/.eva/run: 1: source: not found",
    "run: 3: [[: not found",
    'run: 2: Syntax error: "(" unexpected',
    "run: 2: Syntax error: redirection unexpected",
    "run: 1: Syntax error: Bad for loop variable",
    "run: 1: set: Illegal option -o pipefail",
    "run: 4: Bad substitution",
    "run: 1: shopt: not found",
    "run: 1: [: a: unexpected operator",
    "run: 1: trap: ERR: bad trap",
    "run: set: line 1: illegal option -o pipefail",
    'run: line 2: syntax error: unexpected "("',
    "run: line 2: syntax error: bad substitution",
    "run: line 1: declare: not found",
]
OF_LINE_ENDINGS = [
    "bash: ./train.sh: /bin/bash^M: bad interpreter: No such file or directory",
    "train.sh: line 1: $'\\r': command not found",
    "env: \u2018bash\\r\u2019: No such file or directory",
    "/usr/bin/env: 'python3\\r': No such file or directory",
    "train.sh: line 3: syntax error near unexpected token `$'do\\r''",
    "train.sh: 2: \r: not found",
    "train.sh: line 1: set: pipefail\r: invalid option name",
    "train.sh: 1: set: Illegal option -o pipefail\r",
    "/bin/cat: 'data\r': No such file or directory",
]
OF_NOTHING = [
    "",
    "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'",
    "run: line 2: traim.py: command not found",
    "run: 1: python: not found",
    "error: resource: not found",
    "100%|#####| 5/5\rdone",
    "run: line 3: syntax error near unexpected token `('",
    "run: line 1: ${x!}: bad substitution",
    "  File 'a.py', line 1\nSyntaxError: '(' was never closed",
    "ls: cannot access 'data': No such file or directory",
]


@pytest.mark.parametrize("line", OF_SH)
def test_bash_that_sh_has_read(line: str) -> None:
    assert "begin `run` or the script with #!/bin/bash" in hint(f"begin\n{line}\nend\n")


@pytest.mark.parametrize("line", OF_LINE_ENDINGS)
def test_scripts_from_windows(line: str) -> None:
    assert "Windows line endings" in hint(f"begin\n{line}\n")


@pytest.mark.parametrize("tail", OF_NOTHING)
def test_other_failures_get_no_hint(tail: str) -> None:
    assert hint(f"begin\n{tail}\n") == ""


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("set -euo pipefail", "bash"),
        ("rates=(0.1 0.2)", "bash"),
        ("[[ a == b ]]", "bash"),
        ("shopt -s nullglob", "bash"),
        ("cat <<< word", "bash"),
        ("set -e\r\nset -o pipefail\r\n", "Windows"),
        ("cd /\r\n\r\n", "Windows"),
    ],
)
@pytest.mark.parametrize("shell", ["dash", "busybox", "bash"])
def test_what_the_shells_of_this_machine_say_is_known(shell: str, script: str, word: str) -> None:
    program = shutil.which(shell)
    if program is None or (shell == "bash" and word == "bash"):
        pytest.skip(f"there is no {shell}, or it reads this")
    command = [program, *(["sh"] if shell == "busybox" else []), "-c", script]
    done = subprocess.run(command, capture_output=True, check=False, env={"LC_ALL": "C"})
    if not done.stderr:
        pytest.skip(f"{shell} reads this")
    assert word in hint(done.stderr.decode())
