"""Settings: which source wins, and how each mistake is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eva_master.app.config import MasterConfig
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.building import policy_config
from eva_master.app.settings import load_master_config
from eva_master.ports import Policy, PolicyKind
from eva_wire.settings.common import user_state_dir
from eva_wire.values.errors import InvalidConfig, Problem


@dataclass(frozen=True)
class Options:
    columns: int = 10
    greedy: bool = False


def build(config: Options) -> Policy:
    raise NotImplementedError


KIND = PolicyKind(name="eva", config=Options, build=build, presets={"narrow": {"columns": 3}})


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("EVA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "master.yaml"


def load(file: Path | None = None, text: str = "", **options: Any) -> MasterConfig:
    if file is not None:
        file.write_text(text)
    return load_master_config(policies={"eva": KIND}, file=file, **options)


def problems_of(file: Path | None = None, text: str = "", **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidConfig) as caught:
        load(file, text, **options)
    return caught.value.problems


def test_flag_beats_variable_beats_file_beats_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVA_MASTER_HEARTBEAT", "2s")
    monkeypatch.setenv("EVA_MASTER_ROUND_PERIOD", "2m")
    config = load(
        file,
        "heartbeat: 1s\nround_period: 1m\nresend_interval: 1s\n",
        flags={"round_period": "3m"},
        defaults={"resend_interval": "9s", "cluster": "lab"},
    )
    assert config.resend_interval == 1_000
    assert config.heartbeat == 2_000
    assert config.round_period == 180_000
    assert config.cluster == "lab"


def test_ports_are_a_range(file: Path) -> None:
    assert load(file, "gang_ports: 3000-3099\n").gang_ports == (3_000, 3_099)
    assert load().shown()["gang_ports"] == "20000-29999"


def test_inputs_come_from_s3_unless_the_operator_says_more(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load().input_roots == ("s3://",)
    monkeypatch.setenv("EVA_MASTER_INPUT_ROOTS", '["s3://data", "file:///data"]')
    assert load(file, "input_roots: []\n").input_roots == ("s3://data", "file:///data")
    # A link to the master's files is no way round.
    (tmp_path / "state").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "state")
    flags = {"state_dir": str(tmp_path / "state"), "input_roots": [(tmp_path / "data").as_uri()]}
    (problem,) = problems_of(flags=flags)
    assert "the master's own files" in problem.message
    # What other jobs have stored may be meant.
    store = (tmp_path / "state" / "objects" / "jobs").as_uri()
    assert load(flags={**flags, "input_roots": [store]}).input_roots == (store,)


def test_sections_are_merged_key_by_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVA_MASTER_POLICY__OPTIONS", '{"greedy": true}')
    monkeypatch.setenv("EVA_MASTER_CATALOG__ONLY", '["c7i"]')
    config = load(
        file,
        "policy: {name: eva, options: {columns: 20}}\ncatalog: {file: more.yaml, only: [p3]}\n",
    )
    assert policy_config(config.policy, KIND) == Options(columns=20, greedy=True)
    assert config.catalog.file == Path("more.yaml")
    assert config.catalog.only == ["c7i"]


def test_state_directory_holds_what_no_setting_puts_elsewhere(tmp_path: Path) -> None:
    config = load(flags={"state_dir": str(tmp_path)})
    assert config.journal_url == f"sqlite:///{tmp_path}/journal.db"
    assert config.objects_url == (tmp_path / "objects").as_uri()
    elsewhere = load(flags={"journal": "postgresql://host/eva", "objects": "s3://bucket/eva"})
    assert elsewhere.journal_url == "postgresql://host/eva"
    assert elsewhere.objects_url == "s3://bucket/eva"


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "hint"),
    [
        ("a: 1\n", 1, "a", "unknown key 'a'", "known keys: "),
        ("\nhartbeat: 1s\n", 2, "hartbeat", "unknown key", "did you mean 'heartbeat'?"),
        ("heartbeat: 1\n", 1, "heartbeat", "a duration needs a unit", "write 1s"),
        ("heartbeat: 1ms\n", 1, "heartbeat", "must be between 10ms and 1d", ""),
        ("gang_ports: 20000\n", 1, "gang_ports", "not a range of ports", "write FIRST-LAST"),
        ("input_roots: [ftp://x]\n", 1, "input_roots[0]", "is no place for inputs", "write s3://"),
        ("input_roots: [file:///]\n", 1, "input_roots[0]", "all of a machine's files", "name dir"),
        ("input_roots: [file:///a/../b]\n", 1, "input_roots[0]", "'..'", "write s3://"),
        ("input_roots: [file:///var/lib]\n", 1, "input_roots[0]", "the master's own", "name dir"),
        ("input_roots: [file:///var/lib/eva/pki]\n", 1, "input_roots[0]", "the master's own", ""),
        ("gang_ports: 9-80\n", 1, "gang_ports", "not a range of ports", "write FIRST-LAST"),
        ("gang_ports: 3000-2000\n", 1, "gang_ports", "not a range of ports", "write FIRST-LAST"),
        ("gang_ports: 3000-70000\n", 1, "gang_ports", "not a range of ports", "write FIRST"),
        ("preemption: always\n", 1, "preemption", "'never' or 'suspend'", ""),
        ("\npreemption: suspend\n", 2, "preemption", "any user could suspend", "limits.priority"),
        (
            "\npreemption_across: true\n",
            2,
            "preemption_across",
            "no job has any other suspended",
            "preemption: suspend",
        ),
        ("limits: {priority: -1}\n", 1, "limits.priority", "0 or more", ""),
        ("limits: {priority: high}\n", 1, "limits.priority", "", ""),
        ("listen: here\n", 1, "listen", "is not an address", "HOST:PORT"),
        ("listen: a:99999\n", 1, "listen", "is not an address", "HOST:PORT"),
        ("cluster: A b\n", 1, "cluster", "cannot name a cluster", ""),
        ("journal: here\n", 1, "journal", "is not a URL", ""),
        ("metrics_port: -1\n", 1, "metrics_port", "must be 0 or more", ""),
        ("local:\n  launch_dely: 1s\n", 2, "local.launch_dely", "unknown key", "launch_delay"),
        ("policy:\n  name: evo\n", 2, "policy.name", "no policy 'evo'", "did you mean 'eva'?"),
        (
            "policy:\n  options:\n    colums: 3\n",
            3,
            "policy.options.colums",
            "has no option 'colums'",
            "did you mean 'columns'?",
        ),
        ("policy: {options: {columns: x}}\n", 1, "policy.options.columns", "a whole number", ""),
        (
            "policy:\n  preset: narow\n",
            2,
            "policy.preset",
            "policy 'eva' has no preset 'narow'",
            "did you mean 'narrow'?",
        ),
    ],
)
def test_mistakes_in_the_file(
    file: Path, text: str, line: int, key: str, message: str, hint: str
) -> None:
    (problem,) = problems_of(file, text)
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert hint in problem.hint


def test_mistakes_elsewhere_name_variable_and_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVA_MASTER_LOCAL__LAUNCH_DELAY", "5")
    problems = problems_of(flags={"listen": "here", "policy": {"name": "evo"}})
    assert {one.key for one in problems} == {"EVA_MASTER_LOCAL__LAUNCH_DELAY", "--listen"}


def test_policy_flag_is_named() -> None:
    (problem,) = problems_of(flags={"policy": {"name": "evo"}})
    assert problem.key == "--policy-name"


def test_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVA_MASTER_LISTN", "1.2.3.4:5")
    (problem,) = problems_of()
    assert problem.key == "EVA_MASTER_LISTN"
    assert problem.hint == "did you mean 'EVA_MASTER_LISTEN'?"


def test_variable_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVA_MASTER_POLICY__OPTIONS", "columns=3")
    with pytest.raises(InvalidConfig, match="environment") as caught:
        load()
    assert "JSON" in caught.value.hint


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load_master_config(policies={"eva": KIND}, file=tmp_path / "none.yaml")


def test_shown_settings_have_units_and_no_password() -> None:
    shown = load(flags={"journal": "postgresql://me:secret@host/eva"}).shown()
    assert shown["round_period"] == "5m"
    assert shown["journal"] == "postgresql://me:***@host/eva"


@pytest.mark.parametrize(
    ("flags", "workers"),
    [
        ({}, "127.0.0.1:7412"),
        ({"listen": "[::]:80"}, "[::]:81"),
        ({"listen": "lab:0"}, "lab:0"),
        ({"listen": "lab:65535"}, "lab:65534"),
        ({"listen": "lab:80", "worker_listen": "10.0.0.1:9"}, "10.0.0.1:9"),
    ],
)
def test_workers_dial_beside_the_users_unless_told_otherwise(
    flags: Mapping[str, Any], workers: str
) -> None:
    settings = load(flags=flags)
    assert settings.worker_address == workers
    assert settings.shown()["worker_listen"] == workers


def test_state_of_a_users_own_master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert user_state_dir() == tmp_path / "eva"


def test_every_policy_is_found_and_has_a_default_config() -> None:
    found: Mapping[str, Any] = policies()
    assert {"eva", "no_packing"} <= {name.replace("-", "_") for name in found}
    for name, kind in found.items():
        config = load_master_config(policies=found, flags={"policy": {"name": name}})
        assert policy_config(config.policy, kind) == kind.config()


@pytest.mark.parametrize(("text", "profiles"), [("", True), ("profile: false\n", False)])
def test_profiling_is_the_control_loop_s_to_do_unless_it_is_turned_off(
    file: Path, text: str, profiles: bool
) -> None:
    assert control_settings(load(file, text)).profile is profiles


def test_a_preset_is_a_choice_of_options_that_others_go_over(file: Path) -> None:
    config = load(file, "policy: {name: eva, preset: narrow, options: {greedy: true}}\n")
    assert policy_config(config.policy, KIND) == Options(columns=3, greedy=True)
    config = load(file, "policy: {preset: narrow, options: {columns: 4}}\n")
    assert policy_config(config.policy, KIND) == Options(columns=4)


@pytest.mark.parametrize(
    ("text", "name", "preset"),
    [
        ("{name: eva}", "eva", None),
        ("{name: eva_published, preset: rp}", "eva_published", "rp"),
        ("{name: eva_published:rp}", "eva_published", "rp"),
        ("{preset: uniform_progress}", "eva", "uniform_progress"),
    ],
)
def test_a_name_may_have_the_preset_behind_a_colon(
    file: Path, text: str, name: str, preset: str | None
) -> None:
    file.write_text(f"policy: {text}\n")
    config = load_master_config(policies=policies(), file=file)
    assert (config.policy.name, config.policy.preset) == (name, preset)


def test_an_option_of_the_other_eva_is_refused(file: Path) -> None:
    file.write_text("policy:\n  name: eva_published\n  options: {horizon_s: 60}\n")
    with pytest.raises(InvalidConfig, match="'eva_published' has no option 'horizon_s'"):
        load_master_config(policies=policies(), file=file)


@pytest.mark.parametrize(
    ("text", "grid_ms"),
    [
        ("", 0),
        ("policy: {name: eva_published}\n", 300_000),
        ("policy: {name: eva_published, options: {round_gap_s: 60}}\n", 60_000),
        ("policy: {name: no_packing}\n", 0),
    ],
)
def test_a_policy_says_how_often_it_likes_to_plan(file: Path, text: str, grid_ms: int) -> None:
    file.write_text(text)
    config = load_master_config(policies=policies(), file=file)
    assert control_settings(config).round_grid_ms == grid_ms


@pytest.mark.parametrize(
    ("text", "patience"),
    [
        ("", {"": 1_800_000}),
        ("patience: 2h", {"": 7_200_000}),
        ("patience: off", {}),
        ("policy: {name: no_packing}", {"": 1_800_000}),
        ("policy: {name: eva, short: {name: cloudcoaster, below: 90s}}", {"": 1_800_000}),
        *(
            (f"policy: {{name: {name}}}", {})
            for name in ("eva_published", "stratus", "fifo", "hadar")
        ),
        *(
            (f"policy: {{name: {name}}}", {})
            for name in ("slearn", "tiresias", "yarn_cs", "astraea")
        ),
        (
            "patience: 1h\npartitions: {a: {default: true}, b: {policy: {name: fifo}}}",
            {"a": 3_600_000},
        ),
    ],
)
def test_patience_is_for_policies_that_leave_the_order_of_jobs(
    file: Path, text: str, patience: dict[str, int]
) -> None:
    file.write_text(text)
    config = load_master_config(policies=policies(), file=file)
    assert control_settings(config).patience == patience


def test_patience_is_shown_as_it_is_written(file: Path) -> None:
    for written in ("off", "45m"):
        assert load(file, f"patience: {written}").shown()["patience"] == written
    (problem,) = problems_of(file, "patience: soon")
    assert problem.key == "patience"
