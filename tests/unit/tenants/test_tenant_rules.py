"""Who belongs to which tenant, and which settings are refused."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.accounting.tenants import TenantRules, can_match
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.users import is_owner

RULES = TenantRules(
    {
        "vision": ("ana", "*@vision.example"),
        "speech": ("bo@vision.example", "bo*"),
        "night": ("*-nightly", "bo-x*"),
        "rest": ("a*",),
    }
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("owner", "tenant"),
    [
        ("ana", "vision"),
        ("anatol", "rest"),
        ("a", "rest"),
        ("carl@vision.example", "vision"),
        ("a@vision.example", "vision"),
        ("bo@vision.example", "speech"),
        ("bob@vision.example", "vision"),
        ("bo", "speech"),
        ("bo-nightly", "night"),
        ("bo-x", "night"),
        ("carl", "default"),
    ],
)
def test_names_beat_patterns_and_long_patterns_short_ones(owner: str, tenant: str) -> None:
    assert RULES.of(owner) == tenant


def test_of_patterns_of_one_length_the_one_with_more_in_front_wins() -> None:
    for owners in ({"front": ("ab*",), "back": ("*cd",)}, {"back": ("*cd",), "front": ("ab*",)}):
        assert TenantRules(owners).of("abcd") == "front"
    assert TenantRules({"all": ("*",)}).of("anybody") == "all"
    assert TenantRules().of("anybody") == "default"


def test_what_stands_before_and_after_the_star_does_not_overlap() -> None:
    assert TenantRules({"t": ("aba*ba",)}).of("aba") == "default"
    assert TenantRules({"t": ("aba*ba",)}).of("ababa") == "t"


_WORDS = st.text("ab-", max_size=3)
_ENTRIES = st.builds("*".join, st.tuples(_WORDS, _WORDS)) | _WORDS


@given(st.lists(_ENTRIES, unique=True, max_size=8), st.text("ab-", min_size=1, max_size=6))
def test_the_first_by_length_that_matches_is_taken(entries: list[str], owner: str) -> None:
    rules = TenantRules({f"t{place}": (entry,) for place, entry in enumerate(entries)})
    matching = [entry for entry in entries if fnmatchcase(owner, entry)]
    if not matching:
        assert rules.of(owner) == "default"
        return
    chosen = entries[int(rules.of(owner)[1:])]
    assert chosen in matching
    if owner in entries:
        assert chosen == owner
    else:
        assert len(chosen) == max(map(len, matching))


@given(_ENTRIES)
def test_an_entry_is_accepted_where_any_owner_matches(entry: str) -> None:
    """Owners that are no longer than these entries are all there is to try."""
    tried = (owner for some in ("", *"ab-") if is_owner(owner := entry.replace("*", some)))
    assert can_match(entry) == any(tried)


def settings_of(file: Path, text: str) -> TenantRules:
    file.write_text(text)
    return load_master_config(policies=policies(), file=file).tenant_rules


def test_settings_name_tenants(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    assert settings_of(file, "").names == ("default",)
    rules = settings_of(file, 'tenants:\n  vision: {owners: [ana, "*@vision"]}\n')
    assert rules.names == ("vision", "default")
    assert (rules.of("ana"), rules.of("bo@vision"), rules.of("bo")) == (
        *("vision", "vision", "default"),
    )


def test_the_environment_names_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVA_MASTER_TENANTS", '{"vision": {"owners": ["ana", "ana"]}}')
    with pytest.raises(InvalidConfig) as caught:
        load_master_config(policies=policies())
    (problem,) = caught.value.problems
    assert "EVA_MASTER_TENANTS" in problem.key
    assert "belongs to the tenant 'vision' already" in problem.message


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("tenants: [vision]\n", 1, "tenants", "must hold keys and values"),
        ("tenants:\n  vision: [ana]\n", 2, "tenants.vision", "must hold keys and values"),
        ("tenants:\n  vision: {}\n", 2, "tenants.vision.owners", "'owners' is missing"),
        ("tenants:\n  vision: {owners: ana}\n", 2, "tenants.vision.owners", "must be a list"),
        ("tenants:\n  vision: {owners: []}\n", 2, "tenants.vision.owners", "nobody can belong"),
        ("tenants:\n  vision:\n    owners:\n", 3, "tenants.vision.owners", "must be a list"),
        ("tenants:\n  vision: {owners: [1]}\n", 2, "tenants.vision.owners[0]", "must be text"),
        (
            "tenants:\n  vision: {owners: [b], owner: [a]}\n",
            *(2, "tenants.vision.owner", "unknown key 'owner'"),
        ),
        ('tenants:\n  t: {owners: ["a*b*"]}\n', 2, "tenants.t.owners[0]", "has two '*'"),
        ('tenants:\n  t: {owners: ["*!"]}\n', 2, "tenants.t.owners[0]", "no owner can be called"),
        ('tenants:\n  t: {owners: ["", a]}\n', 2, "tenants.t.owners[0]", "no owner can be called"),
        ("tenants:\n  t: {owners: [-a]}\n", 2, "tenants.t.owners[0]", "no owner can be called"),
        (
            f"tenants:\n  t: {{owners: ['{'a' * 64}*']}}\n",
            *(2, "tenants.t.owners[0]", "no owner can be called"),
        ),
        ("tenants:\n  no good: {owners: [a]}\n", 2, "tenants.no good", "cannot name a tenant"),
        ("tenants:\n  default: {owners: [a]}\n", 2, "tenants.default", "whom no other one names"),
        (
            "tenants:\n  a: {owners: [x]}\n  b:\n    owners:\n      - y\n      - x\n",
            *(6, "tenants.b.owners[1]", "'x' belongs to the tenant 'a' already"),
        ),
        (
            'tenants:\n  a: {owners: ["x*"]}\n  b: {owners: ["x*"]}\n',
            *(3, "tenants.b.owners[0]", "'x*' belongs to the tenant 'a' already"),
        ),
        (
            "tenants:\n  a: {owners: [x]}\n  a: {owners: [y]}\n",
            *(3, "tenants.a", "the key stands twice"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, text: str, line: int, key: str, message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        settings_of(tmp_path / "master.yaml", text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
