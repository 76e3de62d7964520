"""Completion in shells, by the scripts that `eva completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main

EVA = Path(sys.executable).with_name("eva")


def completed(shell: str, words: str, current: str) -> list[str]:
    """The words that the command offers to a shell's script, without their kinds."""
    index = str(len(words.split())) if words.endswith(" ") else str(len(words.split()) - 1)
    environment = {
        **os.environ,
        "_EVA_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": current if shell == "fish" else index,
    }
    answer = subprocess.run([EVA], env=environment, capture_output=True, text=True, check=True)
    lines = answer.stdout.splitlines()
    match shell:
        case "zsh":
            return lines[1::3]
        case _:
            return [line.split(",")[1].partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_of_all_packages_and_options_are_completed(shell: str) -> None:
    assert completed(shell, "eva su", "su") == ["submit", "suspend"]
    assert completed(shell, "eva tear", "tear") == ["teardown"]
    assert completed(shell, "eva token ", "") == ["create", "ls", "revoke"]
    assert "--all" in completed(shell, "eva ls --a", "--a")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_reads(shell: str) -> None:
    printed = CliRunner().invoke(main, ["completion", shell])
    assert printed.exit_code == 0, printed.output
    assert f"{shell}_complete" in printed.output
    if program := shutil.which(shell):
        read = subprocess.run([program, "-n"], input=printed.output, text=True, check=False)
        assert read.returncode == 0


def test_bash_completes_a_command_by_the_script() -> None:
    """As bash does when the key is pressed: it calls the function of the command."""
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    asked = "COMP_WORDS=(eva canc) COMP_CWORD=1; _eva_completion eva; echo ${COMPREPLY[*]}"
    environment = {**os.environ, "PATH": f"{EVA.parent}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == ["cancel"]


def test_another_shell_is_refused_by_name() -> None:
    refused = CliRunner().invoke(main, ["completion", "csh"])
    assert refused.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in refused.output
