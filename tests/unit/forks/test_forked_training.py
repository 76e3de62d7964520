"""The benchmark of forked training: its quotas, and one small model by the SDK's own averages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lazily import lazily

torch = lazily("torch")
forked_training = lazily("benchmarks.forked_training")
forked_models = lazily("benchmarks.forked_models")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("merges", [1, 12, 96, 250])
def test_forks_make_steps_in_proportion_to_their_speed(merges: int) -> None:
    epochs = list(forked_training.quotas(250.0, merges))
    assert [sum(fork) for fork in zip(*epochs, strict=True)] == [250, 50, 50, 125, 125]
    assert len(epochs) == merges


@pytest.mark.long
def test_forks_beat_the_fast_node_in_the_same_time() -> None:
    model = forked_models.images(steps=360)
    setting = forked_training.Setting
    forked, apart = setting(True, merges=12, rate=2.0), setting(False, whole=False)
    forks, steps = forked_training.trained(model, 2, forked)
    alone, made = forked_training.trained(model, 2, apart)
    assert (steps, made) == (360, 150)
    assert forks > alone


def test_what_is_among_the_results_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def fake(model: object, seed: int, setting: object) -> tuple[float, int]:
        calls.append(setting)
        return 50.0 + 2 * seed, 600

    monkeypatch.setattr("benchmarks.forked_training.trained", fake)
    results = tmp_path / "build" / "results.jsonl"
    forked_training.run(["images"], 1, results)
    once = len(calls)
    forked_training.run(["images"], 2, results)
    assert len(calls) == 2 * once == len(results.read_text().splitlines())
    assert json.loads(results.read_text().splitlines()[0])["setting"]["forked"] is False
    assert "| fast node alone, all steps | 51.0 ± 1.4 |" in forked_training.table(results)
