"""A command that asks a master something loads what it needs for that, and answers sooner."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import eva_client.cli.explain
import eva_client.cli.jobs
from eva_client.rpc.master import Client
from eva_client.settings import ClientConfig
heavy = {
    "cryptography", "structlog", "obstore", "numpy", "sqlalchemy", "boto3", "docker",
    "eva_master.app.config", "eva_master.control", "eva_wire.jobfile",
}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_what_serves_is_not_loaded_by_who_asks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
