"""How a script is started: as the kernel reads its first line, else by bash, else by sh."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from eva_worker.runtime import script
from eva_worker.runtime.process import shim
from tests.fakes.paths import plain_name


@pytest.mark.parametrize(
    "arguments",
    ["", " ", " -e", "  -e  ", " -S a b\t-c ", "\t-x\ty"],
)
@pytest.mark.parametrize("blank", ["", " ", "\t "])
def test_the_first_line_is_read_as_the_kernel_reads_it(
    tmp_path: Path, arguments: str, blank: str
) -> None:
    # The kernel takes no script for the interpreter of one that names an interpreter by a script.
    (tmp_path / "show").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "show").chmod(0o755)
    # To the kernel, a blank ends the interpreter's name.
    with plain_name(tmp_path) as (place, descriptor):
        text = f"#!{blank}{place}/show{arguments}\nrest -x\n"
        (tmp_path / "script").write_text(text)
        (tmp_path / "script").chmod(0o755)
        command = [tmp_path / "script"]
        shown = subprocess.check_output(command, pass_fds=(descriptor,), text=True)
    program, *rest = script.interpreter(text)
    assert (program, rest) == (f"{place}/show", shown.splitlines()[:-1])


@pytest.mark.parametrize(
    "text", ["", "#", "#!", "#! \n", "#!bash\nx", "# !/bin/sh", " #!/bin/sh", "\n#!/bin/sh"]
)
def test_other_first_lines_name_no_interpreter(text: str) -> None:
    """As of jobs that earlier versions have accepted, to whose shell they were comments."""
    assert script.interpreter(text) == []


def test_windows_line_endings_are_not_part_of_a_name() -> None:
    assert script.interpreter("#!/bin/bash\r\nx\r\n") == ["/bin/bash"]
    assert script.interpreter("#!/bin/bash -e\r\n") == ["/bin/bash", "-e"]
    assert script.interpreter("#!/bin/sh") == ["/bin/sh"]


def test_bash_is_found_in_the_tasks_own_path(tmp_path: Path) -> None:
    for name in ("none", "directory", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "directory" / "bash").mkdir()
    (tmp_path / "none" / "bash").write_text("not executable")
    (tmp_path / "own" / "bash").write_text("")
    (tmp_path / "own" / "bash").chmod(0o755)
    path = os.pathsep.join(
        ["own", "", *(str(tmp_path / it) for it in ("none", "directory", "own"))]
    )
    assert shim.shell({"PATH": path}) == str(tmp_path / "own" / "bash")


def test_a_script_replaces_what_a_start_that_was_interrupted_has_left(tmp_path: Path) -> None:
    script.write("first", tmp_path)
    script.write("\u6ce8 second\n", tmp_path)
    assert (tmp_path / script.PATH).read_text(encoding="utf-8") == "\u6ce8 second\n"
