"""Averaging torch's state dicts, and files that only look like them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from eva_iterator import mean
from eva_iterator._forks import formats
from eva_iterator._forks.states import Unfit, check, check_range

from tests.lazily import lazily

torch = lazily("torch")
pytestmark = pytest.mark.torch


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def test_weights_are_averaged_and_counters_those_of_the_fastest(tmp_path: Path) -> None:
    nets = [network() for _ in range(3)]
    for number, net in enumerate(nets):
        for value in net.state_dict().values():
            value.fill_(number)
    states = [net.state_dict() for net in nets]
    result = mean(states, [1, 2, 5])
    assert result["0.weight"].dtype == torch.float32
    assert result["0.weight"].unique().tolist() == [(2 * 1 + 5 * 2) / 8]
    assert result["1.num_batches_tracked"].item() == 2
    formats.write(tmp_path / "model.pt", result)
    nets[0].load_state_dict(formats.read(tmp_path / "model.pt"))
    assert nets[0].state_dict()["0.bias"].unique().tolist() == [1.5]
    assert states[2]["0.bias"].unique().tolist() == [2.0]


def test_an_optimiser_is_averaged_too() -> None:
    """Its state has the form of Adam's, whose import alone takes seconds."""

    def state(number: float) -> dict[str, object]:
        moments = {"step": torch.tensor(number), "exp_avg": torch.full((2,), number)}
        return {"state": {0: moments}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]}

    result = mean([state(1.0), state(5.0)], [3, 1])
    assert result["state"][0]["exp_avg"].tolist() == [2.0, 2.0]
    assert result["param_groups"] == [
        {"lr": pytest.approx(0.1), "betas": pytest.approx((0.9, 0.999))}
    ]


def test_half_precision_is_averaged_in_double(tmp_path: Path) -> None:
    states = [torch.full((2,), value, dtype=torch.bfloat16) for value in (256.0, 258.0)]
    assert mean(states, [1, 1]).tolist() == [256.0, 256.0]  # 257 rounds to even
    assert mean([torch.tensor([65504.0], dtype=torch.float16)] * 2, [9, 9]).tolist() == [65504.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_diverged_weights_are_noticed(value: float) -> None:
    with pytest.raises(Unfit, match=r"a\[0\] is not finite"):
        check_range({"a": [torch.tensor([1.0, value], dtype=torch.float64)]})


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.zeros(3),
        lambda: torch.zeros(2, dtype=torch.float64),
        lambda: torch.zeros(2).to_sparse(),
        lambda: torch.zeros(1).expand(10**12),
        lambda: [0.0, 0.0],
    ],
    ids=["longer", "double", "sparse", "expanded", "list"],
)
def test_other_tensors_are_refused(other: Callable[[], object]) -> None:
    with pytest.raises(Unfit):
        check(torch.zeros(2), other())


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("pwned"),))  # type: ignore[return-value]


def test_pickled_code_in_a_state_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(Unfit, match="cannot be read"):
        formats.read(tmp_path / "evil.pt")
    assert not (tmp_path / "pwned").exists()


def test_a_compressed_or_torn_state_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1000)}, tmp_path / "good.pt")
    content = (tmp_path / "good.pt").read_bytes()
    (tmp_path / "torn.pt").write_bytes(content[: len(content) // 2])
    (tmp_path / "changed.pt").write_bytes(content.replace(bytes(500), bytes(499) + b"x", 1))
    with (
        zipfile.ZipFile(tmp_path / "good.pt") as good,
        zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in good.namelist():
            packed.writestr(name, good.read(name))
    for name, words in (("torn", "cannot be read"), ("changed", "torn"), ("packed", "compressed")):
        with pytest.raises(Unfit, match=words):
            formats.read(tmp_path / f"{name}.pt")
