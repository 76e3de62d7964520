"""A master that cannot open all that it should says so and ends in good order."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["master", "up"])
def test_what_is_open_already_is_closed_again(command: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        master = subprocess.run(
            [
                *(sys.executable, "-m", "eva_master.app.cli", command),
                *("--state-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
                *("--metrics-port", str(port)),
            ],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    # Its other ports were open by then.
    assert master.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in master.stderr
    assert "Traceback" not in master.stderr
    assert "never awaited" not in master.stderr
