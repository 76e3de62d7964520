"""How good packings are, and how much is looked at for them; how fast that is, is not judged."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmarks.packing import PAIRS, main, measure, read, spread_out, table_7
from eva_master.packing.lp.optimizer import Tier
from eva_wire.values.errors import InvalidTrace

INTERFERENCE = {"default": 0.95, "throughput": PAIRS}
DATA = os.environ.get("EVA_TEST_DATA")


def of_bound(row: Mapping[str, Any], which: str = "cost") -> float:
    return float(row[f"{which}_usd_per_hour"]) / float(row["lower_bound_usd_per_hour"])


@pytest.mark.parametrize("seed", range(6))
def test_200_tasks_of_table_7_cost_little_more_than_the_bound(seed):
    row = measure(table_7(200, seed), None, Tier.LP)
    assert row["lower_bound_usd_per_hour"] <= row["cost_usd_per_hour"]
    assert row["cost_usd_per_hour"] <= row["greedy_usd_per_hour"] < row["nopack_usd_per_hour"]
    assert of_bound(row) <= 1.005
    assert row["lp_iterations"] <= 12
    assert row["lp_columns"] <= 200


@pytest.mark.parametrize("size", [8_000, pytest.param(100_000, marks=pytest.mark.explore)])
def test_many_tasks_in_classes_cost_what_the_bound_says(size):
    row = measure(table_7(size, 0), None, Tier.AUTO)
    assert of_bound(row) <= 1.0005
    assert of_bound(row, "warm") <= 1.0005
    # The work depends on the classes, not on the tasks.
    assert row["lp_nodes"] <= 10_000
    assert row["lp_columns"] <= 200


def test_tasks_of_many_sizes_are_packed_close_to_the_bound():
    row = measure(spread_out(8_000, 0), None, Tier.AUTO)
    assert of_bound(row) <= 1.001
    assert of_bound(row, "warm") <= 1.001
    assert row["lp_nodes"] <= 200_000


@pytest.mark.parametrize("size", [200, 8_000])
def test_interference_is_priced_in_to_the_last_per_mille(size):
    row = measure(table_7(size, 1), INTERFERENCE, Tier.AUTO)
    assert of_bound(row) <= 1.001
    assert of_bound(row, "greedy") > 1.03, "there was something to be gained"


@pytest.mark.explore
def test_interference_among_many_sizes_saves_much_compared_with_greedy():
    row = measure(spread_out(200, 0), INTERFERENCE, Tier.AUTO)
    assert row["lower_bound_usd_per_hour"] <= row["cost_usd_per_hour"]
    assert row["cost_usd_per_hour"] <= 0.82 * row["greedy_usd_per_hour"]
    assert of_bound(row) <= 1.04
    assert of_bound(row, "warm") <= 1.03
    assert row["lp_iterations"] <= 40
    assert row["lp_nodes"] <= 1_000_000


def test_nearly_as_many_classes_as_tasks_are_left_to_greedy():
    row = measure(spread_out(1_000, 0, distinct=True), None, Tier.AUTO)
    assert row["lower_bound_usd_per_hour"] is None
    assert row["cost_usd_per_hour"] == row["greedy_usd_per_hour"]
    assert row["lp_iterations"] == 0


def test_inputs_are_read_and_names_of_workloads_found(tmp_path, capsys):
    trials = {
        "instance_types": [
            {"name": "p3.8xlarge", "family": "p3", "gpu": 4, "cpu": 16, "ram": 244, "price": 12.24},
            {"name": "p3.2xlarge", "family": "p3", "gpu": 1, "cpu": 4, "ram": 61, "price": 3.06},
            {"name": "c7i.2xlarge", "family": "c7i", "gpu": 0, "cpu": 4, "ram": 16, "price": 0.357},
        ],
        "trials": [
            {
                "tasks": [
                    {"id": 0, "workload": "gpt2", "demands": {"p3": [3, 4, 10]}},
                    {"id": 1, "workload": "resnet18_2", "demands": {"p3": [1, 4, 24]}},
                    {
                        "id": 2,
                        "workload": "a3c",
                        "demands": {"p3": [0, 8, 8], "c7i": [0, 4, 8]},
                    },
                ],
                "optimum": {"best_integer": 12.24},
            }
        ],
    }
    given = tmp_path / "trials.json"
    given.write_text(json.dumps(trials))
    assert main(["--input", str(given), "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["trial"], row["tasks"], row["interference"]) == ("0", 3, False)
    assert row["cost_usd_per_hour"] == row["reference_usd_per_hour"] == 12.24
    assert row["nopack_usd_per_hour"] == pytest.approx(12.24 + 3.06 + 0.357)
    pairs = tmp_path / "pairs.json"
    pairs.write_text(
        json.dumps(
            {
                "default": 0.9,
                "throughput": {
                    "gpt2": {"resnet18": 0.9, "gpt2": None},
                    "resnet18": {"gpt2": 0.8},
                },
            }
        )
    )
    assert main(["--input", str(given), "--interference", str(pairs), "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["interference"] is True
    # A tenth of one and a fifth of the other are lost together, which is less than 3.06; the
    # third task stays away.
    assert row["cost_usd_per_hour"] == pytest.approx(12.24 + 1.224 + 0.612 + 0.357)


KIND = {"name": "box", "family": "p3", "gpu": 1, "cpu": 8, "ram": 61, "price": 3.06}
ITEM = {"workload": "a", "demands": {"p3": [1, 4, 8]}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"instance_types": [KIND]}, ["trials: "]),
        ({"instance_types": [{**KIND, "price": -1}], "trials": []}, ["instance_types[0].price: "]),
        (
            {
                "instance_types": [KIND],
                "trials": [{"tasks": [ITEM, {**ITEM, "demands": {"p3": [1, "many", 8]}}]}],
            },
            ["trials[0].tasks[1].demands.p3[1]: "],
        ),
        (
            {"instance_types": [KIND], "inputs": [{"classes": [{**ITEM, "count": 0}]}]},
            ["classes[0].count: "],
        ),
    ],
)
def test_a_wrong_input_is_refused_by_row_and_field(content, words, tmp_path, capsys):
    given = tmp_path / "trials.json"
    given.write_text(json.dumps(content))
    with pytest.raises(InvalidTrace):
        list(read(given))
    assert main(["--input", str(given)]) == 2
    told = capsys.readouterr().err
    for word in words:
        assert word in told


def test_a_wrong_throughput_is_refused_too(tmp_path, capsys):
    given, pairs = tmp_path / "trials.json", tmp_path / "pairs.json"
    given.write_text(json.dumps({"instance_types": [KIND], "inputs": [{"classes": [ITEM]}]}))
    pairs.write_text(json.dumps({"throughput": {"a": {"b": 1.5}}}))
    assert main(["--input", str(given), "--interference", str(pairs)]) == 2
    assert "throughput.a.b" in capsys.readouterr().err
    assert main(["--input", str(given), "--interference", str(tmp_path / "none.json")]) == 2


@pytest.mark.published
def test_published_trials_cost_no_more_than_the_best_that_was_known():
    assert DATA is not None
    rows = [
        measure(trial, None, Tier.AUTO) for trial in read(Path(DATA) / "packing" / "trials.json")
    ]
    ratios = [row["cost_usd_per_hour"] / row["reference_usd_per_hour"] for row in rows]
    assert mean(ratios) <= 1.002
    assert max(ratios) <= 1.005
    for row in rows:
        assert row["lower_bound_usd_per_hour"] <= row["reference_usd_per_hour"] + 1e-6
