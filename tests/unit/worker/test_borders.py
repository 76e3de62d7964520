"""Bad figures stop at the border: refused with their place, before anything plans with them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from eva_lab.traces.interference import read_interference
from eva_master.adapters.catalog.pricebook import load_catalog
from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.rpc.workers.messages import reports, samples
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_wire._proto import worker_pb2 as wpb
from eva_wire.values.errors import InvalidConfig, InvalidJob, InvalidTrace

CATALOG = load_catalog()
JOB = "name: a\nrun: x\n"
SIZE = "resources: {cpus: 2, memory: 2GiB}\n"


def refused(text: str) -> str:
    with pytest.raises(InvalidJob) as caught:
        parse_job(text, file_name="job.yaml", owner="me", catalog=CATALOG, workdir=None)
    (problem,) = caught.value.problems
    assert problem.line == text.count("\n"), "the last line is the wrong one"
    return problem.message


# -- job files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (".nan", "finite"),
        (".inf", "finite"),
        ("-.inf", "finite"),
        ("0", "greater than 0"),
        ("-1", "greater than 0"),
        ("1e300", "1000000000 or less"),
        ("true", "a number"),
        ("'5'", "a number"),
        ("{c7i: 0}", "greater than 0"),
        ("{c7i: -0.5}", "greater than 0"),
        ("{c7i: .nan}", "finite"),
        ("{nosuch: 5}", "no instances of family 'nosuch'"),
    ],
)
def test_a_standalone_throughput_is_a_positive_finite_number_on_a_known_family(figure, words):
    assert words in refused(f"{JOB}{SIZE}throughput: {figure}\n")


@pytest.mark.parametrize(
    "size",
    [
        "{cpus: -1, memory: 1GiB}",
        "{cpus: .nan, memory: 1GiB}",
        "{cpus: .inf, memory: 1GiB}",
        "{cpus: 0, memory: 1GiB}",
        "{cpus: 1e30, memory: 1GiB}",
        "{cpus: 1, memory: -1GiB}",
        "{cpus: 1, memory: .nan}",
        "{gpus: -1, cpus: 1, memory: 1GiB}",
        "{gpus: .nan, cpus: 1, memory: 1GiB}",
        "{gpus: 0.5, cpus: 1, memory: 1GiB}",
    ],
)
def test_demands_are_amounts(size):
    assert refused(f"{JOB}resources: {size}\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("resources_by_family: {nosuch: {cpus: 1}}", "no instances of family 'nosuch'"),
        ("resources_by_family: {c7i: {cpus: -1}}", "not a number of vCPUs"),
        ("delays: {checkpoint: -1s}", "not a duration"),
        ("delays: {launch: .nan}", "needs a unit"),
        ("total_steps: 0", "greater than 0"),
        ("total_steps: .nan", "a whole number"),
    ],
)
def test_other_figures_of_a_job(line, words):
    assert words in refused(f"{JOB}{SIZE}{line}\n")


# -- catalogs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "figure",
    [
        *(f"price: {price}" for price in ("$-1/h", "-$1/h", "-1", ".nan", ".inf", "$0/h", "$1")),
        *("price: $nan/h", "price: $0.0000001/h", "cpus: -1", "cpus: .nan", "cpus: 0", "gpus: -1"),
        *("gpus: .nan", "memory: -1GiB", "memory: .nan", "limit: -1", "limit: .nan", "setup: -1s"),
        "acquisition: .inf",
    ],
)
def test_prices_and_sizes_of_types_are_positive(tmp_path: Path, figure: str) -> None:
    file = tmp_path / "catalog.yaml"
    key = figure.partition(":")[0]
    good = {"cpus": "2", "memory": "4GiB", "price": "$1/h"}
    rows = [f"{name}: {value}" for name, value in good.items() if name != key]
    file.write_text("types:\n  x.y:\n" + "".join(f"    {row}\n" for row in [*rows, figure]))
    with pytest.raises(InvalidConfig) as caught:
        load_catalog(file)
    (problem,) = caught.value.problems
    assert problem.line == 3 + len(rows)
    assert f"types.x.y.{key}" in str(caught.value)


# -- tables of interference ------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "0", "-0.1", "1.5", '"x"'])
def test_a_normalised_throughput_is_within_0_and_1(tmp_path: Path, figure: str) -> None:
    file = tmp_path / "interference.json"
    file.write_text(f'{{"throughput": {{"a": {{"a": {figure}}}}}}}')
    with pytest.raises(InvalidTrace, match="a"):
        read_interference(file)
    file.write_text(f'{{"throughput": {{"a": {{"a": 0.5}}}}, "default": {figure}}}')
    with pytest.raises(InvalidTrace, match="default"):
        read_interference(file)


def test_hardly_any_throughput_is_some(tmp_path: Path) -> None:
    file = tmp_path / "interference.json"
    file.write_text('{"throughput": {"a": {"a": 1e-12}}}')
    assert set(read_interference(file).pairs.values()) == {1}


# -- settings of the master ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        *(("eva", f"default_throughput_ppm: {it}") for it in ("0", "-5", "1000001", ".nan", "0.5")),
        *(
            ("eva_published", f"{name}: {it}")
            for name in ("min_horizon_s", "half_life_s")
            for it in (0, -1)
        ),
        ("eva", "optimizer: best"),
        ("eva", "horizon_s: 0"),
        ("eva", "lost_ppm: -1"),
        ("eva", "moves_ppm: -1"),
        ("eva", "attempts: -1"),
        *(("synergy", f"default_throughput_ppm: {it}") for it in ("0", "2000000")),
        *(("owl", f"profile: [[a, b, {it}]]") for it in ("0", "-1", "1000001", ".nan")),
        ("owl", "least_throughput_ppm: -1"),
        *(("stratus", f"assumed_duration_s: {it}") for it in (0, -3)),
        ("stratus", "clear_below_percent: 101"),
        *((name, "round_gap_s: 0") for name in ("owl", "stratus", "synergy")),
    ],
)
def test_options_of_policies_are_within_their_range(
    tmp_path: Path, policy: str, option: str
) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(f"policy:\n  name: {policy}\n  options:\n    {option}\n")
    with pytest.raises(InvalidConfig) as caught:
        load_master_config(policies=policies(), file=file)
    assert {problem.line for problem in caught.value.problems} == {4}
    assert f"policy.options.{option.partition(':')[0]}" in str(caught.value)


@pytest.mark.parametrize(
    "line", ["throughput_window: 0s", "throughput_window: .nan", "local: {data_rate_mib: 0}"]
)
def test_the_master_s_own_settings_too(tmp_path: Path, line: str) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(line + "\n")
    with pytest.raises(InvalidConfig):
        load_master_config(policies=policies(), file=file)


# -- what workers say ------------------------------------------------------------------------------


def test_a_worker_cannot_state_a_rate_and_its_counts_are_checked() -> None:
    names = {field.name for field in wpb.Sample.DESCRIPTOR.fields}
    assert not [name for name in names if "rate" in name or "throughput" in name]
    wild = wpb.Sample(run_id="a/0", attempt=1, steps=2**53 + 1)
    assert samples([wild]) == ()
    report = wpb.TaskReport(run_id="a/0", attempt=1, phase=wpb.PHASE_RUNNING, progress=wild)
    assert reports([report])[0].progress is None


def test_a_program_s_own_figures_may_be_anything_for_nobody_plans_with_them() -> None:
    odd = wpb.Sample(run_id="a/0", attempt=1, steps=1, metrics={"loss": math.nan})
    ((_, _, progress),) = samples([odd])
    assert progress.steps == 1
    assert progress.rate == 0
