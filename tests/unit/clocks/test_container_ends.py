"""Why a container was killed, when the clock of its machine was set meanwhile."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from eva_worker.orders import TaskKey
from eva_worker.runtime import Exit
from eva_worker.runtime.docker.runtime import DockerRuntime

KEY = TaskKey("job-1/0", 1)
LONG_AGO_MS = 5


@pytest.mark.parametrize(("adopted", "blameless"), [(True, True), (False, False)])
async def test_only_what_an_earlier_agent_started_can_have_ended_before_this_one(
    tmp_path: Path, adopted: bool, blameless: bool
) -> None:
    runtime = DockerRuntime(tmp_path / "runtime", MagicMock(), instance="i-1")
    if adopted:
        (tmp_path / "runtime" / KEY.path).mkdir(parents=True)
        runtime._remove_leftovers = lambda _keys: None  # type: ignore[method-assign]
        runtime._watch = lambda _key: None  # type: ignore[method-assign]
        await runtime.adopt()
    ended = runtime._explained(KEY, Exit(-9, LONG_AGO_MS), 0)
    assert ended.blameless is blameless
    assert ("while its agent was away" in ended.message) is blameless
