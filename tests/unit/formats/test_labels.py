"""Labels of jobs: in job files, in the limits of text, and in the rules of partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.app.config import MasterConfig
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_wire.values.errors import InvalidConfig, InvalidJob
from tests.fakes.jobs import job
from tests.unit.formats.test_jobfile import only_problem_of, parse, problems_of, with_line


def load(tmp_path: Path, rule: str) -> MasterConfig:
    file = tmp_path / "master.yaml"
    partitions = f"{{special: {{rule: {rule}}}, main: {{default: true}}}}"
    file.write_text(f"state_dir: {tmp_path}\npartitions: {partitions}\n")
    return load_master_config(policies=policies(), file=file)


def test_labels_are_kept_by_key_as_they_are_written() -> None:
    spec = parse(with_line("labels: {team: vision, build: 007, empty: '', on: yes, v: 1.10}"))
    assert spec.labels == (
        ("build", "007"),
        ("empty", ""),
        ("on", "yes"),
        ("team", "vision"),
        ("v", "1.10"),
    )
    assert parse(with_line("")).labels == ()


@pytest.mark.parametrize("text", ["a", "A.b_c-9", "x" * 63])
def test_right_keys_and_values(text: str) -> None:
    assert parse(with_line(f"labels: {{{text}: {text}}}")).labels == ((text, text),)


@pytest.mark.parametrize("text", ["-a", "a-", "a/b", "a b", "é", "x" * 64, '"a\\nb"', '"a\\n"'])
@pytest.mark.parametrize("line", ["labels: {%s: a}", "labels: {a: %s}"])
def test_wrong_keys_and_values_are_refused_with_line_and_rule(line: str, text: str) -> None:
    problem = only_problem_of(with_line(line % text))
    assert problem.line == 4
    assert "cannot be the" in problem.message
    assert "up to 63 letters" in problem.hint


@pytest.mark.parametrize("labels", ["[a]", "a", "{a: [b]}", "{a: {b: c}}", "{'': a}", "{a: null}"])
def test_what_is_no_map_of_texts_is_refused(labels: str) -> None:
    assert problems_of(with_line(f"labels: {labels}"))[0].line == 4


def test_a_job_has_sixteen_labels_at_most() -> None:
    def of(count: int) -> str:
        return with_line(f"labels: {{{', '.join(f'k{number}: v' for number in range(count))}}}")

    assert len(parse(of(16)).labels) == 16
    assert only_problem_of(of(17)).key == "labels"


def test_labels_count_as_text_once_for_all_tasks() -> None:
    plain = job("a", 1, 1)
    assert replace(plain, labels=(("team", "vision"), ("x", ""))).text == plain.text + 11


@pytest.mark.parametrize(
    ("labels", "partition"),
    [
        ((), "main"),
        ((("team", "vision"),), "main"),
        ((("team", "vision"), ("tier", "1")), "special"),
        ((("team", "vision"), ("tier", "2")), "main"),
        ((("other", "x"), ("team", "vision"), ("tier", "1")), "special"),
    ],
)
def test_a_rule_holds_for_jobs_that_have_all_of_its_labels(
    tmp_path: Path, labels: tuple[tuple[str, str], ...], partition: str
) -> None:
    settings = control_settings(load(tmp_path, "{labels: {team: vision, tier: '1'}}"))
    spec = replace(job("a", 1), labels=labels)
    assert settings.partitions.chosen(spec, None) == partition


def test_a_rule_with_labels_holds_only_with_its_other_parts(tmp_path: Path) -> None:
    rule = "{labels: {team: vision}, owners: [ana]}"
    partitions = control_settings(load(tmp_path, rule)).partitions
    spec = job("a", 1, labels=(("team", "vision"),))
    assert partitions.chosen(spec, None) == "main"
    assert partitions.chosen(replace(spec, owner="ana"), None) == "special"


@pytest.mark.parametrize("labels", ["{}", "{-a: b}", "{a: -b}", "[a]"])
def test_a_rule_with_wrong_labels_is_refused(tmp_path: Path, labels: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(tmp_path, f"{{labels: {labels}}}")
    assert "labels" in str(refused.value)


def test_a_job_file_with_a_label_twice_is_refused() -> None:
    with pytest.raises(InvalidJob, match="twice"):
        parse(with_line("labels: {a: b, a: c}"))
