"""Experiments: what a file may say, which runs it asks for, and what their results come to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eva_lab.experiments.execution import execute, over_time
from eva_lab.experiments.runs import Result, Results, Run, cells
from eva_lab.experiments.schema import ExperimentPlan, load_experiment
from eva_lab.experiments.summary import SeedMean, Summary, summarise
from eva_lab.experiments.sweep import RunExecutor, missing, sweep
from eva_lab.simulator.results.metrics import InstanceFigures
from eva_lab.traces import read_interference, read_trace
from eva_wire.values.errors import InvalidConfig, InvalidTrace
from eva_wire.values.ids import Family, InstanceId, Workload
from tests.fakes.traces import job, pod, write_jobs, write_pods

SHIPPED = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))

SMALL = """
name: small
traces:
  short: {kind: production, jobs: 8, durations: short}
policies: [no_packing, {name: synergy, label: best fit}]
seeds: [1, 2, 3]
"""


def plan_of(folder: Path, text: str, *settings: str) -> ExperimentPlan:
    path = folder / "e.yaml"
    path.write_text(text)
    return load_experiment(path, settings)


def refusal(folder: Path, text: str, *settings: str) -> list[tuple[int, str, str]]:
    with pytest.raises(InvalidConfig) as refused:
        plan_of(folder, text, *settings)
    return [(one.line, one.key, one.message) for one in refused.value.problems]


# -- the file --------------------------------------------------------------------------------------


def test_a_policy_is_named_by_text_or_by_parts(tmp_path: Path) -> None:
    first, second = plan_of(tmp_path, SMALL).experiment.policies
    assert (first.spec, first.title) == ("no_packing", "no_packing")
    assert (second.spec, second.title) == ("synergy", "best fit")


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        ("sedes: [1]", "seeds: [1, 2, 3]", (6, "sedes", "unknown key 'sedes'")),
        ("jbs: 8", "jobs: 8", (4, "traces.short.jbs", "unknown key 'jbs'")),
        ("long", "durations: short", None),
        ("kind: producton", "kind: production", None),
        (
            "policies: [no_paking]",
            "policies: [no_packing, {name: synergy, label: best fit}]",
            (5, "policies[0]", "there is no policy 'no_paking'"),
        ),
        (
            "policies: [no_packing, no_packing]",
            "policies: [no_packing, {name: synergy, label: best fit}]",
            (5, "policies[1]", "a second 'no_packing'"),
        ),
        ("name: Small one", "name: small", None),
        ("seeds: []", "seeds: [1, 2, 3]", (6, "seeds", "must not be empty")),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, wrong: str, right: str, problem: tuple[int, str, str] | None
) -> None:
    found = refusal(tmp_path, SMALL.replace(right, wrong))
    assert all(line > 0 for line, _, message in found if "does not take part" not in message)
    if problem is not None:
        assert problem in found


def test_an_option_that_a_policy_does_not_have_is_told(tmp_path: Path) -> None:
    text = SMALL.replace("label: best fit", "options: {gap: 3}")
    ((line, _, message),) = refusal(tmp_path, text)
    assert line == 5
    assert "option 'gap'" in message


def test_a_baseline_must_take_part(tmp_path: Path) -> None:
    ((line, key, message),) = refusal(tmp_path, SMALL + "baseline: owl\n")
    assert (line, key, message) == (7, "baseline", "'owl' does not take part")


def test_what_cannot_be_varied_is_told(tmp_path: Path) -> None:
    ((_, key, message),) = refusal(tmp_path, SMALL + "vary: {policies: [1]}\n")
    assert (key, message) == ("vary.policies", "'policies' cannot be varied")
    ((line, _, message),) = refusal(tmp_path, SMALL + "vary:\n  trace.jobs: [3, 0]\n")
    assert (line, message) == (8, "must be 1 or more")


def test_packing_stands_in_place_of_traces_and_policies(tmp_path: Path) -> None:
    found = refusal(tmp_path, SMALL + "packing: {tasks: 3}\n")
    assert {key for _, key, _ in found} == {"traces", "policies"}
    found = refusal(tmp_path, "name: nothing\n")
    assert {message for _, _, message in found} >= {"'traces' is missing", "'policies' is missing"}


def test_all_combinations_of_what_is_varied_are_points(tmp_path: Path) -> None:
    vary = "vary: {trace.multi_task: [0, 0.5], accounting: [compat, production]}\n"
    points = plan_of(tmp_path, SMALL + vary).points
    assert [point.label for point in points] == [
        "multi_task 0, accounting compat",
        "multi_task 0, accounting production",
        "multi_task 0.5, accounting compat",
        "multi_task 0.5, accounting production",
    ]
    last = points[-1].experiment
    assert last.accounting == "production"
    assert last.traces["short"].model_dump()["multi_task"] == 0.5


def test_settings_of_the_command_line_go_before_the_file(tmp_path: Path) -> None:
    settings = ("seeds=[7,8]", "trace.jobs=3", "accounting=production", "interference.pairwise=0.8")
    experiment = plan_of(tmp_path, SMALL, *settings).experiment
    assert experiment.seeds == [7, 8]
    assert experiment.traces["short"].model_dump()["jobs"] == 3
    assert (experiment.accounting, experiment.interference.pairwise) == ("production", 0.8)


def test_what_is_varied_can_be_set_for_one_call(tmp_path: Path) -> None:
    vary = "vary: {trace.multi_task: [0, 0.2, 0.5], accounting: [compat, production]}\n"
    points = plan_of(tmp_path, SMALL + vary, "vary.trace.multi_task=[0.2]").points
    assert [point.label for point in points] == [
        "multi_task 0.2, accounting compat",
        "multi_task 0.2, accounting production",
    ]


def test_a_setting_of_traces_is_set_where_there_is_one(tmp_path: Path) -> None:
    both = SMALL.replace("policies:", "  own: {kind: workloads}\npolicies:")
    traces = plan_of(tmp_path, both, "trace.multi_task=0.5", "trace.jobs=3").experiment.traces
    assert traces["short"].model_dump()["multi_task"] == 0.5
    assert [traces[name].model_dump()["jobs"] for name in ("short", "own")] == [3, 3]
    with pytest.raises(InvalidConfig, match="no trace has the setting 'podz'") as refused:
        plan_of(tmp_path, both, "trace.podz=x")
    assert "multi_task" in refused.value.hint


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    write_jobs(tmp_path / "t.json", _0=job())
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: file, file: t.json}"
    )
    (point,) = plan_of(tmp_path, text).points
    assert point.experiment.traces["short"].model_dump()["file"] == tmp_path / "t.json"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_experiment_of_the_project_can_be_read(path: Path) -> None:
    plan = load_experiment(path)
    assert plan.experiment.name == path.stem
    assert plan.experiment.title
    assert plan.experiment.text


def test_what_the_documentation_shows_can_be_read(tmp_path: Path) -> None:
    reference = SHIPPED[0].parents[1] / "docs" / "reference"
    page = (reference / "traces.md").read_text()
    yahoo, past = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (reference / "experiment-file.md").read_text(), re.DOTALL
    )
    example, table = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "t.json").write_text(example)
    (tmp_path / "table.json").write_text(table)
    plan = plan_of(tmp_path, text)
    assert len(plan.points) == 3
    assert len(cells(plan)) == 3 * 2 * 5 * (3 + 1)
    for traces, names in ((yahoo, {"yahoo", "longer"}), (past, {"given", "made"})):
        (tmp_path / "e.yaml").write_text(f"name: some\npolicies: [no_packing]\n{traces}")
        assert load_experiment(tmp_path / "e.yaml").experiment.traces.keys() == names
    (shown,) = read_trace(tmp_path / "t.json").jobs
    assert shown.tasks[0].resolved([Family("c7i")]) == ()
    beside = (Workload("gcn[2]"),)
    assert read_interference(tmp_path / "table.json")(Workload("bert[1]"), beside) == 0.95


# -- the runs --------------------------------------------------------------------------------------


def digests(plan: ExperimentPlan) -> list[str]:
    return [cell.digest for cell in cells(plan)]


def test_a_run_is_known_by_all_that_its_result_depends_on(tmp_path: Path) -> None:
    before = digests(plan_of(tmp_path, SMALL))
    assert len(set(before)) == len(before) == 3 * 3
    for settings in (
        "trace.jobs=9",
        "accounting=production",
        "interference.pairwise=0.9",
        "stated_durations=false",
        "catalog.only=[p3]",
    ):
        bounds = 3 if settings.partition(".")[0] not in ("trace", "catalog") else 0
        assert len(set(before) & set(digests(plan_of(tmp_path, SMALL, settings)))) == bounds
    renamed = SMALL.replace("label: best fit", "label: other").replace("name: small", "name: big")
    assert digests(plan_of(tmp_path, renamed)) == before


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: file, file: t.json}"
    )
    write_jobs(tmp_path / "t.json", _0=job())
    plan = plan_of(tmp_path, text)
    before = digests(plan)
    assert len(set(before)) == 3, "a file is the same trace for every seed"
    write_jobs(tmp_path / "t.json", _0=job(duration=10))
    assert not set(before) & set(digests(plan))
    (tmp_path / "t.json").unlink()
    with pytest.raises(InvalidTrace, match=r"t\.json: No such file"):
        digests(plan)


def test_a_pod_list_makes_a_trace_per_seed(tmp_path: Path) -> None:
    write_pods(tmp_path / "pods.csv", pod("a"), pod("b", gpus=0))
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: alibaba, pods: pods.csv}"
    )
    assert len(set(digests(plan_of(tmp_path, text)))) == 9


def result(digest: str, **figures: float) -> Result:
    return {"digest": digest, "figures": figures, "made": {"code": "c"}}


def test_a_result_that_is_not_whole_is_none(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.keep(result("a" * 64, cost_usd=1.0))
    assert results.find("a" * 64) == result("a" * 64, cost_usd=1.0)
    whole = (tmp_path / f"{'a' * 64}.json").read_text()
    (tmp_path / f"{'b' * 64}.json").write_text(whole)
    (tmp_path / f"{'c' * 64}.json").write_text(whole[:-5])
    (tmp_path / f"{'d' * 64}.json").write_text("[]")
    assert [results.find(name * 64) for name in "bcde"] == [None] * 4
    assert not list(tmp_path.glob("*.tmp"))


# -- what they come to -----------------------------------------------------------------------------


def test_an_interval_is_student_s() -> None:
    one = SeedMean.of([3.0, 1.0, 2.0])
    assert one.mean == 2.0
    assert one.half == pytest.approx(4.302653 / 3**0.5)  # t(0.975; 2) times s / sqrt(n), s = 1
    assert SeedMean.of([5.0]) == SeedMean(5.0, None, 1)


def summary_of(folder: Path, plan: ExperimentPlan, costs: dict[tuple[str, int], float]) -> Summary:
    """A summary of made-up costs by label and seed."""
    results = Results(folder / "runs")
    found = cells(plan)
    for cell in found:
        if (cell.label, cell.seed) in costs:
            cost = costs[cell.label, cell.seed]
            results.keep(result(cell.digest, cost_usd=cost, jct_mean_h=2 * cost))
    return summarise(plan, found, results)


def test_costs_are_compared_seed_by_seed(tmp_path: Path) -> None:
    costs = {
        ("no_packing", 1): 100.0, ("best fit", 1): 80.0, ("reference", 1): 50.0,
        ("no_packing", 2): 10.0, ("best fit", 2): 6.0, ("reference", 2): 5.0,
    }  # fmt: skip
    summary = summary_of(tmp_path, plan_of(tmp_path, SMALL), costs)
    base, other = summary.rows
    assert base.figures["cost_usd"].mean == 55.0
    assert other.figures["cost_share"].mean == pytest.approx(0.7)
    assert other.figures["reference_share"].mean == pytest.approx((1.6 + 1.2) / 2)
    assert other.figures["jct_share"].mean == pytest.approx(0.7)
    assert other.figures["cost_usd"].count == 2
    assert summary.missing == 3
    assert summary.reference == {("short", ()): 27.5}
    assert summary.reference_share == {("short", ()): pytest.approx(0.5)}


def test_seeds_that_share_a_run_are_one_sample(tmp_path: Path) -> None:
    write_jobs(tmp_path / "t.json", _0=job())
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: file, file: t.json}"
    )
    costs = {("no_packing", seed): 7.0 for seed in (1, 2, 3)}
    summary = summary_of(tmp_path, plan_of(tmp_path, text), costs)
    assert summary.rows[0].figures["cost_usd"] == SeedMean(7.0, None, 1)


# -- carrying out ----------------------------------------------------------------------------------


def carried_out(plan: ExperimentPlan, folder: Path, *, backend: str = "sequential") -> Results:
    results = Results(folder)
    todo = missing(cells(plan), results)
    assert not sweep(todo, results, RunExecutor(1, backend), lambda _: None)
    return results


def untimed(found: Result) -> dict[str, Any]:
    figures = {
        name: value for name, value in found["figures"].items() if not name.startswith("planning_")
    }
    return {**found, "figures": figures, "made": None}


def test_runs_are_carried_out_once_and_always_with_the_same_result(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SMALL, "seeds=[1]")
    first = carried_out(plan, tmp_path / "first")
    second = carried_out(plan, tmp_path / "second")
    for digest in digests(plan):
        one, other = first.find(digest), second.find(digest)
        assert one is not None
        assert other is not None
        assert untimed(one) == untimed(other)
    assert missing(cells(plan), first) == []
    assert len(missing(cells(plan), first, fresh=True)) == 3
    grown = plan_of(tmp_path, SMALL, "seeds=[1,2]")
    assert {run.seed for run in missing(cells(grown), first)} == {2}


def test_results_hold_what_the_report_needs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SMALL, "seeds=[1]")
    results = carried_out(plan, tmp_path / "runs")
    for cell in cells(plan):
        found = results.find(cell.digest)
        assert found is not None
        if cell.kind == "reference":
            assert found["figures"]["cost_usd"] > 0
            continue
        assert found["figures"]["jobs_finished"] == 8
        uptimes = found["curves"]["uptime_h"]
        assert len(uptimes) == 201
        assert uptimes == sorted(uptimes)
        assert set(found["curves"]["instances"]) == {"hours", "types"}
        assert json.loads(json.dumps(found)) == found


def test_the_area_below_a_curve_is_the_time_that_instances_were_up() -> None:
    hour = 3_600_000
    instances = [
        InstanceFigures(InstanceId("a"), "small", 0, 0, 8 * hour, 1.0),
        InstanceFigures(InstanceId("b"), "small", 0, 2 * hour, 3 * hour, 1.0),
        InstanceFigures(InstanceId("c"), "large", 0, 7 * hour, 8 * hour, 1.0),
    ]
    series = over_time(instances)
    width = series["hours"][1] - series["hours"][0]
    assert series["hours"][-1] + width / 2 == pytest.approx(8)
    for name, hours in (("small", 9), ("large", 1)):
        assert width * sum(series["types"][name]) == pytest.approx(hours)
    at = dict(zip(series["hours"], series["types"]["small"], strict=True))
    assert {round(count) for when, count in at.items() if 2.1 < when < 2.9} == {2}
    assert {round(count) for when, count in at.items() if when > 3.1} == {1}


def test_the_bound_is_below_all_costs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SMALL, "seeds=[1]", "trace.jobs=15")
    found = cells(plan)
    summary = summarise(plan, found, carried_out(plan, tmp_path / "runs"))
    for row in summary.rows:
        assert row.figures["reference_share"].mean >= 1


def test_what_goes_wrong_is_of_the_seed(tmp_path: Path) -> None:
    write_jobs(tmp_path / "t.json", _0=job(duration=40_000))
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: file, file: t.json}"
    )
    settings = ("reference=false", "faults.failures=0.5")
    plan = plan_of(tmp_path, text, *settings)
    assert len(set(digests(plan))) == 6, "a run per seed, although the trace is the same"
    results = carried_out(plan, tmp_path / "runs")
    first = cells(plan)[0]
    found = [results.find(digest) for digest in digests(plan)]
    launched = [one["figures"]["instances_launched"] for one in found if one is not None]
    assert max(launched) > 1, "instances that died were replaced"
    again = carried_out(plan, tmp_path / "again").find(first.digest)
    assert again is not None
    assert found[0] is not None
    assert untimed(again) == untimed(found[0])


def test_a_run_that_fails_is_told_and_not_kept(tmp_path: Path) -> None:
    huge = job(tasks={"0": {"demand": {"any": [64, 1, 1]}}})
    write_jobs(tmp_path / "t.json", _0=huge)
    text = SMALL.replace(
        "{kind: production, jobs: 8, durations: short}", "{kind: file, file: t.json}"
    )
    plan = plan_of(tmp_path, text, "reference=false")
    results = Results(tmp_path / "runs")
    failed = sweep(
        missing(cells(plan), results), results, RunExecutor(1, "sequential"), lambda _: None
    )
    assert len(failed) == 2
    assert "no instance type" in failed[0]["error"]
    assert len(missing(cells(plan), results)) == 2


def test_packing_by_itself(tmp_path: Path) -> None:
    text = "name: p\npacking: {tasks: 60}\nbaseline: near_optimal\nseeds: [1]\n"
    plan = plan_of(tmp_path, text)
    summary = summarise(plan, cells(plan), carried_out(plan, tmp_path / "runs"))
    alone, full, best = (row.figures["reference_share"].mean for row in summary.rows)
    assert 1 <= best <= full < 1.1 < alone


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SMALL)
    with pytest.raises(InvalidConfig, match="backend nonsense"):
        sweep([cells(plan)[0].run], Results(tmp_path), RunExecutor(1, "nonsense"), lambda _: None)


def test_a_run_travels_to_other_processes(tmp_path: Path) -> None:
    import pickle

    run: Run = cells(plan_of(tmp_path, SMALL, "trace.jobs=2"))[1].run
    assert untimed(execute(pickle.loads(pickle.dumps(run)))) == untimed(execute(run))


POOL = "type,zone,from_s,to_s,capacity,price\n*,a,0,36000,50,30%\n*,a,36000,72000,0,30%\n"
ON_SPOT = """
name: on-spot
traces: {jobs: {kind: file, file: t.json}}
policies: [no_packing]
market: {file: market.csv}
spot: allowed
vary:
  market.offset: [0s, 10h]
"""


def test_a_spot_market_beside_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "market.csv").write_text(POOL)
    write_jobs(tmp_path / "t.json", _0={**job(duration=7_200), "deadline": 3_600 * 3})
    plan = plan_of(tmp_path, ON_SPOT)
    markets = [point.experiment.market for point in plan.points]
    assert [it and (it.file, it.offset) for it in markets] == [
        (tmp_path / "market.csv", offset) for offset in (0, 36_000_000)
    ]
    results = carried_out(plan, tmp_path / "runs")
    found: dict[tuple[str, object], dict[str, float]] = {}
    for cell in cells(plan):
        result = results.find(cell.digest)
        assert result is not None
        found[cell.kind, cell.values[0][1]] = result["figures"]
    for kind in ("simulation", "reference"):
        there, dry = (found[kind, offset]["cost_usd"] for offset in ("0s", "10h"))
        assert there == pytest.approx(0.3 * dry, rel=0.1)
    for offset in ("0s", "10h"):
        assert found["reference", offset]["cost_usd"] < found["simulation", offset]["cost_usd"]
        assert found["simulation", offset]["missed"] == 0
    other = cells(plan_of(tmp_path, ON_SPOT, "spot=never"))
    assert {cell.digest for cell in other}.isdisjoint(cell.digest for cell in cells(plan))
    asked = cells(plan_of(tmp_path, ON_SPOT, "spot_choice=uniform_progress"))
    kinds = [cell.kind for cell, before in zip(asked, cells(plan), strict=True) if cell != before]
    assert set(kinds) == {"simulation"}


def test_presets_differ_in_how_jobs_with_deadlines_choose(tmp_path: Path) -> None:
    (tmp_path / "market.csv").write_text(POOL)
    write_jobs(tmp_path / "t.json", _0=job(duration=7_200))
    presets = "[no_packing, 'eva:uniform_progress', 'eva:on_demand']"
    assert _choices(tmp_path, presets, "") == ["learned", "uniform_progress", "on_demand"]
    stated = "spot_choice: until_safety_net\n"
    assert _choices(tmp_path, presets, stated) == ["until_safety_net"] * 3


def _choices(tmp_path: Path, presets: str, more: str) -> list[str]:
    text = re.sub(r"policies: .*", f"policies: {presets}", ON_SPOT) + more
    found = cells(plan_of(tmp_path, text))
    first = found[0].values
    asked = [it for it in found if it.kind == "simulation" and it.values == first]
    return [it.run.spot_choice.value for it in asked]


def test_a_market_has_no_place_where_machines_are_fixed(tmp_path: Path) -> None:
    text = ON_SPOT + "fleet: {v100: {servers: 1, gpus: 4}}\n"
    assert any(key == "market" for _, key, _ in refusal(tmp_path, text))
