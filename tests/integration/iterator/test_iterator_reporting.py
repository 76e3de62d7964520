"""Reports of real programs over a real socket: complete, and never in the program's way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.iterator_agent import Program, RecordingAgent
from tests.fakes.patience import DEADLINE_S

Start = Callable[..., Program]


@pytest.fixture
def start(iterator_agent: RecordingAgent, tmp_path: Path) -> Start:
    def start(code: str, *, inside: bool = True) -> Program:
        return Program(code, tmp_path, iterator_agent if inside else None)

    return start


def test_the_last_report_has_everything(start: Start, iterator_agent: RecordingAgent) -> None:
    program = start(
        """
        import eva_iterator
        from eva_iterator import EvaIterator

        training, validation = EvaIterator(range(100), total=500), EvaIterator(range(10))
        for epoch in range(3):
            for i in training:
                eva_iterator.report(loss=1 / (epoch + 1), accuracy=i)
            for _ in validation:
                pass
        eva_iterator.step(7)
        eva_iterator.publish(lambda directory: (directory / "weights").touch())
        """
    )
    program.finish()
    last = iterator_agent.last
    assert last.steps == 3 * 110 + 7
    assert last.total_steps == 500
    assert last.generation == 1
    assert dict(last.metrics) == {"loss": 1 / 3, "accuracy": 99.0}


@pytest.mark.parametrize("secret", ["", "0123456789abcdef"])
def test_each_report_shows_the_secret_of_the_attempt(
    iterator_agent: RecordingAgent, tmp_path: Path, secret: str
) -> None:
    """Agents of earlier versions give none."""
    environ = {"EVA_SOCKET_SECRET": secret} if secret else {}
    Program("import eva_iterator; eva_iterator.step(5)", tmp_path, iterator_agent, environ).finish()
    assert iterator_agent.last.steps == 5
    assert iterator_agent.secrets == {secret}


def test_counts_grow_while_the_program_runs(start: Start, iterator_agent: RecordingAgent) -> None:
    program = start(
        """
        from eva_iterator import EvaIterator

        for _ in EvaIterator(range(3)):
            input()
        """
    )
    for steps in (0, 1, 2):
        iterator_agent.wait_for(lambda reports, n=steps: any(r.steps == n for r in reports))
        program.write_line()
    program.finish()
    counts = [report.steps for report in iterator_agent.reports]
    assert counts == sorted(counts)
    assert counts[-1] == 3


@pytest.mark.parametrize(
    ("end", "code"), [("raise KeyError", 1), ("raise SystemExit(3)", 3), ("exit(0)", 0)]
)
def test_however_the_program_ends_the_last_report_arrives(
    start: Start, iterator_agent: RecordingAgent, end: str, code: int
) -> None:
    program = start(f"import eva_iterator; eva_iterator.step(5); {end}")
    assert program.wait() == code
    assert iterator_agent.last.steps == 5


def test_outside_eva_there_is_no_thread_and_no_grpc(start: Start) -> None:
    program = start(
        """
        import signal, sys, threading
        import eva_iterator
        from eva_iterator import EvaIterator

        for _ in EvaIterator(range(3), total=3):
            eva_iterator.report(loss=1)
            eva_iterator.step()
        assert not eva_iterator.stopping()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"grpc", "google"}, loaded
        assert threading.active_count() == 1
        """,
        inside=False,
    )
    program.finish()


def test_importing_alone_starts_nothing(start: Start) -> None:
    program = start(
        """
        import signal, sys, threading
        import eva_iterator

        assert "grpc" not in sys.modules
        assert threading.active_count() == 1
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        """
    )
    program.finish()


def test_reports_again_after_the_agent_was_away(
    start: Start, iterator_agent: RecordingAgent
) -> None:
    program = start(
        """
        from eva_iterator import EvaIterator

        for _ in EvaIterator(range(100)):
            input()
        """
    )
    for round_ in range(3):
        program.write_line()
        steps = round_ + 1
        iterator_agent.wait_for(lambda reports, n=steps: bool(reports) and reports[-1].steps >= n)
        iterator_agent.stop()
        assert not iterator_agent.socket.exists()
        iterator_agent.start()
    program.write_line()
    # At its end it waits for no agent that it has not found again by then.
    iterator_agent.wait_for(lambda reports: reports[-1].steps >= 4)
    for _ in range(96):
        program.write_line()
    assert program.wait() == 0  # grpc's core may note on stderr that a connection broke
    assert iterator_agent.last.steps == 100


def test_works_without_an_agent_and_finds_one_that_comes_late(
    start: Start, iterator_agent: RecordingAgent
) -> None:
    iterator_agent.stop()
    program = start(
        """
        from eva_iterator import EvaIterator

        for _ in EvaIterator(range(100_000)):
            pass
        print("looped")
        input()
        """
    )
    assert program.read_line() == "looped"
    iterator_agent.start()
    iterator_agent.wait_for(lambda reports: bool(reports) and reports[-1].steps == 100_000)
    program.write_line()
    program.finish()


@pytest.mark.parametrize("state", ["absent", "silent"])
def test_an_agent_that_never_answers_costs_the_program_nothing(
    start: Start, iterator_agent: RecordingAgent, state: str
) -> None:
    if state == "absent":
        iterator_agent.stop()
    else:
        iterator_agent.answering.clear()
    program = start(
        """
        import os
        from eva_iterator import EvaIterator

        for i in EvaIterator(range(100_000)):
            if i == 50_000 and os.fork() == 0:
                os._exit(0)
        print("looped")
        """
    )
    program.finish()  # fails if it hangs
    assert program.output == "looped\n"


def test_processes_of_a_program_add_up(start: Start, iterator_agent: RecordingAgent) -> None:
    program = start(
        """
        import multiprocessing
        from eva_iterator import EvaIterator

        def train(n):
            for _ in EvaIterator(range(n)):
                pass

        if __name__ == "__main__":
            ranks = [
                multiprocessing.get_context(method).Process(target=train, args=(n,))
                for method, n in (("fork", 3), ("spawn", 5))
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
        """
    )
    program.finish()
    steps = sorted(report.steps for report in iterator_agent.sources.values())
    assert steps == [3, 5]


@pytest.mark.parametrize(
    "fork_support", ["1", *(pytest.param(it, marks=pytest.mark.long) for it in ("", "0"))]
)
@pytest.mark.parametrize("exit_", ["os._exit(0)", "sys.exit(0)"])
def test_forked_children_neither_report_nor_hang(
    iterator_agent: RecordingAgent, tmp_path: Path, fork_support: str, exit_: str
) -> None:
    code = f"""
        import os, sys
        import eva_iterator
        from eva_iterator import EvaIterator

        for i in EvaIterator(range(60)):
            pid = os.fork()
            if pid == 0:
                eva_iterator.step(1000)
                eva_iterator.report(loss=1.0)
                for _ in EvaIterator(range(1000), checkpoint=lambda directory: None):
                    pass
                {exit_}
            assert os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "") == "{fork_support}"
            assert os.waitpid(pid, 0)[1] == 0
        """
    environ = {"GRPC_ENABLE_FORK_SUPPORT": fork_support} if fork_support else {}
    Program(code, tmp_path, iterator_agent, environ).finish()
    assert iterator_agent.last.steps == 60
    assert not any(report.metrics for report in iterator_agent.reports)


def test_shell_programs_report_absolute_counts(
    iterator_agent: RecordingAgent, tmp_path: Path
) -> None:
    script = """
        set -e
        eva-progress --steps 5
        eva-progress --steps 9 --total 20 --metric loss=0.5 --metric lr=1e-3
        echo state > state
        eva-progress checkpoint state
        eva-progress --steps 12 checkpoint state
        cat "$(eva-progress latest)/state"
        """
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "EVA_SOCKET": str(iterator_agent.socket),
            "EVA_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    assert (done.stdout, done.stderr) == ("state\n", "")
    reports = iterator_agent.reports
    assert len({report.source for report in reports}) == 1
    assert reports[1].total_steps == 20
    assert dict(reports[1].metrics) == {"loss": 0.5, "lr": 1e-3}
    # A checkpoint's steps are said before it is there, and that it holds them once it is.
    said = [(report.steps, report.generation, report.saved_steps) for report in reports]
    assert said == [(5, 0, 0), (9, 0, 0), (12, 1, 0), (12, 2, 12)]


def test_shell_programs_go_on_without_an_agent(tmp_path: Path) -> None:
    done = subprocess.run(
        ["eva-progress", "--steps", "5"],
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "EVA_SOCKET": str(tmp_path / "absent.sock"),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    assert "not delivered" in done.stderr
