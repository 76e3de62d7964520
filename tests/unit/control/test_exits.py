"""Exit codes as shells tell them: in reasons, in status and from older journals."""

from __future__ import annotations

import pytest

from eva_master.control.failures import described
from eva_master.model.events import Phase, RunReport
from eva_wire.values import states
from eva_wire.values.ids import RunId
from eva_worker.process.exits import shell_code


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (0, 0, "0"),
        (1, 1, "1"),
        (-9, 137, "137 (SIGKILL)"),
        (-15, 143, "143 (SIGTERM)"),
        (137, 137, "137 (SIGKILL)"),
        (200, 200, "200"),
        (-(2**31), 255, "255"),
    ],
)
def test_a_signal_is_128_and_its_number(raw: int, code: int, words: str) -> None:
    """Master and worker agree, and a code that is one already stays."""
    assert states.shell_code(raw) == shell_code(raw) == code
    assert states.exit_text(code) == words


def test_a_reason_names_code_and_signal() -> None:
    """Whoever looks the code up finds what their shell would have told them."""
    report = RunReport(RunId("a-1/0"), 1, Phase.EXITED, exit_code=137, message="out of memory")
    assert described(report).reason == "task a-1/0 exited with code 137 (SIGKILL): out of memory"
    assert described(report).exit_code == 137
