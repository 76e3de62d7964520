"""HadarE's formula for first rates, and how far rates are off that nobody measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import type_rates
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.catalog.gpus import GPUS, SHEETS
from eva_master.adapters.resolving.parse import parse_job
from eva_master.learning.speeds.first_rates import (
    expected_rates,
    first_rate_ppm,
    performance_memory_index_ppm,
)
from eva_master.model.catalog import Gpu
from eva_master.model.job import DatasetSize, JobSpec, ModelSize, Training
from eva_wire.values.errors import InvalidConfig, InvalidJob
from tests.fakes.jobs import CATALOG


def test_it_is_the_formula() -> None:
    # 100 TFLOP/s on 25 GiB: a root of 4.
    gpu = Gpu(100_000, 25)
    assert performance_memory_index_ppm(gpu) == 2_000_000
    assert first_rate_ppm(gpu, Training()) == 2_000_000
    large = Training(64, ModelSize.HIGH, DatasetSize.L)
    assert first_rate_ppm(gpu, large) == 2_000_000 * 64 // 16
    assert first_rate_ppm(Gpu(100_000, 25, pcie=4), Training()) == 2_380_000


@given(
    st.builds(Gpu, st.integers(0, 10**9), st.integers(0, 10**5), st.integers(-5, 99)),
    st.builds(
        Training, st.integers(-5, 10**12), st.sampled_from(ModelSize), st.sampled_from(DatasetSize)
    ),
)
def test_whatever_it_is_given_a_rate_is_above_zero_and_bounded(gpu: Gpu, work: Training) -> None:
    assert 1 <= first_rate_ppm(gpu, work) <= 10**16


def test_jobs_and_types_say_what_the_formula_asks_for(tmp_path: Path) -> None:
    text = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"
    stated = parse(text + "batch_size: 64\nmodel_size: extra high\ndataset_size: L\n")
    assert stated.training == Training(64, ModelSize.EXTRA_HIGH, DatasetSize.L)
    assert parse(text + "batch_size: 8\n").training == Training(8)
    assert parse(text).training == Training()
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        "types:\n"
        "  a.1: {gpus: 1, gpu: V100, pcie: 4, cpus: 1, memory: 1GiB, price: $1/h}\n"
        "  b.1: {gpus: 1, gpu: V100, cpus: 1, memory: 1GiB, price: $1/h}\n"
        "  c.1: {gpus: 1, gpu: 901GB/s, pcie: 4, cpus: 1, memory: 1GiB, price: $1/h}\n"
    )
    found = {it.type.name: it.type.gpu for it in load_catalog(catalog, ["a", "b", "c"])}
    assert found == {"a.1": Gpu(125_000, 16, 4), "b.1": None, "c.1": None}


@pytest.mark.parametrize(
    "line",
    ["batch_size: 0", "batch_size: 1000001", "model_size: huge", "dataset_size: XXL"],
)
def test_what_the_formula_cannot_use_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse(f"name: a\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n{line}\n")
    assert "j.yaml:4:" in str(refusal.value)
    assert line.partition(":")[0] in str(refusal.value)


@pytest.mark.parametrize("pcie", ["2", "7", "3.5", "'4'"])
def test_a_bus_that_is_not_known_is_refused_with_its_line(pcie: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(f"types:\n  p3.2xlarge: {{gpu: V100, pcie: {pcie}}}\n")
    with pytest.raises(InvalidConfig) as refusal:
        load_catalog(catalog)
    assert "2" in str(refusal.value)
    assert "types.p3.2xlarge.pcie" in str(refusal.value)


def parse(text: str) -> JobSpec:
    return parse_job(text, file_name="j.yaml", owner="me", catalog=CATALOG, workdir=None)


def test_there_is_a_sheet_of_each_gpu_that_is_known() -> None:
    assert SHEETS.keys() == GPUS.keys()


def test_the_benchmark_tells_how_far_each_guess_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The V100 is four times the K80 for all, not 3.75 times as data sheets say."""
    rates = {f"w{n}": {"1": {"k80": 1.0 + n, "v100": 4.0 + 4 * n, "other": 9.0}} for n in range(20)}
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(rates))
    assert type_rates.main([str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["all types alike"]["median"] == pytest.approx(4.0)
    assert found["bandwidth (the prior)"]["median"] == pytest.approx(4 / 3.75, abs=1e-3)
    assert found["the prior and all others"]["median"] < 1.03
    assert found["all alike and all others"]["median"] < 2


def test_what_is_known_of_a_part_scales_the_formula_for_the_rest() -> None:
    """PMI of the second GPU is half of the first one's."""
    gpus: dict[str, Gpu | None] = {"a": Gpu(100_000, 25), "b": Gpu(25_000, 25), "c": None}
    assert expected_rates({"a": 10.0}, gpus, Training()) == {"a": 10.0, "b": 5.0, "c": 10.0}
    assert expected_rates({"b": 3.0}, gpus, Training()) == {"a": 6.0, "b": 3.0, "c": 3.0}
    sheets = {it: gpus[it] for it in "ab"}
    assert expected_rates({}, sheets, Training()) == {"a": 2.0, "b": 1.0}
    assert expected_rates({}, sheets, Training(32)) == {"a": 64.0, "b": 32.0}
    assert expected_rates({}, gpus, Training()) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert expected_rates({}, {}, Training()) == {}
