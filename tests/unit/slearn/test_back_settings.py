"""A policy behind SLearn: what settings and experiments may say, and what they come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import cells
from eva_lab.experiments.schema import ExperimentPlan, load_experiment
from eva_master.app.config import MasterConfig
from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import (
    built,
    estimates_in,
    round_grid_ms,
    shown,
    source,
)
from eva_master.app.settings import load_master_config
from eva_master.model.planning.estimate import Estimates
from eva_wire.values.errors import InvalidConfig
from tests.fakes.snapshots import Cluster, offer, task


def load(tmp_path: Path, text: str) -> MasterConfig:
    path = tmp_path / "master.yaml"
    path.write_text(text)
    return load_master_config(policies=policies(), file=path)


@pytest.mark.parametrize(
    ("policy", "name", "grid_ms"),
    [
        ("{name: slearn, back: eva}", "slearn+eva", 0),
        (
            "{name: slearn, back: 'eva_published:full-only'}",
            "slearn+eva_published:full-only",
            300_000,
        ),
        (
            "{name: 'slearn:las', back: {name: eva, options: {iterations: 9}}}",
            "slearn:las+eva",
            0,
        ),
        (
            "{name: slearn, back: stratus, short: {name: cloudcoaster, below: 90s}}",
            "cloudcoaster+slearn+stratus",
            0,
        ),
    ],
)
def test_another_policy_stands_behind_with_options_of_its_own(
    tmp_path: Path, policy: str, name: str, grid_ms: int
) -> None:
    config = load(tmp_path, f"policy: {policy}\n")
    assert shown(config.policy) == name
    assert round_grid_ms(config.policy) == grid_ms
    options, _ = source(config.policy)
    assert json.loads(json.dumps(options)) == options, "it goes to the planner's process"
    cluster = Cluster(offer("c.4", (0, 4, 4), 0.4))
    cluster.job("job", task("w", any=(0, 1, 1)))
    plan, memory = built(config.policy).plan(cluster.snapshot(), None)
    assert [len(plan.launches), len(plan.lines), len(plan.entries)] == [1, 0, 1]
    assert memory is not None
    assert estimates_in(config) is (Estimates.PILOTS if "las" in policy else Estimates.POSTERIOR), (
        "the one in front says what run times are estimated from"
    )


@pytest.mark.parametrize(
    ("policy", "key", "said", "hint"),
    [
        ("{name: eva, back: stratus}", "back", "'eva' buys and packs", "one of: slearn"),
        ("{name: slearn, back: fifo}", "back", "'fifo' has lines", "eva, eva_published"),
        ("{name: slearn, back: slearn}", "back", "'slearn' has lines", "no_packing"),
        ("{name: slearn, back: cloudcoaster}", "back", "'cloudcoaster' has lines", "stratus"),
        ("{name: slearn, back: evva}", "back.name", "no policy 'evva'", "'eva'"),
        ("{name: slearn, back: 'eva:x'}", "back.preset", "no preset 'x'", "known: "),
        (
            "{name: slearn, back: {name: eva, options: {iterations: -1}}}",
            "back.options.iterations",
            "0 or more",
            "",
        ),
        ("{name: slearn, back: {name: eva, back: eva}}", "back.back", "unknown key", ""),
    ],
)
def test_what_cannot_stand_behind_is_refused_with_line_and_key(
    tmp_path: Path, policy: str, key: str, said: str, hint: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(tmp_path, f"policy: {policy}\n")
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == (f"policy.{key}", 1)
    assert said in problem.message
    assert hint in problem.hint


def test_a_partition_may_have_one(tmp_path: Path) -> None:
    text = "partitions:\n  all:\n    default: true\n    policy: {name: slearn, back: eva}\n"
    section = load(tmp_path, text).partitions["all"].policy
    assert section is not None
    assert shown(section) == "slearn+eva"


EXPERIMENT = """\
name: backs
traces: {few: {kind: production, jobs: 6, durations: short}}
reference: false
policies:
  - no_packing
  - name: slearn
    back: BACK
"""


def plan_of(tmp_path: Path, back: str) -> ExperimentPlan:
    path = tmp_path / "backs.yaml"
    path.write_text(EXPERIMENT.replace("BACK", back))
    return load_experiment(path)


def test_an_experiment_runs_a_pair_that_is_told_apart(tmp_path: Path) -> None:
    plan, other = (
        plan_of(tmp_path, "eva"),
        plan_of(tmp_path, "{name: eva, options: {iterations: 1}}"),
    )
    assert plan.experiment.labels == ["no_packing", "slearn+eva"]
    alone, pair = cells(plan)
    assert pair.digest != cells(other)[1].digest
    assert alone.digest == cells(other)[0].digest
    assert "back" not in alone.run.definition["policy"], "runs from before keep their names"
    figures = execute(pair.run)["figures"]
    assert figures["cost_usd"] < execute(alone.run)["figures"]["cost_usd"], "it packs"


def test_an_experiments_pair_is_checked_with_line_and_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as refused:
        plan_of(tmp_path, "fifo")
    (problem,) = refused.value.problems
    assert (problem.line, problem.key) == (7, "policies[1].back")
    assert "'fifo' has lines" in problem.message
