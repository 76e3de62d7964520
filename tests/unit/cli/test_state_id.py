"""A master starts with the state that its settings mean, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_master.app.master import Master
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_wire.values.errors import InvalidConfig


def start(state_dir: Path, **settings: str) -> None:
    flags = {"state_dir": str(state_dir), **settings}
    Master(load_master_config(policies=policies(), flags=flags), lambda _: None)


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_directory_in_place_of_the_state_stays_empty(tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "state"
    if there:
        directory.mkdir()
    with pytest.raises(InvalidConfig, match="is not the state of this cluster") as refused:
        start(directory, state_id="the-one")
    assert "mounted" in (refused.value.hint or "")
    assert not there or not list(directory.iterdir())
    assert directory.exists() is there


def test_the_state_of_another_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state-id").write_text("another\n")
    with pytest.raises(InvalidConfig, match="the state of another cluster"):
        start(tmp_path, state_id="the-one")
    assert [it.name for it in tmp_path.iterdir()] == ["state-id"]
