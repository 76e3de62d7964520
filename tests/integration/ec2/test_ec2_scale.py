"""A thousand instances."""

from __future__ import annotations

import pytest

from benchmarks.clouds import MOST_CALLS, Pass
from eva_wire.values.states import InstanceState
from tests.fakes.aws.service import CREDENTIALS, shared

INSTANCES = 1_000


def test_a_thousand_instances_are_reconciled_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen, recorded as up, compared with the journal; strays terminated, what is gone given up."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    one = Pass(shared(), INSTANCES)
    one.run()
    calls = one.calls()
    one.close()
    assert calls.total() <= MOST_CALLS, calls
    assert calls["RunInstances"] == 0, "what is gone is not made anew"
    assert one.states() == {InstanceState.READY: 950, InstanceState.GONE: 50}
