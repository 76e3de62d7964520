"""The quick start, command for command, as a newcomer types it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "quickstart.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
_LONGEST_WORDS = 320


def test_the_commands_of_the_quick_start_work(cluster: Cluster, tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert len(page.split()) <= _LONGEST_WORDS
    blocks = _BLOCK.findall(page)
    (job_file,) = (text for language, text in blocks if language == "yaml")
    (tmp_path / "hello.yaml").write_text(job_file)
    commands = [
        shlex.split(line, comments=True)
        for language, text in blocks
        if language == "sh"
        for line in text.splitlines()
    ]
    # The set-up made this environment, and the cluster is what `eva up` starts.
    assert commands[:3] == [["make", "setup"], [".", ".venv/bin/activate"], ["eva", "up"]]
    assert cluster.command == "up"

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**cluster.environment(), "PATH": path}
    printed = {
        " ".join(command): subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in commands[3:]
    }

    jobs = [line.split() for line in printed["eva ls --all"].splitlines()]
    assert {line[0] for line in jobs[1:]} == {"hello-1", "hello-2"}
    assert ["hello-2", "succeeded"] in [[line[0], line[2]] for line in jobs[1:]]
    assert "c7i.large" in printed["eva nodes --all"]
    assert printed["eva logs hello"] == "".join(f"step {step}\n" for step in range(1, 6))
    assert printed["eva explain hello-1"].startswith("hello-1 ")
    assert "without packing" in printed["eva cost"]
