"""What the settings of SLearn may say, and what its page, its reference and its example show."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from eva_master.app.config import MasterConfig
from eva_master.app.nodes.settings import owned_nodes
from eva_master.app.policy_registry import policies
from eva_master.app.sections.building import policy_config
from eva_master.app.sections.policies import built, estimates_of, shown
from eva_master.app.settings import load_master_config
from eva_master.model.planning.estimate import Estimates
from eva_policies.slearn import POLICY
from eva_policies.slearn.config import Config
from eva_wire.jobfile import check_job
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidConfig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "howto" / "learned-run-times.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "policy-options.md").read_text()
EXAMPLE = ROOT / "examples" / "learned_sizes"


def load(path: Path) -> MasterConfig:
    return load_master_config(policies=policies(), file=path)


def of(path: Path) -> Config:
    config = load(path)
    chosen = policy_config(config.policy, policies()[config.policy.name])
    assert isinstance(chosen, Config)
    return chosen


@pytest.mark.parametrize(
    ("options", "key", "line", "said"),
    [
        ("queues: 1", "queues", 4, "queues: 1 leaves none"),  # options that do not go together
        ("estimator: pilots\n    queues: 1", "queues", 5, "queues: 1 leaves none"),
        ("queues: 0", "queues", 4, "1 or more"),
        ("queues: 19", "queues", 4, "18 or less"),
        ("growth: 1", "growth", 4, "2 or more"),
        ("seed: 2\n    weight_step: 0", "weight_step", 5, "1 or more"),
        ("first_queue_s: 0", "first_queue_s", 4, "1 or more"),
        ("estimator: guess", "estimator", 4, "posterior"),
        ("order: size", "order", 4, "remaining"),
        ("ratio_ppm: 1000001", "ratio_ppm", 4, "1000000 or less"),
        ("age_cap: -1", "age_cap", 4, "0 or more"),
        ("quees: 5", "quees", 4, "no option 'quees'"),
    ],
)
def test_what_cannot_be_is_refused_with_line_and_key(
    tmp_path: Path, options: str, key: str, line: int, said: str
) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(f"policy:\n  name: slearn\n  options:\n    {options}\n")
    with pytest.raises(InvalidConfig) as refused:
        load(path)
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == (".".join(filter(None, ("policy.options", key))), line)
    assert said in problem.message


def test_one_queue_of_a_preset_is_refused_where_pilots_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "master.yaml"
    path.write_text("policy:\n  name: slearn:fifo\n  options:\n    estimator: pilots\n")
    with pytest.raises(InvalidConfig) as refused:
        load(path)
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("policy.options", 3), "the key is not in the file"
    assert "queues: 1 leaves none" in problem.message


def test_one_queue_is_enough_for_those_without_pilots(tmp_path: Path) -> None:
    path = tmp_path / "master.yaml"
    path.write_text("policy: {name: slearn, options: {estimator: las, queues: 1}}\n")
    assert of(path).queues == 1


@pytest.mark.parametrize("preset", ["", *(it for it in POLICY.presets if it != "oracle")])
def test_presets_have_estimates_that_go_with_them(tmp_path: Path, preset: str) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(f"policy: {{name: 'slearn{':' if preset else ''}{preset}'}}\n")
    chosen = of(path)
    assert built(load(path).policy).name == "slearn"
    row = next(line for line in REFERENCE.splitlines() if _is_row(line, preset))
    told = row.split("|")[2].strip().strip("`")
    mode = estimates_of(POLICY, chosen)
    if told == "any":
        assert chosen.estimator in ("las", "fifo")
    else:
        assert Estimates(told) is mode
        path.write_text(f"estimates: '{told}'\n")
        assert load(path).estimates is mode


def _is_row(line: str, preset: str) -> bool:
    names = line.split("|")[1] if line.startswith("| `slearn") else ""
    return (f"`slearn:{preset}`" if preset else "`slearn` ") in names


def test_the_page_shows_settings_and_a_job_that_are_accepted(tmp_path: Path) -> None:
    settings, job, behind = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "master.yaml"
    path.write_text(settings)
    assert of(path) == Config(), "these are the defaults"
    assert [it.name for it in owned_nodes(load(path).nodes).values()] == ["rack1"]
    check_job(job, file_name="job.yaml")
    path.write_text(behind)
    config = load(path)
    assert (shown(config.policy), config.limits.instances) == ("slearn+eva", 20)
    assert "horizon_s: 7200" in behind, "the other form"
    path.write_text("policy: {name: slearn, back: {name: eva, options: {horizon_s: 7200}}}\n")
    assert shown(load(path).policy) == "slearn+eva"


def test_the_reference_has_every_option_with_its_default() -> None:
    (section,) = re.findall(r"^## slearn\n(.*?)(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
    options = section.partition("\nPresets")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", options, re.MULTILINE))
    told = {name: default.strip("` ").replace(",", "") for name, default in rows.items()}
    known = {one.name: getattr(Config(), one.name) for one in fields(Config)}
    del known["explained"]  # every policy has it
    words = {True: "on", False: "off"}
    assert told == {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in known.items()
    }
    for preset in POLICY.presets:
        assert f"`slearn:{preset}`" in section


def test_the_example_declares_a_node_and_has_smaller_queues() -> None:
    config = load(EXAMPLE / "master.yaml")
    (node,) = owned_nodes(config.nodes).values()
    assert (node.name, node.offering.price) == ("rack1", 0)
    assert of(EXAMPLE / "master.yaml").first_queue_s == 10


@pytest.mark.parametrize("name", ["nightly", "quick"])
def test_jobs_of_the_example_state_nothing_and_fit_the_node_by_four(name: str) -> None:
    text = (EXAMPLE / f"{name}.yaml").read_text()
    check_job(text, file_name=f"{name}.yaml")
    keys = yaml.safe_load(text)
    assert (keys["kind"], keys.get("duration")) == (JobKind.ARRAY.value, None)
    capacity = yaml.safe_load((EXAMPLE / "master.yaml").read_text())["nodes"]["rack1"]["capacity"]
    assert capacity["cpus"] == 4 * keys["resources"]["cpus"]
