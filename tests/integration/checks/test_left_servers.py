"""A server of gRPC that a failed test leaves behind does not hang the tests after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.harness import ROOT
from tests.fakes.patience import DEADLINE_S

LEFT = """
import gc

import grpc

from eva_wire._proto.worker_pb2_grpc import WorkersServicer, add_WorkersServicer_to_server


async def test_that_leaves_a_server():
    server = grpc.aio.server()
    server.itself = server  # Found by a collection, as what the traceback of a failure holds.
    add_WorkersServicer_to_server(WorkersServicer(), server)
    server.add_insecure_port("127.0.0.1:0")
    await server.start()


def test_after_it():
    gc.collect()
"""


def test_a_later_collection_ends(tmp_path: Path) -> None:
    (tmp_path / "test_left.py").write_text(LEFT)
    settings = ("-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest")
    # The warning of what was left is not the matter here.
    command = ("pytest", "-q", *settings, "-p", "no:unraisableexception", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", *command, str(tmp_path)],
        cwd=ROOT,
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
