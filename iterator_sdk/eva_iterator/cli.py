"""`eva-progress`: what `eva_iterator` does, for programs that are not written in Python."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import eva_iterator
from eva_iterator import _checkpoints, _session

# Source of every call in a task: counts are absolute, so later ones replace earlier ones.
_SOURCE = "eva-progress"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Progress that cannot be delivered is no error, since it must not end the program.

    Args:
        arguments: Without the program's name; those of the process if None.

    Returns:
        0; 1 if a checkpoint cannot be published, or `latest` finds none.

    Raises:
        SystemExit: With code 2, for wrong arguments.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "latest":
        return _latest()
    if options.command is None and options.steps is None:
        parser.error("one of --steps, checkpoint, latest is needed")
    report = options.steps is not None
    metrics = dict(options.metric)
    if report:
        # Before the checkpoint, so that no reader of it sees fewer steps.
        _report(options.steps, options.total, metrics)
    if options.command == "checkpoint":
        if code := _checkpoint(options.path):
            return code
        if report:
            _report(options.steps, options.total, metrics, saved=options.steps)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eva-progress",
        description="Report the progress of this task to Eva. Does nothing outside Eva.",
    )
    parser.add_argument("--steps", type=_count, help="steps that this attempt has finished")
    parser.add_argument(
        "--total", type=_count, default=0, help="steps of this attempt when it is done"
    )
    parser.add_argument(
        "--metric",
        type=_metric,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a metric of the program; may be repeated",
    )
    commands = parser.add_subparsers(dest="command", metavar="checkpoint | latest")
    checkpoint = commands.add_parser(
        "checkpoint",
        help="publish a copy of a file or directory as the newest checkpoint, at --steps if given",
    )
    checkpoint.add_argument("path", type=Path)
    commands.add_parser(
        "latest", help="print the path of the newest checkpoint; exit 1 if there is none"
    )
    return parser


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**64:
        raise ValueError(text)
    return value


def _metric(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise ValueError(text)
    return name, float(value)


def _report(steps: int, total: int, metrics: dict[str, float], saved: int = 0) -> None:
    socket = os.environ.get(_session.SOCKET_VARIABLE)
    if not socket:
        return
    import grpc

    from eva_iterator._proto.iterator_pb2 import ReportRequest
    from eva_iterator._proto.iterator_pb2_grpc import IteratorStub
    from eva_iterator._reporter import FLUSH_TIMEOUT_S, connect

    directory = _session.checkpoint_directory()
    request = ReportRequest(
        source=_SOURCE,
        steps=steps,
        total_steps=total,
        generation=0 if directory is None else _checkpoints.newest(directory),
        metrics=metrics,
        saved_steps=saved,
    )
    with connect(socket) as channel:
        try:
            IteratorStub(channel).Report(request, timeout=FLUSH_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            _say(f"not delivered: {error}")


def _checkpoint(path: Path) -> int:
    def copy(target: Path) -> None:
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(path, target)

    directory = _session.publication_directory()
    if directory is None:
        if _session.checkpoint_directory() is not None:
            _say("not published: a command beside a task makes no checkpoints of it")
        return 0
    try:
        _checkpoints.publish(directory, copy)
    except OSError as error:
        _say(str(error))
        return 1
    return 0


def _latest() -> int:
    path = eva_iterator.latest_checkpoint()
    if path is None:
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


def _say(message: str) -> None:
    sys.stderr.write(f"eva-progress: {message}\n")
